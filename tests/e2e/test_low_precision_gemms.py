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
    assert int((units > 0).sum()) <= max(1, 0.02 * units.numel())
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


def exact_check(fn, *inputs, options=None):
    """By whoever is chosen: no farther from f64 than eager, which rounds at the same places."""
    compiled = oxyfuel.compile(fn, options=options or {})
    with torch.no_grad():
        expected, got = fn(*inputs), compiled(*inputs)
        exact = fn(*(x.double() for x in inputs))
    assert got.dtype == expected.dtype and got.stride() == expected.stride()
    off = [(x.double() - exact).abs() for x in (got, expected)]
    assert float(off[0].mean()) <= 1.05 * float(off[1].mean()) + 1e-9
    assert float(off[0].max()) <= 1.5 * float(off[1].max()) + 1e-9
    assert oxyfuel.stats()["fallbacks"] == 0


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "m,k,n",
    [(1, 1000, 70), (2, 31, 5), (16, 257, 100), (64, 768, 2), (100, 2047, 65), (257, 64, 33)],
)
def test_against_f64(dtype, m, k, n):
    x, w, b = (torch.randn(s).to(dtype) for s in ((m, k), (n, k), (n,)))
    exact_check(F.linear, x, w, b)
    oxyfuel.reset()
    exact_check(torch.mm, x, w.t().contiguous())
    oxyfuel.reset()
    exact_check(torch.mm, x.t().contiguous().t(), w.t())


@pytest.mark.parametrize("dtype", DTYPES)
def test_views(dtype):
    x, w = torch.randn(3, 40, 101).to(dtype), torch.randn(3, 101, 90).to(dtype)
    exact_check(torch.bmm, x[:, 3:, 1::1], w[:, 1:, 5:])
    oxyfuel.reset()
    exact_check(torch.bmm, x[::2, :9, :-1], w[::2, :-1].mT.contiguous().mT)
    oxyfuel.reset()
    exact_check(torch.matmul, x, w[0])
    oxyfuel.reset()
    exact_check(torch.bmm, x[:1].expand(3, 40, 101), w)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("m", [5, 70])
@pytest.mark.parametrize(
    "epilogue",
    [F.relu, F.gelu, lambda y: F.silu(y) * y[..., :1], lambda y: y.float().square()],
    ids=["relu", "gelu", "gate", "widened"],
)
def test_epilogues(dtype, m, epilogue):
    x, w, b = (torch.randn(s).to(dtype) for s in ((m, 130), (75, 130), (75,)))
    exact_check(lambda x, w, b: epilogue(F.linear(x, w, b)), x, w, b)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(0, 8, 5), (4, 0, 5), (4, 8, 0)])
def test_empty(dtype, shape):
    m, k, n = shape
    x, w = torch.randn(m, k).to(dtype), torch.randn(k, n).to(dtype)
    assert torch.equal(oxyfuel.compile(torch.mm)(x, w), x @ w)


@pytest.mark.parametrize("dtype", DTYPES)
def test_sizes_that_vary(dtype):
    w, b = torch.randn(65, 33).to(dtype), torch.randn(65).to(dtype)
    compiled = oxyfuel.compile(lambda x: F.linear(x, w, b), dynamic=True)
    with torch.no_grad():
        for m in (9, 2, 1, 70, 300, 17):
            x = torch.randn(m, 33).to(dtype)
            torch.testing.assert_close(compiled(x), F.linear(x, w, b), atol=2e-2, rtol=2e-2)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("m", [3, 40])
def test_gradients(dtype, m):
    inputs = [torch.randn(s).to(dtype).requires_grad_() for s in ((m, 50), (66, 50), (66,))]

    def loss(fn):
        return torch.autograd.grad(fn(*inputs).float().square().mean(), inputs)

    def layer(x, w, b):
        return F.gelu(F.linear(x, w, b))

    for got, expected in zip(loss(oxyfuel.compile(layer)), loss(layer), strict=True):
        torch.testing.assert_close(got, expected, atol=2e-2, rtol=2e-2)


def test_autocast():
    model = torch.nn.Sequential(torch.nn.Linear(40, 70), torch.nn.GELU(), torch.nn.Linear(70, 9))
    x = torch.randn(20, 40)

    def fn(x):
        with torch.autocast("cpu", torch.bfloat16):
            return model(x)

    compiled = oxyfuel.compile(fn)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), fn(x), atol=2e-2, rtol=2e-2)
        model[0].weight.mul_(2)
        torch.testing.assert_close(compiled(x), fn(x), atol=2e-2, rtol=2e-2)
    assert oxyfuel.stats()["extern_calls"] == 0
