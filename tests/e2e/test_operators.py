"""Operators through oxyfuel.compile against eager, where the operator database found a difference
once."""

import copy
from functools import partial

import pytest
import torch
import torch.nn.functional as F

import oxyfuel

pytestmark = pytest.mark.usefixtures("strict_without_grad")


def outcome(f, *args):
    """The result or the exception, and the arguments afterwards."""
    args = copy.deepcopy(args)
    try:
        return f(*args), args
    except Exception as e:
        return (type(e), str(e)), args


def check(f, *args):
    """Twice the same as eager's, in one graph."""
    expected, args_after = outcome(f, *args)
    compiled = oxyfuel.compile(f)
    for _ in range(2):
        result, after = outcome(compiled, *args)
        torch.testing.assert_close(result, expected, check_stride=True)
        torch.testing.assert_close(after, args_after, check_stride=True)
    assert not oxyfuel.stats()["graph_breaks"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("format", [torch.contiguous_format, torch.channels_last])
def test_batch_norm_in_training_updates_its_statistics(dtype, format):
    def f(x, mean, var, weight, bias):
        y = F.batch_norm(x, mean, var, weight, bias, training=True)
        return y + F.batch_norm(x, mean, var, training=True), mean * 2

    x = torch.randn(3, 4, 5, 2, dtype=dtype).contiguous(memory_format=format)
    check(f, x, *(torch.rand(4, dtype=dtype) for _ in range(4)))


def test_batch_norm_module_in_training():
    eager = torch.nn.BatchNorm2d(3)
    compiled = copy.deepcopy(eager)
    f = oxyfuel.compile(compiled, fullgraph=True)
    for _ in range(3):
        x = torch.randn(2, 3, 4, 4)
        torch.testing.assert_close(f(x), eager(x))
    torch.testing.assert_close(compiled.state_dict(), eager.state_dict())


def test_statistics_that_are_views_run_in_eager():
    def f(x, statistics):
        return F.batch_norm(x, statistics[0], statistics[1], training=True)

    x, statistics = torch.randn(3, 4), torch.rand(2, 4)
    expected, after = outcome(f, x, statistics)
    result, changed = outcome(oxyfuel.compile(f), x, statistics)
    torch.testing.assert_close((result, changed), (expected, after))


def test_instance_norm_with_running_statistics():
    def f(x, mean, var):
        return F.instance_norm(x, mean, var, use_input_stats=True)

    check(f, torch.randn(2, 3, 5), torch.rand(3), torch.rand(3))


@pytest.mark.parametrize(
    "f",
    [
        lambda x: F.gelu(x, approximate="neither"),
        lambda x: F.softshrink(x, -0.5),
        lambda x: x.long().logit_(),
        lambda x: x.long().ldexp_(x),
        lambda x: x.mean(dtype=torch.int64),
        lambda x: x.mean(0, dtype=torch.int64),
    ],
)
def test_refused_calls_raise_as_in_eager(f):
    x = torch.rand(3)
    expected, _ = outcome(f, x)
    assert issubclass(expected[0], RuntimeError)
    assert outcome(oxyfuel.compile(f), x)[0] == expected


def test_write_that_gives_another_shape():
    def f(x, a, b):
        return x.addbmm_(a, b)

    args = torch.zeros(1), torch.rand(2, 3, 4), torch.rand(2, 4, 3)
    torch.testing.assert_close(outcome(oxyfuel.compile(f), *args), outcome(f, *args))


@pytest.mark.parametrize("channels", [4, 16])
@pytest.mark.parametrize("weight_too", [False, True])
def test_convolutions_in_channels_last(channels, weight_too):
    def f(x, w, v):
        return F.conv2d(F.conv2d(x, w, padding=1).relu(), v), F.conv_transpose2d(x, v)

    # Whole numbers: sums that no order of additions rounds.
    x = torch.randint(-3, 4, (2, channels, 7, 5)).float()
    x = x.contiguous(memory_format=torch.channels_last)
    w, v = torch.randint(-3, 4, (2, channels, channels, 3, 3)).float()
    format = torch.channels_last if weight_too else torch.contiguous_format
    check(f, x, w.contiguous(memory_format=format), v)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("channels", [4, 1])
@pytest.mark.parametrize("weight_layout", [1, -1])
def test_convolution_of_one_dimension(weight_layout, channels, dtype):
    def f(x, w):
        return F.conv1d(x, w), F.conv_transpose1d(x, w)

    w = torch.randn(channels, channels, 3, dtype=dtype)
    x = torch.randn(2, 6, channels, dtype=dtype).mT
    check(f, x, w if weight_layout == 1 else w.mT.contiguous().mT)


@pytest.mark.parametrize("sizes", [(2, 6, 3), (2, 3, 2), (1, 6, 3), (6, 3)])
def test_pooling_of_transposed_rows(sizes):
    check(lambda x: F.max_pool1d(x, 2), torch.randn(*sizes).mT)
    check(lambda x: F.max_pool1d(x, 2, return_indices=True), torch.randn(*sizes).mT)
    check(lambda x: F.adaptive_max_pool1d(x, 2), torch.randn(*sizes).mT)


def test_shuffles_of_nothing():
    x = torch.empty(0, 4, 6, 6)
    check(lambda x: (F.pixel_unshuffle(x, 2), F.pixel_shuffle(x, 2)), x)


@pytest.mark.parametrize(
    "f",
    [
        lambda x: F.pad(x, [1, 1, 1, 1], mode="reflect"),
        lambda x: F.pad(x, [1, 1, 1, 1], mode="replicate"),
        lambda x: F.pixel_shuffle(x, 2),
        lambda x: F.pixel_unshuffle(x, 2),
        lambda x: F.channel_shuffle(x, 2),
        lambda x: torch.normal(x, 1.0),
        lambda x: torch.ops.aten.native_dropout_backward(x, x > 0, 2.0),
        lambda x: torch.ops.aten.native_dropout_backward(x.long(), x > 0, 2.0),
        lambda x: x.mT.contiguous().mT.resize_as_(x),
    ],
)
def test_memory_formats(f):
    def seeded(g, x):
        torch.manual_seed(0)
        return g(x)

    for x in (torch.randn(2, 4, 6, 6), torch.randn(2, 6, 6, 4).permute(0, 3, 1, 2)):
        result, expected = seeded(oxyfuel.compile(f), x), seeded(f, x)
        torch.testing.assert_close(result, expected, check_stride=True)


@pytest.mark.parametrize("draw", ["normal_", "uniform_", "exponential_", "bernoulli_", "random_"])
def test_random_numbers_for_a_tensor_with_gaps(draw):
    def f(x):
        return getattr(x[:, ::2], draw)()

    expected, compiled = torch.zeros(6, 8), torch.zeros(6, 8)
    torch.manual_seed(0)
    f(expected)
    torch.manual_seed(0)
    oxyfuel.compile(f)(compiled)
    torch.testing.assert_close(compiled, expected, rtol=0, atol=0)


def test_comparisons_in_place():
    check(lambda x: x.ge_(0.5).logical_not_(), torch.rand(5))


def test_view_copy_of_a_transposed_tensor():
    x = torch.randn(4, 6).mT
    f = lambda x: torch.view_copy(x, (24,))
    torch.testing.assert_close(oxyfuel.compile(f)(x), f(x))


@pytest.mark.parametrize("dim", range(-4, 4))
def test_dimensions_counted_from_the_end(dim):
    check(lambda x: (torch.unsqueeze_copy(x, dim), x.unsqueeze(dim) + 1), torch.randn(3, 4, 5))


@pytest.mark.parametrize("dims", [(0, 1), (1, 0), (0, 1, 2), (2, 1, 0), (1, 0, 2)])
def test_layout_of_real_fourier_transforms(dims):
    check(lambda x: torch.fft.rfftn(x, dim=dims), torch.randn(5, 6, 4))


def by_sign(x, y):
    return torch.where(x == x, torch.copysign(y, x), x), torch.where(y < 0, y, y.copysign(x))


def by_masks(x, y):
    joined = (y & 0x7FFFFFFF) | (x & -(2**31))
    return (
        torch.where(x > y, x, joined),
        torch.where(x > y, joined, x),
        torch.where(y < 0, y, joined),
    )


@pytest.mark.parametrize("width", [1, 2, 3, 5, 8, 13, 16, 40])
def test_choices(width):
    """Between a value and what was made of its bits."""
    x, y = torch.randn(12, width), torch.randn(width)
    for f in (lambda x, y: torch.tanh(x + y), lambda x, y: torch.erf(x + y), by_sign):
        torch.testing.assert_close(oxyfuel.compile(f)(x, y), f(x, y))
    a, b = (torch.randint(-(2**31), 2**31 - 1, (12, width), dtype=torch.int32) for _ in range(2))
    ours, eager = oxyfuel.compile(by_masks)(a, b), by_masks(a, b)
    assert all(map(torch.equal, ours, eager))


@pytest.mark.parametrize("alpha", [False, True, 0, 3])
def test_sums_of_masks_scaled(alpha):
    x, y = torch.tensor([True, False, True, False]), torch.tensor([True, True, False, False])
    check(lambda x, y: (torch.add(x, y, alpha=alpha), x.clone().add_(y, alpha=alpha)), x, y)


def test_differences_scaled_by_0_keep_signs():
    x = torch.tensor([-0.0, 0.0, 1.0])
    check(lambda x: [y.signbit() for y in (torch.sub(x, x, alpha=0), torch.rsub(x, x, alpha=0))], x)


@pytest.mark.parametrize("exponents", [torch.int8, torch.int64])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_ldexp_overflows_in_no_power(dtype, exponents):
    x, n = torch.tensor([2.0**-14, 0.0, -1.0, 1.5]), torch.tensor([28, 127, -20, 3])
    check(torch.ldexp, x.to(dtype), n.to(exponents))
    check(torch.ldexp, torch.full((2, 3), 1e-30), torch.tensor(120).to(exponents))


@pytest.mark.parametrize("keepdim", [False, True])
def test_sums_over_an_empty_list_of_dimensions(keepdim):
    def f(x):
        y = x / x
        return y.nansum((), keepdim), y.nanmean([], keepdim), y.nansum(0)

    check(f, torch.tensor([[1.0, 0.0], [2.0, 3.0]]))
    check(lambda x: x.nansum((), keepdim), torch.arange(6).view(2, 3))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.bool])
def test_means_in_complex_numbers(dtype):
    x = torch.ones(2, 3, dtype=dtype)
    check(lambda x: (x.mean(0, dtype=torch.complex64), x.mean(dtype=torch.complex128)), x)


@pytest.mark.parametrize("value", [True, 3, 2.5, 2 + 0j])
@pytest.mark.parametrize("dtype", [torch.bool, torch.int64, torch.bfloat16, torch.float32])
def test_a_mask_takes_a_value_of_another_dtype(dtype, value):
    def f(x, v):
        y, z = x.clone(), x.clone()
        y[y == 1] = v
        return y, z.index_put_((x == 1,), v[None])

    check(f, torch.tensor([0, 1, 2, 1]).to(dtype), torch.tensor(value))


@pytest.mark.parametrize("dtype", [torch.float32, torch.uint8, torch.complex64])
def test_truths_over_no_dimension_are_row_major(dtype):
    x = torch.ones(3, 2).to(dtype).t()
    check(lambda x: (x.any(()), x.all(()), x.any((), keepdim=True)), x)
    check(lambda x, y: (torch.logical_and(y, x), torch.logical_xor(x, x)), x, torch.ones(3))


def test_dtypes_of_kernels_that_promote_in_their_own_way():
    half, wide = torch.randn(4).bfloat16(), torch.randn(3, 1)
    for reduction in ("none", "mean"):
        check(partial(F.huber_loss, reduction=reduction), half.expand(3, 4), wide)
    check(torch.block_diag, half, torch.tensor(2.0))
    check(lambda a, b, c: torch.addr(a, b, c, beta=2), torch.tensor(1.0), torch.arange(3), half)
