"""Gradients of convolutions: those that run as gemms of ours and their neighbours."""

import itertools

import pytest
import torch
import torch.nn.functional as F

import oxyfuel

CONVOLUTIONS = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
LAYOUTS = {
    "contiguous": lambda x: x,
    "channels_last": lambda x: x.to(memory_format=torch.channels_last),
    "transposed": lambda x: x.transpose(2, 3),
}


def gradients(function, x, weight, bias):
    leaves = [t.detach().requires_grad_() for t in (x, weight, bias) if t is not None]
    y = function(*leaves)
    (y * torch.linspace(-1, 1, y.numel()).view(y.shape)).sum().backward()
    return [y, *(t.grad for t in leaves)]


def check(x, channels, kernel, bias, **options):
    convolution = CONVOLUTIONS[x.dim() - 2]
    groups = options.get("groups", 1)
    weight = torch.randn(channels, x.shape[1] // groups, *[kernel] * (x.dim() - 2))
    bias = torch.randn(channels) if bias else None

    def f(x, weight, bias=None):
        return convolution(x.relu(), weight, bias, **options).sin()

    compiled = oxyfuel.compile(f, fullgraph=True)
    for ours, theirs in zip(gradients(compiled, x, weight, bias), gradients(f, x, weight, bias)):
        torch.testing.assert_close(ours, theirs, atol=2e-4, rtol=1e-4)
        assert ours.stride() == theirs.stride()


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("sizes", [(150,), (7, 7), (14, 13), (3, 4, 5)], ids=str)
def test_one_tap(sizes, batch, stride, bias):
    for before, after in ((3, 16), (16, 3), (16, 40)):
        check(torch.randn(batch, before, *sizes), after, 1, bias, stride=stride)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("kernel", [1, 3])
def test_layouts(layout, kernel):
    for batch, stride in itertools.product((1, 3), (1, 2)):
        check(LAYOUTS[layout](torch.randn(batch, 16, 9, 12)), 24, kernel, True, stride=stride)


@pytest.mark.parametrize("padding", [0, 1, 2])
@pytest.mark.parametrize("dilation", [1, 2])
@pytest.mark.parametrize("stride", [1, 2])
def test_few_pixels(stride, dilation, padding):
    for batch in (1, 4, 7):  # of 7 images of 64 pixels each the gradient stays the library's
        x = torch.randn(batch, 16, 8, 8)
        check(x, 24, 3, batch > 1, stride=stride, dilation=dilation, padding=padding)


def test_padding_around_one_tap():
    check(torch.randn(2, 16, 8, 8), 16, 1, True, padding=1)


def test_groups_and_transposed_convolutions():
    check(torch.randn(2, 16, 8, 8), 16, 1, True, groups=2)
    x, weight = torch.randn(2, 16, 8, 8), torch.randn(16, 24, 1, 1)
    f = F.conv_transpose2d
    for ours, theirs in zip(
        gradients(oxyfuel.compile(f, fullgraph=True), x, weight, None),
        gradients(f, x, weight, None),
    ):
        torch.testing.assert_close(ours, theirs, atol=2e-4, rtol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_dtypes(dtype):
    x, weight = torch.randn(2, 16, 8, 8, dtype=dtype), torch.randn(24, 16, 1, 1, dtype=dtype)
    for ours, theirs in zip(
        gradients(oxyfuel.compile(F.conv2d, fullgraph=True), x, weight, None),
        gradients(F.conv2d, x, weight, None),
    ):
        # Of bf16, sums that cancel have the last bits of what was added.
        tolerance = {"atol": 2e-2, "rtol": 1.6e-2} if dtype == torch.bfloat16 else {}
        torch.testing.assert_close(ours, theirs, **tolerance)


def test_only_what_is_wanted():
    for wanted in ([True, False], [False, True]):
        x = torch.randn(2, 16, 20, 20).requires_grad_(wanted[0])
        weight = torch.randn(24, 16, 1, 1).requires_grad_(wanted[1])
        leaf = x if wanted[0] else weight
        grads = []
        for f in (F.conv2d, oxyfuel.compile(F.conv2d, fullgraph=True)):
            grads.append(torch.autograd.grad(f(x, weight).square().sum(), leaf)[0])
        torch.testing.assert_close(*grads, atol=1e-3, rtol=1e-4)


@pytest.mark.parametrize("kernel", [1, 3])
def test_any_batch_and_size(kernel):
    def f(x, weight):
        return F.conv2d(x, weight, padding=kernel // 2)

    oxyfuel.reset()
    weight = torch.randn(24, 16, kernel, kernel)
    compiled = oxyfuel.compile(f, fullgraph=True, dynamic=True)
    for batch, size in ((2, 8), (3, 20), (5, 5), (2, 16)):
        x = torch.randn(batch, 16, size, size + 1)
        for ours, theirs in zip(
            gradients(compiled, x, weight, None), gradients(f, x, weight, None)
        ):
            torch.testing.assert_close(ours, theirs, atol=2e-4, rtol=1e-4)
    assert oxyfuel.stats()["recompiles"] == 0


@pytest.mark.parametrize("of_weight", (False, True))
@pytest.mark.parametrize("kernel", (2, 3))
def test_channels_last_at_many_sizes(kernel, of_weight, monkeypatch):
    monkeypatch.setenv("OXYFUEL_STRICT", "1")
    weight = torch.randn(32, 16, kernel, kernel)
    if of_weight:
        weight = LAYOUTS["channels_last"](weight)

    def f(x, weight):
        return F.dropout(F.conv2d(x, weight, padding=1), 0.25)

    compiled = oxyfuel.compile(f)
    for n in (2, 3, 4, 6, 5):
        x = torch.randn(n, 16, 6 + n, 8)
        if not of_weight:
            x = LAYOUTS["channels_last"](x)
        for ours, theirs in zip(*[seeded(g, x, weight) for g in (compiled, f)]):
            torch.testing.assert_close(ours, theirs, atol=2e-4, rtol=1e-4)
            assert ours.stride() == theirs.stride()
    assert oxyfuel.stats()["plans"] == 2


def seeded(f, x, weight):
    torch.manual_seed(1)
    return gradients(f, x, weight, None)
