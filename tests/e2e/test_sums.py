"""Sums of many elements along any axis: no further from the sum in double precision than
eager's."""

import pytest
import torch

import oxyfuel

SHAPES = (
    ((100_000,), 0),
    ((1_000_003,), 0),
    ((100_000, 1), 0),
    ((100_000, 3), 0),
    ((100_000, 64), 0),
    ((100_003, 5), 0),
    ((5_000, 700), 0),
    ((3, 30_001, 7), 1),
    ((4, 25_000, 40), 1),
    ((17, 4_099, 33), 1),
    ((8, 300_003), 1),
    ((300, 200, 100), (0, 2)),
    ((300, 200, 100), (0, 1)),
    ((300, 200, 100), (1,)),
    ((70, 300, 50), (0, 2)),
    ((1_000, 1_000), (0, 1)),
    ((40, 9, 2_000), (1, 2)),
)


def constant(shape):
    return torch.full(shape, 0.1)


def repeated(shape):
    """Every addition rounds to the same side for long."""
    return 0.1 + torch.arange(torch.Size(shape).numel()).remainder(3).reshape(shape) * 0.01


def noise(shape):
    torch.manual_seed(0)
    return torch.randn(shape) + 1


def far_from_zero(shape):
    torch.manual_seed(1)
    return torch.randn(shape) * 0.01 + 1000


def error(got, exact):
    return float((got.double() - exact).abs().max() / exact.abs().max())


@pytest.mark.parametrize("values", (constant, repeated, noise, far_from_zero))
@pytest.mark.parametrize("shape, dim", SHAPES)
def test_sums(shape, dim, values):
    x = values(shape)
    for fn in (
        lambda x: x.sum(dim),
        lambda x: (x * x).sum(dim),
        lambda x: (x + 1).mean(dim),
        lambda x: torch.linalg.vector_norm(x, dim=dim),
    ):
        exact = fn(x.double())
        got = oxyfuel.compile(fn, options={"strict": True})(x)
        # Two partial sums and their sum are rounded.
        assert error(got, exact) <= max(error(fn(x), exact), 2 * torch.finfo(torch.float32).eps)


@pytest.mark.parametrize("dtype", (torch.bfloat16, torch.float16))
@pytest.mark.parametrize("shape, dim", SHAPES)
def test_sums_of_fp16_and_bf16(shape, dim, dtype):
    x = (repeated(shape) * 0.01).to(dtype)
    fn = lambda x: x.sum(dim)
    exact = fn(x.double())
    got = oxyfuel.compile(fn, options={"strict": True})(x)
    assert error(got, exact) <= max(error(fn(x), exact), torch.finfo(dtype).eps)


@pytest.mark.parametrize("shape, dim", SHAPES)
def test_sums_of_doubles(shape, dim):
    x = repeated(shape).double() / 7
    fn = lambda x: x.sum(dim)
    got = oxyfuel.compile(fn, options={"strict": True})(x)
    torch.testing.assert_close(got, fn(x), rtol=1e-13, atol=0)


@pytest.mark.parametrize("shape, dim", SHAPES)
def test_variances(shape, dim):
    """Two passes in single precision, where eager has one in double: within a few roundings."""
    x = noise(shape) + 100
    fn = lambda x: x.var(dim, correction=0)
    exact = fn(x.double())
    got = oxyfuel.compile(fn, options={"strict": True})(x)
    assert error(got, exact) <= 6 * torch.finfo(torch.float32).eps


@pytest.mark.parametrize("dtype", (torch.float64, torch.float32, torch.float16))
@pytest.mark.parametrize("inner", (1, 3, 8, 31, 33, 70))
def test_two_loops_of_any_size(inner, dtype):
    """A loop that is shorter than its vectors keeps what the loop around it has summed up."""

    def fn(x):
        return x.sum((0, -1), dtype=torch.float64), x.sum((0, 2), dtype=torch.float64)

    compiled = oxyfuel.compile(fn, dynamic=True)
    for last in (inner, inner + 1):
        x = torch.randn(2, 4, 6, last).to(dtype)
        for has, wanted in zip(compiled(x), fn(x), strict=True):
            torch.testing.assert_close(has, wanted)


@pytest.mark.parametrize("dtype", (torch.float32, torch.float64, torch.bfloat16, torch.float16))
@pytest.mark.parametrize("count", (1, 3, 7, 10, 100, 1000, 10007))
def test_equal_values_have_no_variance(count, dtype):
    """Whatever the mean is rounded to."""
    x = (torch.tensor([0.7, 0.21, 0.7 / 3, 700.0]).expand(count, 4) * 1).to(dtype)
    for fn in (
        lambda x: x.std(0, correction=0),
        lambda x: x.t().contiguous().std(-1, correction=0),
        lambda x: torch.var_mean(x, 0, correction=0),
        lambda x: x[:, 1].var(correction=0),
    ):
        spread = oxyfuel.compile(fn)(x)
        spread = spread[0] if isinstance(spread, tuple) else spread
        assert (spread == 0).all()


def test_infinities_have_neither_mean_nor_variance():
    x = torch.tensor([[float("inf"), 1.0, 2.0], [1.0, 2.0, 3.0], [float("nan"), 0.0, 0.0]])
    fn = lambda x: (*torch.var_mean(x, 1), *torch.std_mean(x, 0), x.mean(1))
    torch.testing.assert_close(oxyfuel.compile(fn)(x), fn(x), equal_nan=True)


STRIDED = {
    "sum": lambda x: x.sum(1),
    "sums": lambda x: (x.exp().sum(1), (x * 2).sum(1), x.mean(1)),
    "extremes": lambda x: (x.amax(1), x.argmin(1)),
    "norm": lambda x: torch.linalg.vector_norm(x, dim=1),
    "stored beside": lambda x: (x.exp() + 1, x.exp().sum(1)),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int32])
@pytest.mark.parametrize("step", [2, 3, -1])
@pytest.mark.parametrize("name", STRIDED)
def test_along_strides(name, step, dtype):
    fn = STRIDED[name]
    if name in ("norm", "sums") and not dtype.is_floating_point:
        pytest.skip("of floats")
    static, dynamic = (oxyfuel.compile(fn, dynamic=d) for d in (False, True))
    for n in (1, 15, 16, 17, 33, 255, 256, 257, 1000):
        x = torch.linspace(-3, 4, 3 * n * abs(step)).reshape(3, -1).to(dtype)
        x = x[:, ::step] if step > 0 else x.t().contiguous().t()
        for compiled in (dynamic,) if n not in (17, 257) else (static, dynamic):
            torch.testing.assert_close(compiled(x), fn(x))


def test_many_strided_columns():
    """More addresses than loops are reduced in strength for."""

    def fn(x):
        return [(x[:, i] * x[:, i + 1]).sum() for i in range(12)], x.t().exp().sum(1)

    compiled = oxyfuel.compile(fn, dynamic=True)
    for n in (2, 16, 100, 1000):
        x = torch.randn(n, 13)
        torch.testing.assert_close(compiled(x), fn(x), atol=1e-4, rtol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("scale", [1e-30, 1e-20, 1e4, 1e20, 1e30])
def test_spreads_whose_squares_leave_the_range(scale, dtype):
    torch.manual_seed(0)
    x = (torch.randn(7, 300) * scale).to(dtype)
    for dim in (0, 1, None):
        for f in (torch.std, torch.var, torch.std_mean, torch.var_mean):
            found, wanted = oxyfuel.compile(lambda x, f=f, d=dim: f(x, d))(x), f(x, dim)
            torch.testing.assert_close(found, wanted, equal_nan=True, atol=0, rtol=1e-2)
