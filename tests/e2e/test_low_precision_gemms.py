"""Gemms in bfloat16 and float16 by our own kernel: f32 sums, rounded once as eager's."""

import pytest
import torch
import torch.nn.functional as F

import oxyfuel

pytestmark = pytest.mark.usefixtures("fresh")

DTYPES = [torch.bfloat16, torch.float16]
OWN = {"gemm_backend": "own"}  # also where oneDNN's are faster


def check(fn, *inputs):
    compiled = oxyfuel.compile(fn, options=OWN)
    with torch.no_grad():
        expected, got = fn(*inputs), compiled(*inputs)
    assert got.dtype == expected.dtype and got.stride() == expected.stride()
    # Sums in another order: one unit in the last place, where the sum lies at the middle of two.
    units = (got.view(torch.int16).int() - expected.view(torch.int16).int()).abs()
    near = (got.float() - expected.float()).abs() < 1e-3
    assert bool(((units <= 1) | near).all())
    assert float((units > 0).float().mean()) < 0.02
    assert oxyfuel.stats()["extern_calls"] == 0
    assert oxyfuel.stats()["fallbacks"] == 0


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "m,k,n",
    [
        (1, 60, 70),
        (3, 17, 16),
        (4, 8, 16),
        (25, 130, 70),
        (5, 1, 1),
        (7, 33, 17),
        (64, 300, 48),
        (300, 290, 40),
        (16, 1000, 31),
    ],
)
@pytest.mark.parametrize("bias", [True, False])
def test_linear(dtype, m, k, n, bias):
    x, w = torch.randn(m, k).to(dtype), torch.randn(n, k).to(dtype)
    b = torch.randn(n).to(dtype) if bias else None
    check(lambda x, w: F.linear(x, w, b), x, w)


@pytest.mark.parametrize("dtype", DTYPES)
def test_mm_and_bmm(dtype):
    check(torch.mm, torch.randn(9, 40).to(dtype), torch.randn(40, 35).to(dtype))
    oxyfuel.reset()
    check(torch.bmm, torch.randn(3, 9, 40).to(dtype), torch.randn(3, 40, 35).to(dtype))
    oxyfuel.reset()
    check(torch.bmm, torch.randn(3, 9, 40).to(dtype), torch.randn(3, 35, 40).to(dtype).mT)


@pytest.mark.parametrize("dtype", DTYPES)
def test_special_values(dtype):
    x, w = torch.randn(6, 20).to(dtype), torch.randn(18, 20).to(dtype)
    x[1, 3], x[2, 4], x[3, 5], w[2, 7] = float("nan"), float("inf"), -float("inf"), float("nan")
    compiled = oxyfuel.compile(F.linear, options=OWN)
    with torch.no_grad():
        expected, got = F.linear(x, w), compiled(x, w)
    assert torch.equal(got.isnan(), expected.isnan())
    assert torch.equal(got.isinf(), expected.isinf())


@pytest.mark.parametrize("dtype", DTYPES)
def test_overflow_and_small_numbers(dtype):
    x = torch.full((4, 16), 3e4).to(dtype)
    small = torch.full((4, 16), 1e-4).to(dtype)
    compiled = oxyfuel.compile(torch.mm)
    with torch.no_grad():
        for a in (x, small):
            b = a.t().contiguous()
            assert torch.equal(compiled(a, b), torch.mm(a, b))
