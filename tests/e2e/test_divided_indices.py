"""Loads at places with quotients and remainders, which are computed for all lanes at once."""

import pytest
import torch
import torch.nn.functional as F

import oxyfuel

pytestmark = pytest.mark.usefixtures("fresh")

DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.int32,
          torch.uint8, torch.bool]  # fmt: skip


def check(fn, *inputs, **options):
    compiled = oxyfuel.compile(fn, options=options)
    got, expected = compiled(*inputs), fn(*inputs)
    assert got.dtype == expected.dtype and got.stride() == expected.stride()
    torch.testing.assert_close(got, expected)
    assert oxyfuel.stats()["fallbacks"] == 0


def shifted(x):
    """Scores by distance as scores by place (Transformer-XL)."""
    *batch, rows, columns = x.shape
    padded = F.pad(x, (1, 0)).view(*batch, columns + 1, rows)
    return padded[..., 1:, :].reshape(x.shape) + x


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    "shape", [(2, 3, 40, 79), (1, 1, 7, 13), (3, 100, 33), (5, 1, 64)], ids=str
)
def test_shifted(dtype, shape):
    check(shifted, torch.randint(-9, 9, shape).to(dtype))


@pytest.mark.parametrize("vector_bytes", [0, 32])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_shifted_on_other_machines(dtype, vector_bytes):
    check(shifted, torch.randn(2, 3, 40, 79).to(dtype), vector_bytes=vector_bytes)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_gradients(dtype):
    x = torch.randn(2, 3, 17, 33).to(dtype)
    weight = torch.randn(2, 3, 17, 33).to(dtype)

    def run(fn):
        leaf = x.clone().requires_grad_()
        (fn(leaf) * weight).sum().backward()
        return leaf.grad

    torch.testing.assert_close(run(oxyfuel.compile(shifted)), run(shifted))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_views_that_cut_rows(dtype):
    def fn(x):
        y = torch.roll(x, (3, 5), (0, 1)) if x.dtype != torch.bool else ~x
        return y.reshape(-1)[5:-7].reshape(-1, 12)[:, 1:].repeat_interleave(3, 1)

    check(fn, torch.randint(-9, 9, (24, 35)).to(dtype))


def test_positions():
    def fn(n):
        places = torch.arange(n)
        return places // 7 * 3 + places % 7, (places % 11 > places // 13).float() + places / 3

    compiled = oxyfuel.compile(fn)
    for n in (1, 15, 16, 100, 1000):
        for got, expected in zip(compiled(n), fn(n), strict=True):
            torch.testing.assert_close(got, expected, rtol=0, atol=0)


def test_sizes_that_vary():
    compiled = oxyfuel.compile(shifted, dynamic=True)
    for shape in [(2, 5, 9), (2, 16, 31), (3, 64, 127), (2, 100, 40)]:
        x = torch.randn(shape)
        torch.testing.assert_close(compiled(x), shifted(x), rtol=0, atol=0)


BY_SIZES = {
    "shifted": shifted,
    "rolled": lambda x: torch.roll(x, (3, -2), (-2, -1)) + x,
    "rows_longer_by_one": lambda x: (
        F.pad(x, (0, 1)).flatten(-2)[..., : x.shape[-1] * x.shape[-2]].view(x.shape) + x
    ),
    "interleaved": lambda x: x.transpose(-1, -2).reshape(x.shape) + x,
    "repeated": lambda x: x.repeat(1, 2, 3)[:, 1:, 2:] + 1,
    "circular": lambda x: F.pad(x.float(), (2, 3), mode="circular") * 2,
    "positions": lambda x: (
        torch.arange(x.numel(), device=x.device).view(x.shape) // x.shape[-2] % x.shape[-1]
    ),
    "looked_up": lambda x: x.flatten()[torch.arange(x.numel()) * 7 % x.numel()].view(x.shape) + x,
    "largest": lambda x: x.transpose(-1, -2).reshape(x.shape).amax(-1),
}


@pytest.mark.parametrize("vector_bytes", [None, 32])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", BY_SIZES)
def test_quotients_by_sizes(name, dtype, vector_bytes):
    options = {} if vector_bytes is None else {"vector_bytes": vector_bytes}
    fn = BY_SIZES[name]
    if dtype == torch.bool:
        fn = lambda x: BY_SIZES[name](x.float())  # noqa: E731
    compiled = oxyfuel.compile(fn, dynamic=True, options=options)
    for shape in [(2, 5, 9), (2, 16, 31), (3, 33, 64), (2, 100, 40), (4, 7, 70)]:
        x = torch.randint(-9, 9, shape).to(dtype)
        torch.testing.assert_close(compiled(x), fn(x), rtol=0, atol=0)
    assert oxyfuel.stats()["graphs"] <= 2 and oxyfuel.stats()["fallbacks"] == 0
