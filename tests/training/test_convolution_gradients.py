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


@pytest.mark.parametrize("length", [1, 2])
def test_any_number_of_short_rows(length):
    """Lengths of one position, and those of two, are a capture each for every batch."""
    weight = torch.randn(8, 8, 3)

    def f(x, weight):
        y = F.conv1d(x.transpose(1, 2), weight, padding=1).transpose(1, 2)
        return y, y[:, ::2].contiguous()

    def step(f, x):
        leaves = [t.detach().requires_grad_() for t in (x, weight)]
        a, b = f(*leaves)
        (a.sin().sum() + b.sum()).backward()
        return [a, b, *(t.grad for t in leaves)]

    compiled = oxyfuel.compile(f, fullgraph=True)
    for batch, n in ((5, 7), (6, 9), *((b, length) for b in (7, 3, 11, 20))):
        x = torch.randn(batch, n, 8)
        for ours, theirs in zip(step(compiled, x), step(f, x)):
            torch.testing.assert_close(ours, theirs)
            assert ours.stride() == theirs.stride()
    assert oxyfuel.stats()["graphs"] == 3


class Bottleneck(torch.nn.Module):
    """Each channel by itself between two convolutions of one tap, with a shortcut."""

    def __init__(self, channels):
        super().__init__()
        self.wide = torch.nn.Conv2d(channels, 3 * channels, 1)
        self.each = torch.nn.Conv2d(
            3 * channels, 3 * channels, 3, padding=1, groups=3 * channels, bias=False
        )
        self.norm = torch.nn.BatchNorm2d(3 * channels)
        self.narrow = torch.nn.Conv2d(3 * channels, channels, 1)

    def forward(self, x):
        return x + self.narrow(F.relu(self.norm(self.each(F.hardswish(self.wide(x))))))


def saved_strides(f, x):
    strides = []

    def pack(t):
        strides.append(t.stride())
        return t

    with torch.autograd.graph.saved_tensors_hooks(oxyfuel.keeps_values(pack), lambda t: t):
        f(x)
    return strides


def bottlenecks(dtype):
    torch.manual_seed(0)
    return torch.nn.Sequential(*(Bottleneck(16) for _ in range(2))).to(dtype)


def gradients_of(model, f, x, **options):
    x = x.detach().requires_grad_()
    y = f(x)
    return torch.autograd.grad(
        (y * y.detach().sin()).sum(), [x, *model.parameters()], retain_graph=True, **options
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("dynamic", [False, True])
def test_what_is_saved_lies_as_convolutions_want_it(dtype, dynamic):
    """The forward's images are not turned around for the backward, which reads them as they are."""
    model = bottlenecks(dtype)
    f = oxyfuel.compile(model, fullgraph=True, dynamic=dynamic)
    for images, side in ((2, 32), (3, 40)):
        x = torch.randn(images, 16, side, side, dtype=dtype)
        bound = 1e-3 if dtype == torch.float32 else 0.1
        for ours, theirs in zip(gradients_of(model, f, x), gradients_of(model, model, x)):
            size = theirs.abs().max()
            torch.testing.assert_close(ours / size, theirs / size, atol=bound, rtol=bound)
            assert ours.stride() == theirs.stride()
    saved = [s for s in saved_strides(f, x.requires_grad_()) if len(s) == 4]
    assert any(s[1] == 1 for s in saved), saved


def test_gradients_of_gradients_of_what_is_saved_in_another_layout():
    model = bottlenecks(torch.float32).eval()
    f = oxyfuel.compile(model, fullgraph=True)
    x = torch.randn(2, 16, 32, 32)

    def second(f):
        first = gradients_of(model, f, x, create_graph=True)
        of = sum(g.square().sum() for g in first)
        return torch.autograd.grad(of, model.parameters(), materialize_grads=True)

    for ours, theirs in zip(second(f), second(model)):
        size = theirs.abs().max() + 1
        torch.testing.assert_close(ours / size, theirs / size, atol=1e-3, rtol=1e-3)


def test_part_of_the_gradients_of_what_is_saved_in_another_layout():
    model = bottlenecks(torch.float32)
    f = oxyfuel.compile(lambda x: (model[0](x), model[1](x) * 2), fullgraph=True)
    x = torch.randn(2, 16, 32, 32)
    for which in (0, 1):
        asked = list(model[which].parameters())
        ours = torch.autograd.grad(f(x)[which].sin().sum(), asked)
        y = model[which](x) * (1 + which)
        for g, expected in zip(ours, torch.autograd.grad(y.sin().sum(), asked)):
            size = expected.abs().max() + 1e-2
            torch.testing.assert_close(g / size, expected / size, atol=1e-3, rtol=1e-3)


def test_filters_of_single_pixels_of_images_that_the_graph_lays_out(monkeypatch):
    """With one thread ATen takes another kernel for few images: a capture for either."""
    monkeypatch.setenv("OXYFUEL_STRICT", "1")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        layer = torch.nn.Conv2d(16, 8, 1)
        fn = lambda x: layer(x.transpose(1, 2).reshape(x.shape[0], 16, 8, 8))
        oxyfuel.reset()
        compiled = oxyfuel.compile(fn)
        for batch in (2, 3, 5, 7, 20, 30):
            x = torch.randn(batch, 64, 16)
            found, expected = (
                [*torch.autograd.grad(f(x).sum(), layer.parameters())] for f in (compiled, fn)
            )
            for a, b in zip(found, expected, strict=True):
                torch.testing.assert_close(a, b)
                assert a.stride() == b.stride()
        assert oxyfuel.stats()["graphs"] <= 3
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize("groups", (1, 2))
def test_wide_filters(groups):
    x = torch.randn(2, 16, 33, 40)
    weight = torch.randn(6, 16 // groups, 3, 15)
    f = lambda x, w: F.conv2d(x, w, padding=7, groups=groups)
    oxyfuel.reset()
    for ours, theirs in zip(
        gradients(oxyfuel.compile(f), x, weight, None), gradients(f, x, weight, None), strict=True
    ):
        torch.testing.assert_close(ours, theirs, atol=2e-3, rtol=1e-4)
        assert ours.stride() == theirs.stride()
