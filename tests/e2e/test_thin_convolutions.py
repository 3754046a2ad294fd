"""Convolutions that sum few products are loops: each channel by itself, or few channels of single
pixels."""

import itertools

import pytest
import torch
import torch.nn.functional as F

import oxyfuel

CONVOLUTIONS = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}


def compiled(f, *tensors, **options):
    oxyfuel.reset()
    with torch.no_grad():
        return oxyfuel.compile(f, fullgraph=True, **options)(*tensors)


def check(f, *tensors, externs=0):
    found, expected = compiled(f, *tensors), f(*tensors)
    assert (found.dtype, found.stride()) == (expected.dtype, expected.stride())
    half = found.dtype in (torch.bfloat16, torch.float16)
    exact = f(*(t.double() for t in tensors))
    size = f(*(t.double().abs() for t in tensors)).abs() + 1e-3
    bound = {torch.float64: 1e-14, torch.float32: 4e-6, torch.float16: 2e-3}
    error = (found.double() - exact).abs() / size
    assert error.numel() == 0 or error.max() <= bound.get(found.dtype, 2e-2)
    assert oxyfuel.stats()["extern_calls"] == externs or half


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("dims", [1, 2, 3])
def test_each_channel_by_itself(dims, dtype):
    torch.manual_seed(0)
    x = torch.randn(2, 6, *(11, 9, 8)[:dims]).to(dtype)
    kernels = {1: (1, 4, 7), 2: ((3, 3), (1, 5), (2, 4)), 3: ((2, 2, 2), (1, 3, 3))}[dims]
    for k, stride, padding, dilation in itertools.product(kernels, (1, 2), (0, 2), (1, 2)):
        k = (k,) if isinstance(k, int) else k
        if dilation == 2 and max(k) > 4:
            continue
        w, b = torch.randn(6, 1, *k).to(dtype), torch.randn(6).to(dtype)
        options = (stride, padding, dilation, 6)
        check(lambda x, w, b: CONVOLUTIONS[dims](x, w, b, *options), x, w, b)  # noqa: B023


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_one_channel_to_many(dims):
    x, w = torch.randn(3, 1, *(10,) * dims), torch.randn(5, 1, *(3, 3, 2)[:dims])
    conv = CONVOLUTIONS[dims]
    check(lambda x, w: conv(x, w, padding=1), x, w)
    check(lambda x, w: conv(x, w, padding="same"), x, w[..., :2] if dims < 3 else w[..., :1])
    check(lambda x, w: conv(x[0], w), x, w)  # without a batch


@pytest.mark.parametrize("channels", [1, 3, 8])
@pytest.mark.parametrize("stride", [1, 2])
def test_single_pixels(channels, stride):
    x, w, b = torch.randn(2, channels, 9, 12), torch.randn(7, channels, 1, 1), torch.randn(7)
    check(lambda x, w, b: F.conv2d(x, w, b, stride).relu(), x, w, b)
    check(lambda x, w: F.conv2d(x, w, stride=stride, padding=1), x, w)


def test_layouts_of_what_it_reads():
    x, w = torch.randn(2, 4, 12, 12), torch.randn(4, 1, 3, 3)
    f = lambda x, w: F.conv2d(x * 2, w, padding=1, groups=4).sigmoid()  # noqa: E731
    check(f, x, w)
    check(f, x[..., ::2], w)
    check(f, x, w.permute(0, 1, 3, 2))
    check(f, x, w[:1].expand(4, 1, 3, 3))
    for v in (x.to(memory_format=torch.channels_last), x.transpose(2, 3)):
        torch.testing.assert_close(compiled(f, v, w), f(v, w), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("batch, height", [(1, 8), (1, 1), (2, 8)])
def test_rows_of_channels_that_are_seen_as_an_image(batch, height):
    """A batch of one lies as no channels-last image does, but for its other dimensions."""

    def f(rows, w):
        return F.conv2d(rows.mT.reshape(batch, 128, height, 8), w, padding=1, groups=128)

    w = torch.randn(128, 1, 3, 3)
    for rows in (torch.randn(batch, height * 8, 128), torch.randn(batch, 2 * height * 8, 128)):
        rows = rows[:, : height * 8]
        found, expected = oxyfuel.compile(f)(rows, w), f(rows, w)
        torch.testing.assert_close(found, expected)
        assert found.stride() == expected.stride()
    assert oxyfuel.stats()["fallbacks"] == oxyfuel.stats()["layout_copies"] == 0


def test_no_pixels():
    w = torch.randn(4, 1, 3)
    f = lambda x, w: F.conv1d(x, w, groups=4, padding=1)  # noqa: E731
    for x in (torch.zeros(0, 4, 9), torch.zeros(2, 4, 1)):
        torch.testing.assert_close(compiled(f, x, w), f(x, w))
    with pytest.raises(RuntimeError, match="Kernel size can't be greater"):
        compiled(lambda x, w: F.conv1d(x, w, groups=4), torch.zeros(2, 4, 2), w)


def test_larger_ones_are_the_library_s():
    check(
        lambda x, w: F.conv2d(x, w, groups=3),
        torch.randn(1, 3, 20, 20),
        torch.randn(3, 1, 6, 6),
        externs=1,
    )
    check(
        lambda x, w: F.conv2d(x, w, stride=3),
        torch.randn(1, 1, 20, 20),
        torch.randn(3, 1, 3, 3),
        externs=1,
    )


def test_gradients():
    x, w, b = torch.randn(2, 4, 30), torch.randn(4, 1, 4), torch.randn(4)
    f = lambda x, w, b: F.silu(F.conv1d(x, w, b, padding=3, groups=4)[..., :30])  # noqa: E731
    results = []
    for g in (f, oxyfuel.compile(f, fullgraph=True)):
        leaves = [t.clone().requires_grad_() for t in (x, w, b)]
        g(*leaves).square().sum().backward()
        results.append([t.grad for t in leaves])
    torch.testing.assert_close(*results, rtol=1e-4, atol=1e-4)


def test_every_size():
    w = torch.randn(4, 1, 3, 3)
    for stride in (1, 2):
        f = lambda x: F.conv2d(x, w, padding=1, stride=stride, groups=4)  # noqa: B023, E731
        g = oxyfuel.compile(f, dynamic=True)
        oxyfuel.reset()
        for n, h in ((2, 9), (3, 10), (5, 17), (2, 32)):
            x = torch.randn(n, 4, h, h + 3)
            torch.testing.assert_close(g(x), f(x), rtol=1e-4, atol=1e-4)


def test_among_layers_of_channels_last():
    """A network of the kind that MobileNet is."""
    net = torch.nn.Sequential(
        torch.nn.Conv2d(3, 16, 3, padding=1),
        torch.nn.Conv2d(16, 16, 3, padding=1, groups=16),
        torch.nn.Conv2d(16, 32, 1),
        torch.nn.ReLU(),
        torch.nn.Conv2d(32, 8, 1),
        torch.nn.Conv2d(8, 4, 1),
    ).eval()
    x = torch.randn(2, 3, 20, 20)
    torch.testing.assert_close(compiled(net, x), net(x), rtol=1e-4, atol=1e-5)
