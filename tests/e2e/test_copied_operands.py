"""Gemms whose operands are copied for kernels of our own (passes/copy_operands) against eager."""

import pytest
import torch

import oxyfuel

STRICT = {"strict": True}
TOLERANCE = {
    torch.float64: {"rtol": 1e-10, "atol": 1e-10},
    torch.float32: {"rtol": 2e-5, "atol": 2e-4},
    torch.bfloat16: {"rtol": 2e-2, "atol": 2e-1},
    torch.float16: {"rtol": 4e-3, "atol": 4e-2},
}


def compare(f, *inputs, calls=None):
    """The compiled result against eager's; `calls`: of libraries, where it is told."""
    oxyfuel.reset()
    with torch.no_grad():
        result, expected = oxyfuel.compile(f, options=STRICT)(*inputs), f(*inputs)
    torch.testing.assert_close(result, expected, **TOLERANCE[expected.dtype])
    assert result.stride() == expected.stride()
    if calls is not None:
        assert oxyfuel.stats()["extern_calls"] == calls


# calls: of the library in f32, which takes less than our kernels for few rows or columns.
@pytest.mark.parametrize("dtype", TOLERANCE, ids=lambda d: str(d).removeprefix("torch."))
@pytest.mark.parametrize(
    "m, k, n, calls",
    [
        (70, 64, 64, 0),
        (48, 64, 64, 1),
        (5, 130, 70, 1),
        (64, 3, 31, 0),
        (66, 17, 100, 0),
        (50, 20, 48, 1),
    ],
)
def test_gradients_of_a_layer(dtype, m, k, n, calls):
    g, x = torch.randn(k, m).to(dtype), torch.randn(k, n).to(dtype)
    known = calls if dtype == torch.float32 else None
    compare(lambda g, x: g.t() @ x, g, x, calls=known)
    compare(lambda g, x: torch.addmm(x[0], g.t(), x), g, x)
    compare(lambda g, x: (g * 2).t() @ x.relu(), g, x, calls=0 if known == 0 else None)


@pytest.mark.parametrize("batch", [1, 3])
def test_batches(batch):
    p, q = torch.randn(batch, 20, 120), torch.randn(batch, 20, 70)
    compare(lambda p, q: torch.bmm(p.mT, q), p, q, calls=0)
    compare(lambda p, q: torch.bmm(p[:, ::2].mT, q[:, ::2]), p, q, calls=0)
    compare(lambda p, q: torch.bmm(p.mT.expand(3, 120, 20), q), p[:1], q.expand(3, 20, 70))


def test_gaps():
    x = torch.randn(40, 96)
    w = torch.randn(96, 80, 3)
    compare(lambda x, w: x @ w[..., 1], x, w, calls=0)
    compare(lambda x, w: x[:, ::2] @ w[::2, :, 0], x, w, calls=0)
    compare(lambda x, w: x[::2].t() @ w[:20, :, 2], x, w, calls=0)
    compare(lambda x, w: x.t()[:, 7:19] @ w[:12, :, 2], x, w, calls=0)


def test_one_copy_for_two_gemms():
    g, x = torch.randn(64, 72), torch.randn(64, 70)
    compare(lambda g, x: (g.t() @ x) + (g.t() @ (x * x)), g, x, calls=0)


@pytest.mark.parametrize("sizes", [(0, 8, 40), (8, 0, 40), (8, 8, 0)])
def test_empty(sizes):
    m, k, n = sizes
    compare(lambda g, x: g.t() @ x, torch.randn(k, m), torch.randn(k, n))


def test_sizes_that_vary():
    f = lambda g, x: g.t() @ x
    compiled = oxyfuel.compile(f, options=STRICT)
    with torch.no_grad():
        for k in (48, 7, 100, 2, 33):
            g, x = torch.randn(k, 40), torch.randn(k, 64)
            torch.testing.assert_close(compiled(g, x), f(g, x), rtol=2e-5, atol=2e-4)
    assert oxyfuel.stats()["recompiles"] == 1


def test_an_operand_that_is_written_later():
    def f(g, x):
        out = g.t() @ x
        g.zero_()
        return out + g.sum()

    g, x = torch.randn(64, 48), torch.randn(64, 40)
    given = g.clone()
    with torch.no_grad():
        result = oxyfuel.compile(f, options=STRICT)(given, x)
        torch.testing.assert_close(result, f(g, x), rtol=2e-5, atol=2e-4)
    assert given.eq(0).all()
