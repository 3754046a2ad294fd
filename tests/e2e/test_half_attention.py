"""Attention in bfloat16 and float16 by our gemms: no farther from attention in f64 than eager."""

import pytest
import torch
import torch.nn.functional as F

import oxyfuel

pytestmark = pytest.mark.usefixtures("fresh")

DTYPES = [torch.bfloat16, torch.float16]


def operands(dtype, batch, heads, length, size, keys=None):
    """Queries, keys and values as a projection's view has them: heads behind positions."""
    lengths = (length, keys or length, keys or length)
    return [torch.randn(batch, n, heads, size).to(dtype).transpose(1, 2) for n in lengths]


def check(fn, q, k, v, mask=None):
    compiled = oxyfuel.compile(fn)
    with torch.no_grad():
        expected, got = fn(q, k, v, mask), compiled(q, k, v, mask)
        exact = fn(q.double(), k.double(), v.double(), None if mask is None else mask.double())
    assert got.dtype == expected.dtype and got.stride() == expected.stride()
    assert torch.equal(got.isnan(), expected.isnan())
    off = [(x.double() - exact).nan_to_num().abs() for x in (got, expected)]
    assert float(off[0].mean()) <= 1.05 * float(off[1].mean()) + 1e-9
    assert float(off[0].max()) <= 1.5 * float(off[1].max()) + 1e-9
    assert oxyfuel.stats()["extern_calls"] == 0
    assert oxyfuel.stats()["fallbacks"] == 0


def plain(q, k, v, mask):
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "batch,heads,length,size", [(1, 12, 128, 64), (3, 2, 37, 24), (2, 3, 4, 7)]
)
@pytest.mark.parametrize("causal", [False, True])
def test_attention(dtype, batch, heads, length, size, causal):
    def fn(q, k, v, mask):
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=0.3)

    check(fn, *operands(dtype, batch, heads, length, size))


@pytest.mark.parametrize("dtype", DTYPES)
def test_keys_of_another_length(dtype):
    check(plain, *operands(dtype, 2, 3, 20, 16, keys=33))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(2, 1, 30, 30), (30, 30), (2, 3, 1, 30)])
def test_masks(dtype, shape):
    mask = torch.randn(shape).to(dtype)
    mask[..., 7:9] = -float("inf")
    if mask.shape[-2] > 1:
        mask[..., 3, :] = -float("inf")  # a row that sees nothing
    check(plain, *operands(dtype, 2, 3, 30, 16), mask)


@pytest.mark.parametrize("dtype", DTYPES)
def test_boolean_mask(dtype):
    check(lambda q, k, v, _: plain(q, k, v, seen), *operands(dtype, 1, 3, 30, 16))


seen = torch.ones(30, 30, dtype=torch.bool).tril()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("length", [1, 2, 3])
def test_few_queries(dtype, length):
    check(plain, *operands(dtype, 2, 4, length, 32, keys=50))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("length", [2, 20])
def test_special_values(dtype, length):
    q, k, v = operands(dtype, 1, 2, length, 16, keys=30)  # of fewer keys eager loses NaN
    q[0, 0, 1, 3], k[0, 1, 1, 2], v[0, 1, 0, 0] = float("nan"), -3.0, float("inf")
    check(plain, q, k, v)


@pytest.mark.parametrize("dtype", DTYPES)
def test_written_out(dtype):
    def fn(q, k, v):
        return (q @ k.mT * 0.25).softmax(-1) @ v

    q, k, v = operands(dtype, 2, 3, 40, 16)
    compiled = oxyfuel.compile(fn)
    with torch.no_grad():
        torch.testing.assert_close(compiled(q, k, v), fn(q, k, v), atol=2e-2, rtol=2e-2)


@pytest.mark.parametrize("dtype", DTYPES)
def test_training(dtype):
    inputs = [x.detach().requires_grad_() for x in operands(dtype, 1, 2, 24, 16)]
    compiled = oxyfuel.compile(lambda q, k, v: plain(q, k, v, None))
    expected = torch.autograd.grad(plain(*inputs, None).float().square().sum(), inputs)
    got = torch.autograd.grad(compiled(*inputs).float().square().sum(), inputs)
    for a, b in zip(got, expected, strict=True):
        torch.testing.assert_close(a, b, atol=2e-2, rtol=2e-2)
