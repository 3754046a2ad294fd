"""Linear layers of int8 and int4 weights: in one graph, no farther from f64 than eager."""

import pytest
import torch
import torch.nn.functional as F

import oxyfuel

pytestmark = pytest.mark.usefixtures("fresh")

DTYPES = [torch.float32, torch.bfloat16, torch.float16]


def check(fn, exact, *inputs):
    compiled = oxyfuel.compile(fn)
    with torch.no_grad():
        expected, got = fn(*inputs), compiled(*inputs)
    assert got.dtype == expected.dtype and got.stride() == expected.stride()
    off = [(x.double() - exact).abs() for x in (got, expected)]
    assert float(off[0].mean()) <= 1.1 * float(off[1].mean()) + 1e-6
    assert float(off[0].max()) <= 1.5 * float(off[1].max()) + 1e-5
    stats = oxyfuel.stats()
    assert stats["graphs"] == 1 and stats["fallbacks"] == 0 and stats["graph_breaks"] == 0


def layer(dtype, m, k, n):
    w = torch.randint(-128, 128, (n, k), dtype=torch.int8)
    return torch.randn(m, k).to(dtype), w, (torch.rand(n) * 0.01).to(dtype)


def exact(x, w, scales):
    return x.double() @ (w.double() * scales.double()[:, None]).T


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "m,k,n", [(1, 64, 96), (3, 128, 32), (8, 96, 64), (30, 320, 96), (0, 32, 32)]
)
def test_int8_pack(dtype, m, k, n):  # (other sizes crash eager in bf16)
    inputs = layer(dtype, m, k, n)
    if m == 0:
        assert oxyfuel.compile(torch._weight_int8pack_mm)(*inputs).shape == (m, n)
        return
    check(torch._weight_int8pack_mm, exact(*inputs), *inputs)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("m", [1, 2, 4, 7, 9, 40])
@pytest.mark.parametrize("k", [96, 100])
def test_scaled_behind_the_product(dtype, m, k):
    inputs = layer(dtype, m, k, 50)

    def fn(x, w, scales):
        return F.gelu(F.linear(x, w.to(x.dtype)) * scales)

    check(fn, F.gelu(exact(*inputs)), *inputs)


@pytest.mark.parametrize("narrow", [torch.int8, torch.uint8, torch.bfloat16, torch.bool])
@pytest.mark.parametrize("m", [1, 3, 5])
def test_widened_operands(narrow, m):
    """Of a few rows: batches, biases, operands that others read too or that lie as rows."""
    x, bias = torch.randn(2, m, 40), torch.randn(24)
    w = torch.randint(0, 2 if narrow is torch.bool else 100, (2, 24, 40)).to(narrow)

    def fn(x, w, bias):
        wide = w.float()
        shared = w[1].float() * 2
        return (
            torch.bmm(x, wide.transpose(1, 2)),
            torch.addmm(bias, x[0], w[0].t().float()),
            torch.mm(x[0, :, :24], w[0].float() + 1),
            torch.mm(x[1], shared.t()) + shared.sum(),
        )

    compiled = oxyfuel.compile(fn)
    expected, got = fn(x, w, bias), compiled(x, w, bias)
    torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-3)
    empty = compiled(x[:, :0], w, bias)
    assert [tuple(o.shape) for o in empty] == [(2, 0, 24), (0, 24), (0, 40), (0, 24)]
    assert oxyfuel.stats()["fallbacks"] == 0


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("m", [1, 9, 40])
def test_scaled_in_groups(dtype, m):
    x, w, _ = layer(dtype, m, 96, 50)
    scales, zeros = (torch.rand(50, 3) * 0.01).to(dtype), torch.randint(-5, 5, (50, 3)).to(dtype)

    def dequantised(w, scales, zeros):
        groups = w.view(50, 3, 32).to(scales.dtype)
        return ((groups - zeros[..., None]) * scales[..., None]).view(50, 96)

    def fn(x, w, scales, zeros):
        return F.linear(x, dequantised(w, scales, zeros))

    wide = dequantised(w, scales.double(), zeros.double())
    check(fn, x.double() @ wide.T, x, w, scales, zeros)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("m", [1, 20])
def test_int4_pack(dtype, m):
    n, k, group = 64, 128, 32
    w = torch.randint(0, 16, (n, k), dtype=torch.int32)
    packed = torch._convert_weight_to_int4pack_for_cpu(w, 2)
    scales = (torch.rand(k // group, n, 2) * 0.1).to(dtype)
    x = torch.randn(m, k).to(dtype)

    def fn(x, packed, scales):
        return F.relu(torch._weight_int4pack_mm_for_cpu(x, packed, group, scales))

    s, z = scales.double().unbind(-1)
    wide = (w.double().view(n, -1, group) - 8) * s.T[..., None] + z.T[..., None]
    check(fn, F.relu(x.double() @ wide.view(n, k).T), x, packed, scales)


@pytest.mark.parametrize("half", [torch.bfloat16, torch.float16])
def test_small_integers_are_not_rounded(half):
    """Of bytes as halves what stays exact has no rounding; what does not is rounded as eager's."""
    a = torch.arange(-128, 128, dtype=torch.int8).to(torch.int8)[:, None]
    b, c = a.t(), torch.arange(256, dtype=torch.uint8)

    def fn(a, b, c):
        x, y, z = a.to(half), b.to(half), c.to(half)
        return (
            (x - y) * 0.5,
            (x + y + z) * 3,
            x * y - y,
            (x * 2 - z).abs().clamp(max=200) + 0.25,
            -x * -x,
            (x > y).to(half) * z - 1,
            (x * 1.5 - y) * 2,
        )

    expected, got = fn(a, b, c), oxyfuel.compile(fn)(a, b, c)
    assert all(torch.equal(x, y) for x, y in zip(got, expected, strict=True))
