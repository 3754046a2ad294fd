"""Kernels on buffers larger than the cache: several rows at a time, prefetches ahead, scans,
against eager."""

import pytest
import torch

import oxyfuel

LARGE = 17 << 20  # bytes: stores of so much go past the cache


def compiled(fn):
    return oxyfuel.compile(fn, options={"strict": True})


def close(got, want):
    torch.testing.assert_close(got, want, equal_nan=True)


def close_sums(got, want):
    """Of a few thousand terms, in another order."""
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-3)


def rows_of(dtype, columns, fewest_bytes=LARGE):
    """As many rows as `fewest_bytes` hold, four times a whole number and then one more."""
    rows = fewest_bytes // (columns * dtype.itemsize) // 4 * 4
    torch.manual_seed(0)
    x = torch.randn(rows + 1, columns)
    return (x * 50).to(dtype) if not dtype.is_floating_point else x.to(dtype)


def row_reductions(x):
    y = x * 2
    return y.argmax(-1), y.sum(-1), x.amin(-1), x.argmin(-1)


@pytest.mark.parametrize("dtype", (torch.float32, torch.float64, torch.bfloat16, torch.int32))
@pytest.mark.parametrize("columns", (2048, 4099))
@pytest.mark.parametrize("odd", (0, 1))
def test_rows_side_by_side(dtype, columns, odd):
    x = rows_of(dtype, columns)
    x = x if odd else x[:-1]
    f = compiled(row_reductions)
    for k, (got, want) in enumerate(zip(f(x), row_reductions(x))):
        (close_sums if k == 1 and dtype == torch.float32 else close)(got, want)


def test_extremes_of_rows_side_by_side():
    x = rows_of(torch.float32, 2048)[:-1]
    x[0] = float("-inf")
    x[1, 7] = float("nan")
    x[2, 5] = x[2, 9] = 100.0
    x[3] = 1.0
    f = compiled(lambda x: (x.argmax(-1), x.argmin(-1), x.amax(-1)))
    for got, want in zip(f(x), (x.argmax(-1), x.argmin(-1), x.amax(-1))):
        assert torch.equal(got.nan_to_num(3.25), want.nan_to_num(3.25))


@pytest.mark.parametrize("correction", (0, 1))
def test_variance(correction):
    x = rows_of(torch.float32, 2048)[:-1]
    f = compiled(lambda x: (x * 0.5).var(-1, correction=correction))
    close(f(x), (x * 0.5).var(-1, correction=correction))


@pytest.mark.parametrize("dtype", (torch.float32, torch.float16))
def test_rows_in_several_loops(dtype):
    x = rows_of(dtype, 1024)
    mask = torch.rand(1, 1024) > 0.7
    f = compiled(lambda x, m: torch.softmax(x.masked_fill(m, float("-inf")), -1))
    close(f(x, mask), torch.softmax(x.masked_fill(mask, float("-inf")), -1))


@pytest.mark.parametrize("index", (torch.int64, torch.int32))
@pytest.mark.parametrize("wrapped", (False, True))
def test_rows_at_loaded_places(index, wrapped):
    """The next row is prefetched by its index, also a wrong one, which is an error only where it is
    used."""
    table = rows_of(torch.float32, 200)
    at = torch.randint(-len(table) if wrapped else 0, len(table), (37, 11)).to(index)
    at[-1, -1] = len(table) - 1
    read = (lambda t, i: t[i]) if wrapped else (lambda t, i: torch.nn.functional.embedding(i, t))

    def normed(t, i):
        rows = read(t, i) * 2
        return torch.softmax(rows, -1), torch.nn.functional.layer_norm(rows, (200,))

    f = compiled(normed)
    for got, want in zip(f(table, at), normed(table, at)):
        close_sums(got, want)
    for place in ((0, 0), (5, 3), (-1, -1)):
        wrong = at.clone()
        wrong[place] = len(table)
        with pytest.raises(IndexError):
            normed(table, wrong)
        with pytest.raises(IndexError):
            f(table, wrong)


@pytest.mark.parametrize("size", ((4096, 1500), (3, 1 << 21), (64, 256, 300)))
def test_columns(size):
    torch.manual_seed(0)
    x = torch.randn(size)
    f = compiled(lambda x: ((x * x).sum(-2), x.amax(-2)))
    for got, want in zip(f(x), ((x * x).sum(-2), x.amax(-2))):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("columns", (999, 1000, 1002))
@pytest.mark.parametrize(
    "dtype", (torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.uint8, torch.bool)
)
def test_rows_that_begin_within_a_line(columns, dtype):
    x = rows_of(dtype, columns)
    y, places = x[0].clone(), torch.randint(0, len(x), (len(x),))
    for fn in (
        lambda x, y, i: x * y if x.dtype != torch.bool else x ^ y,
        lambda x, y, i: x[:, 1:] | y[1:] if not x.is_floating_point() else x[:, 1:] - y[1:],
        lambda x, y, i: torch.cat((x[:, :300] * y[:300], x, x.flip(1)), 1),
        lambda x, y, i: torch.index_select(x, 0, i) == y,
        lambda x, y, i: x.float().softmax(-1),
    ):
        close(compiled(fn)(x, y, places), fn(x, y, places))


@pytest.mark.parametrize("dtype", (torch.float64, torch.bfloat16, torch.int16, torch.uint8))
def test_transposed(dtype):
    torch.manual_seed(0)
    x = (torch.randn(5003, 4096 // dtype.itemsize + 3) * 50).to(dtype)
    y = (torch.randn(x.shape[::-1]) * 50).to(dtype)
    f = compiled(lambda x, y: x.t() + y)
    assert torch.equal(f(x, y), x.t() + y)


@pytest.mark.parametrize(
    "size", ((8, 256), (4, 255), (6, 257), (3, 5, 1000), (1, 4096), (2, 513, 3))
)
@pytest.mark.parametrize(
    "dtype",
    (
        torch.float32,
        torch.float64,
        torch.bfloat16,
        torch.int32,
        torch.int64,
        torch.uint8,
        torch.bool,
    ),
)
def test_scans(size, dtype):
    torch.manual_seed(0)
    x = torch.randint(0, 3, size).to(dtype)
    for fn in (
        lambda x: x.cumsum(-1),
        lambda x: (x + x).cumsum(1) + 1,
        lambda x: x.cumprod(-1),
        lambda x: x.cummax(-1)[0],
        lambda x: x.transpose(0, 1).cumsum(0),
    ):
        f = compiled(fn)
        close(f(x), fn(x))
        close(f(x.flip(0)), fn(x.flip(0)))


def test_long_scans():
    x = rows_of(torch.float32, 2048)
    x[1, 100] = float("inf")
    x[1, 700] = float("-inf")
    x[2, 300] = float("nan")
    f = compiled(lambda x: (x + 1).cumsum(-1))
    assert torch.equal(f(x).nan_to_num(3.25), (x + 1).cumsum(-1).nan_to_num(3.25))


@pytest.mark.parametrize(
    "scan", (torch.cumsum, torch.cumprod, torch.cummax, torch.cummin, torch.logcumsumexp)
)
@pytest.mark.parametrize("dtype", (torch.float32, torch.float64))
def test_scans_of_columns(scan, dtype):
    """Rows of no whole number of lines: vectors that stream begin in the midst of a row."""
    torch.manual_seed(0)
    x = torch.randn(1000, 2101 if dtype == torch.float64 else 4203, dtype=dtype)
    if scan == torch.cumprod:
        x = x.sign() * torch.exp2(x.round())
    f = compiled(lambda x: scan(x + x, 0))
    torch.testing.assert_close(f(x), scan(x + x, 0), rtol=1e-5, atol=1e-5, equal_nan=True)


@pytest.mark.parametrize("channels", (16, 48, 64, 100))
def test_permutations(channels):
    torch.manual_seed(0)
    x = torch.randn(12, channels, 97, 65)
    f = compiled(lambda x: (x.permute(0, 2, 3, 1) + 1).contiguous())
    assert torch.equal(f(x), (x.permute(0, 2, 3, 1) + 1).contiguous())


def test_exponentials_of_masked_lanes():
    x = torch.randn(1003) * 60
    x[::3] = float("-inf")
    x[5], x[6], x[7], x[8] = float("nan"), float("inf"), -104.6, -103.9
    f = compiled(lambda x: x.exp())
    close(f(x), x.exp())
    assert torch.equal(f(x) == 0, x.exp() == 0)
