"""Functions that kernels compute themselves in f32, against f64: units in the last place."""

import math

import pytest
import torch

import oxyfuel

pytestmark = pytest.mark.usefixtures("fresh")

MOST = {  # ulp where the result is no denormal
    torch.erfc: 4.2,
    torch.erf: 3,
    torch.expm1: 2,
    torch.log1p: 2,
    torch.tanh: 3,
    torch.exp: 2,
    torch.log: 2,
    torch.log2: 2,
    torch.log10: 2,
    torch.tan: 2.5,
    torch.asin: 2,
    torch.acos: 2,
    torch.atan: 2,
    torch.atanh: 2,
    torch.erfinv: 6,
}
EDGES = [math.nan, math.inf, -math.inf, 0.0, -0.0, 1e30, -1e30, 1e-30, 1e-42, 9.4, 10.0, 10.05]


@pytest.mark.parametrize("vector_bytes", [64, 32, 0])
@pytest.mark.parametrize("fn", MOST, ids=lambda f: f.__name__)
def test_ulp(fn, vector_bytes):
    near = torch.logspace(-30, 0, 20001)
    x = torch.cat([torch.linspace(-12, 12, 100001), near, -near, 1 - near, torch.tensor(EDGES)])
    got = oxyfuel.compile(fn, options={"vector_bytes": vector_bytes})(x)
    exact = fn(x.double())
    assert torch.equal(got.isnan(), exact.isnan())
    known = exact.isfinite() & (exact.abs() >= torch.finfo(torch.float32).tiny)
    whole = exact[known]
    unit = torch.exp2(whole.abs().log2().floor() - 23)
    assert float(((got[known].double() - whole).abs() / unit).max()) <= MOST[fn]
    rest = ~known & ~exact.isnan()
    torch.testing.assert_close(got[rest].double(), exact[rest], rtol=0, atol=3e-45)


@pytest.mark.parametrize("vector_bytes", [64, 32, 0])
def test_logarithms_of_powers_are_whole(vector_bytes):
    options = {"vector_bytes": vector_bytes}
    powers = {
        torch.log2: torch.exp2(torch.arange(-149, 128).float()),
        torch.log10: torch.tensor([10.0**k for k in range(-37, 39)]),
    }
    for fn, x in powers.items():
        whole = oxyfuel.compile(fn, options=options)(x)
        assert torch.equal(whole, whole.round())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("order", [0, 1])
def test_bessel_functions_keep_the_sign_of_zero(order, dtype):
    fn = getattr(torch.special, f"bessel_j{order}")
    x = torch.tensor([-0.0, 0.0, -1.0, 1.0, -5.0, 5.0, -7.0, 7.0], dtype=dtype)
    expected, got = fn(x), oxyfuel.compile(fn)(x)
    torch.testing.assert_close(got, expected)
    assert torch.equal(got.signbit(), expected.signbit())
