"""Conversions from and to the f8 kinds, alone and between other ops: eager's bits, in kernels."""

import pytest
import torch
import torch.nn.functional as F

import oxyfuel

pytestmark = pytest.mark.usefixtures("fresh")

KINDS = [torch.float8_e4m3fn, torch.float8_e5m2]
OTHERS = [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int32, torch.bool]


def bits(t):
    """NaNs are one: which of them a conversion gives depends on the instructions."""
    if t.element_size() == 1:
        return t.view(torch.uint8)
    return t.nan_to_num(1234.5) if t.is_floating_point() else t


def check(fn, *inputs, extern=0):
    expected, got = fn(*inputs), oxyfuel.compile(fn)(*inputs)
    assert got.dtype == expected.dtype and got.stride() == expected.stride()
    assert torch.equal(bits(got), bits(expected))
    stats = oxyfuel.stats()
    assert (stats["fallbacks"], stats["graph_breaks"]) == (0, 0)
    assert stats["extern_calls"] <= extern


def every(kind):
    return torch.arange(256, dtype=torch.uint8).view(kind)


def edges(kind):
    """What there is, the middles between neighbours, what lies beside them, and random bits."""
    known = every(kind).float()
    known = known[known.isfinite()].sort().values
    middle = ((known[1:].double() + known[:-1].double()) / 2).float()
    up, down = torch.tensor(torch.inf), torch.tensor(-torch.inf)
    special = torch.tensor([torch.inf, -torch.inf, torch.nan, -0.0, 1e-45, 464, 480, 61440, 65536])
    generator = torch.Generator().manual_seed(0)
    drawn = torch.randint(-(2**31), 2**31, (1 << 16,), generator=generator).int().view(torch.float)
    beside = [middle.nextafter(up), middle.nextafter(down)]
    return torch.cat([known, middle, *beside, special, drawn[~drawn.isnan()]])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("other", OTHERS)
def test_from_all_there_are(kind, other):
    x = every(kind)
    if not other.is_floating_point:
        x = x[x.float().isfinite()]
    check(lambda x: x.to(other), x)


@pytest.mark.parametrize("kind", KINDS)
def test_to(kind):
    check(lambda x: x.to(kind), edges(kind))
    check(lambda x: x.to(kind).float() * 2, edges(kind))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("other", OTHERS)
def test_from_other_dtypes(kind, other):
    check(lambda x: x.to(kind), (torch.randn(500) * 100).to(other))


FUNCTIONS = {
    "transposed": lambda q, x: q.t().float() + 1,
    "viewed": lambda q, x: q.view(8, 6).to(torch.bfloat16),
    "sliced": lambda q, x: q[1:, ::2].float() * 2,
    "cloned": lambda q, x: q.clone(),
    "laid out anew": lambda q, x: q.t().contiguous(),
    "as bytes": lambda q, x: q.view(torch.uint8) + 1,
    "of bytes": lambda q, x: (q.view(torch.uint8) ^ 128).view(q.dtype).float(),
    "expanded": lambda q, x: q[:1].expand(6, 8).float() * x,
    "scaled": lambda q, x: (x / x.abs().amax(1, keepdim=True)).to(q.dtype),
    "summed": lambda q, x: q.float().sum(0),
    "empty": lambda q, x: q[:0].float(),
    "of no dimensions": lambda q, x: q[0, 0].float() + 1,
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_between_other_ops(kind, name):
    x = torch.randn(6, 8)
    check(FUNCTIONS[name], x.to(kind), x)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rows", [1, 3, 9])
def test_weights(kind, rows):
    w = torch.randn(24, 40).to(kind)
    for dtype in (torch.float32, torch.bfloat16):
        x = torch.randn(rows, 40).to(dtype)
        got = oxyfuel.compile(lambda x, w: F.linear(x, w.to(x.dtype)))(x, w)
        torch.testing.assert_close(got, F.linear(x, w.to(dtype)), rtol=1e-2, atol=1e-3)
    assert oxyfuel.stats()["fallbacks"] == 0


@pytest.mark.parametrize("kind", KINDS)
def test_what_stays_a_call(kind):
    q = torch.randn(6, 8).to(kind)
    places = torch.tensor([0, 2])
    check(lambda q: torch.cat([q, q]), q, extern=9)
    check(lambda q: q[places].float(), q, extern=9)
    check(lambda q: F.pad(q, (1, 1)).float(), q, extern=9)
    check(lambda q: q.clone().copy_(q.float() * 2), q, extern=9)
