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


def longer_by_one(x):
    return F.pad(x, (0, 1)).flatten(-2)[..., : x.shape[-1] * x.shape[-2]].view(x.shape)


BY_SIZES = {
    "shifted": shifted,
    "rolled": lambda x: torch.roll(x, (3, -2), (-2, -1)) + x,
    "rows_longer_by_one": lambda x: longer_by_one(x) + x,
    "interleaved": lambda x: x.transpose(-1, -2).reshape(x.shape) + x,
    "repeated": lambda x: x.repeat(1, 2, 3)[:, 1:, 2:] + 1,
    "circular": lambda x: F.pad(x.float(), (2, 3), mode="circular") * 2,
    "positions": lambda x: (
        torch.arange(x.numel(), device=x.device).view(x.shape) // x.shape[-2] % x.shape[-1]
    ),
    "looked_up": lambda x: x.flatten()[torch.arange(x.numel()) * 7 % x.numel()].view(x.shape) + x,
    "largest": lambda x: x.transpose(-1, -2).reshape(x.shape).amax(-1),
    "where_largest": lambda x: longer_by_one(x).argmax(-1),
    "sums_of_rolled": lambda x: torch.roll(x, 3, -1).float().sum(-1),
    "softmax_of_cut": lambda x: longer_by_one(x).float().softmax(-1),
    "behind_two": lambda x: torch.roll(x[..., 2:].repeat(1, 1, 3), 4, -1) * 2,
    "in_three_rows": lambda x: x.flatten()[x.shape[-1] // 2 :].repeat(3).view(3, -1).amax(0),
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
        exact = "softmax" not in name
        torch.testing.assert_close(compiled(x), fn(x), **({"rtol": 0, "atol": 0} if exact else {}))
    assert oxyfuel.stats()["graphs"] <= 2 and oxyfuel.stats()["fallbacks"] == 0


@pytest.mark.parametrize("vector_bytes", [None, 32, 0])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("columns", [63, 64, 65, 150])
def test_rows_cut_anew(columns, dtype, vector_bytes):
    """Strips of one quotient, which begin and end anywhere in a row."""

    def fn(x):
        longer = longer_by_one(x.float() if x.dtype == torch.bool else x)
        flat = longer.flatten()[7:-11]
        rows = flat[: flat.numel() // 99 * 99].view(-1, 99)
        return longer * 2, rows.amax(-1), rows.float().softmax(-1), rows.argmin(-1)

    compiled = oxyfuel.compile(
        fn, options={} if vector_bytes is None else {"vector_bytes": vector_bytes}
    )
    x = torch.randint(-9, 9, (3, 17, columns)).to(dtype)
    for got, expected in zip(compiled(x), fn(x), strict=True):
        torch.testing.assert_close(got, expected)
    assert oxyfuel.stats()["fallbacks"] == 0


def test_nothing_to_divide_by():
    compiled = oxyfuel.compile(BY_SIZES["behind_two"], dynamic=True)
    for columns in (9, 3, 2, 40, 2):
        x = torch.randn(2, 5, columns)
        torch.testing.assert_close(compiled(x), BY_SIZES["behind_two"](x), rtol=0, atol=0)


@pytest.mark.parametrize("flattened", [True, False])
def test_gradients_by_sizes(flattened):
    fn = longer_by_one if flattened else lambda x: torch.roll(x, (5, 2), (-1, -2))
    compiled = oxyfuel.compile(fn, dynamic=True)
    for shape in [(2, 5, 9), (2, 70, 31), (1, 4, 80)]:
        x, weight = torch.randn(shape), torch.randn(shape)
        grads = []
        for f in (compiled, fn):
            leaf = x.clone().requires_grad_()
            (f(leaf) * weight).sum().backward()
            grads.append(leaf.grad)
        torch.testing.assert_close(*grads, rtol=0, atol=0)
