"""Functions that kernels compute by themselves, against the true values: to 30 digits by mpmath
(a dependency of torch), or exactly."""

import math

import mpmath
import pytest
import torch

import oxyfuel

pytestmark = pytest.mark.usefixtures("fresh")


def compiled(function):
    return oxyfuel.compile(function, options={"strict": True})


def ulps(got, true):
    return abs((mpmath.mpf(got) - true) / mpmath.mpf(math.ulp(float(true))))


def test_erfinv_of_double():
    f64 = torch.float64
    small = 10 ** (-300 * torch.rand(100, dtype=f64))
    near_one = 1 - 10 ** (-15.9 * torch.rand(300, dtype=f64))
    edges = torch.tensor([0.85, 0.8500001, 1 - 2.8e-11, 1 - 2.7e-11, 1 - 2**-53, 5e-324], dtype=f64)
    y = torch.cat([torch.rand(500, dtype=f64), small, near_one, edges])
    y = torch.cat([y, -y])
    y = y[y.abs() < 1]
    with mpmath.workdps(30):
        pairs = zip(y.tolist(), compiled(torch.erfinv)(y).tolist(), strict=True)
        assert max(ulps(x, mpmath.erfinv(mpmath.mpf(v))) for v, x in pairs) < 6


@pytest.mark.parametrize("vector_bytes", [64, 32])
def test_exp_of_double(vector_bytes):
    f64 = torch.float64
    x = torch.cat([torch.linspace(-708, 709, 3001, dtype=f64), torch.randn(3000, dtype=f64)])
    x = torch.cat([x, torch.tensor([0.0, 1e-300, 709.78, 0.34657359, -0.34657359], dtype=f64)])
    options = {"strict": True, "vector_bytes": vector_bytes}
    exp = oxyfuel.compile(torch.exp, options=options)
    with mpmath.workdps(30):
        pairs = zip(x.tolist(), exp(x).tolist(), strict=True)
        assert max(ulps(y, mpmath.exp(mpmath.mpf(v))) for v, y in pairs) < 1
    ends = torch.tensor([math.nan, math.inf, -math.inf, 800.0, -745.2, -800.0, -744.0], dtype=f64)
    for some in (ends, ends[2:3].repeat(9), ends[5:6].repeat(9)):  # whole vectors of zeros
        torch.testing.assert_close(exp(some), some.exp(), equal_nan=True, rtol=0, atol=5e-324)


@pytest.mark.parametrize("vector_bytes", [64, 32, 0])
def test_exp2(vector_bytes):
    exp2 = oxyfuel.compile(torch.exp2, options={"strict": True, "vector_bytes": vector_bytes})
    some = torch.cat(
        [torch.linspace(-160, 130, 40009), torch.randn(10007), torch.arange(-149.0, 129)]
    )
    exact = some.double().exp2()
    ulp = torch.ldexp(torch.ones(()), exact.frexp().exponent.clamp(min=-125) - 24)
    within = exact < torch.finfo(torch.float32).max
    got = exp2(some)
    assert ((got.double() - exact).abs() <= ulp.double())[within].all()
    assert torch.equal(got[-278:], some[-278:].double().exp2().float())  # of integers exact
    edges = torch.tensor([0.0, -0.0, 1e-40, 128, 127.99999, -149, -150, -149.99999, 3e38, -3e38])
    edges = torch.cat([edges, torch.tensor([math.inf, -math.inf, math.nan])])
    for x in (edges, edges.repeat(3)):
        torch.testing.assert_close(exp2(x), x.exp2(), equal_nan=True, rtol=1.2e-7, atol=0)


@pytest.mark.parametrize("vector_bytes", [64, 32, 0])
def test_gelu_and_its_gradient(vector_bytes):
    options = {"strict": True, "vector_bytes": vector_bytes}
    gelu = oxyfuel.compile(torch.nn.functional.gelu, options=options)
    slope = oxyfuel.compile(torch.ops.aten.gelu_backward, options=options)
    some = torch.cat([torch.randn(10007) * 3, torch.linspace(-17, 17, 5003)])
    some = torch.cat([some, torch.tensor([0.0, 1e-30, -1e-30, 1e6, -1e6, 3e38, -3e38])])
    exact = some.double()
    error = gelu(some).double() - torch.nn.functional.gelu(exact)
    assert (error.abs() <= 2.4e-7 * some.abs()).all()
    ones = torch.ones_like(some)
    error = slope(ones, some).double() - torch.ops.aten.gelu_backward(ones.double(), exact)
    assert error.abs().max() < 2.5e-7
    assert gelu(some.new_full((9,), math.nan)).isnan().all()
    assert slope(ones[:9], some.new_full((9,), math.nan)).isnan().all()


def test_ends_of_erfinv():
    y = torch.tensor([0.0, -0.0, 1.0, -1.0, 1.5, -2.0, math.nan, math.inf], dtype=torch.float64)
    x = compiled(torch.erfinv)(y)
    torch.testing.assert_close(x, torch.erfinv(y), equal_nan=True, rtol=0, atol=0)
    assert torch.equal(x[:2].signbit(), y[:2].signbit())


SPECIAL = [0.0, -0.0, math.inf, -math.inf, math.nan, 1.0, -1.0, 5e-324, 1e-45, 3.0, 1e38]


def dividends(dtype):
    """Pairs: of special values, at multiples of the divisor and beside them, of quotients up to the
    largest one that an fma serves and beyond, and of any bits."""
    special = torch.tensor(SPECIAL, dtype=torch.float64).to(dtype)
    yield special.repeat(len(SPECIAL)), special.repeat_interleave(len(SPECIAL))
    y = torch.randn(20003, dtype=dtype)
    multiples = torch.randint(1, 5000, y.shape).to(dtype) * y
    for x in (multiples, multiples.nextafter(torch.zeros((), dtype=dtype))):
        yield x, y
    for scale in (10, 2.0**21, 2.0**24, 2.0**48, 2.0**54):
        yield torch.randn_like(y) * scale, y
    bits = torch.int32 if dtype == torch.float32 else torch.int64
    info = torch.iinfo(bits)
    x, y = torch.randint(info.min, info.max, (2, 20003), dtype=bits).view(dtype)
    yield x, y


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("function", [torch.fmod, torch.remainder, torch.floor_divide])
def test_division_with_a_rest_has_eagers_bits(function, dtype):
    bits = torch.int32 if dtype == torch.float32 else torch.int64
    ours = compiled(function)
    for x, y in dividends(dtype):
        for a, b in ((x, y), (x[1::3], y[1::3])):
            got, expected = ours(a, b), function(a, b)
            differs = got.contiguous().view(bits) != expected.contiguous().view(bits)
            differs &= ~(got.isnan() & expected.isnan())
            # Eager has NaN or the true rest there, as the layout lets it take vectors or not.
            differs &= ~((a / b).isinf() & a.isfinite() & (b != 0))
            assert not differs.any(), (a[differs][:5], b[differs][:5])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_fmod_is_exact(dtype):
    for x, y in dividends(dtype):
        got = compiled(torch.fmod)(x, y)
        for a, b, r in list(zip(x.tolist(), y.tolist(), got.tolist(), strict=True))[:3000]:
            if math.isfinite(a) and math.isfinite(b) and b and abs(a) < 2.0**50 * abs(b):
                assert r == math.fmod(a, b), (a, b, r)


def test_cosine_of_zero_and_largest_one():
    for count in (1, 40):
        x = torch.zeros(count)
        assert torch.equal(compiled(torch.cos)(x), torch.ones(count))
        assert torch.equal(compiled(torch.cos)(-x), torch.ones(count))
    x = torch.cat(
        [torch.linspace(-0.01, 0.01, 50001), 3.14159265 + torch.linspace(-0.01, 0.01, 50001)]
    )
    for f in (torch.cos, lambda x: torch.sin(x + math.pi / 2)):
        assert compiled(f)(x).abs().max() == 1


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_log_softmax_of_halves(dtype, dim):
    """Along the last dimension eager keeps the sums, and their logarithms, in the halves' dtype."""
    x = (torch.randn(40, 3, 130) * 3).to(dtype)
    for some in (x, x.transpose(0, 2), x[..., :1], x[..., ::13]):
        expected = torch.log_softmax(some, dim)
        found = compiled(lambda x: torch.log_softmax(x, dim))(some)
        assert (found != expected).float().mean() < 2e-3  # sums are associated otherwise


def test_cos_of_the_smallest_numbers_is_one():
    """Where 1 - cos x, or cos x - sin x / x, is divided by x, an ulp is all there is."""
    x = torch.linspace(-1e-4, 1e-4, 4001)
    assert torch.equal(oxyfuel.compile(torch.cos)(x), torch.ones_like(x))
    x = (x / 10).requires_grad_()
    (ours,) = torch.autograd.grad(oxyfuel.compile(torch.sinc)(x).sum(), x)
    (theirs,) = torch.autograd.grad(torch.sinc(x).sum(), x)
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-4)
