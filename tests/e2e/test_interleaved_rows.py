"""Results whose innermost dimension is shorter than a vector, which lanes step over."""

import pytest
import torch

import oxyfuel

pytestmark = pytest.mark.usefixtures("fresh")

DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.uint8, torch.bool]
MACHINES = [(dtype, {}) for dtype in DTYPES]
MACHINES += [(torch.float32, {"vector_bytes": 32}), (torch.uint8, {"vector_bytes": 32})]
MACHINES += [(torch.float64, {"vector_bytes": 0})]


def check(fn, *inputs, **options):
    compiled = oxyfuel.compile(fn, options=options)
    got, expected = compiled(*inputs), fn(*inputs)
    assert got.stride() == expected.stride()
    torch.testing.assert_close(got, expected, rtol=0, atol=0)
    assert oxyfuel.stats()["fallbacks"] == 0


def numbers(shape, dtype):
    return torch.randint(0, 9, shape).to(dtype)


@pytest.mark.parametrize("dtype, options", MACHINES, ids=str)
@pytest.mark.parametrize("pieces", [2, 3, 8])
def test_pieces(dtype, pieces, options):
    def stacked(*x):
        return torch.stack(x, -1)

    for rows, columns in ((40, 3), (7, 21), (70, 33)):
        check(stacked, *(numbers((rows, columns), dtype) for _ in range(pieces)), **options)
        slices = [numbers((rows, columns + 9), dtype)[:, 3:-6] for _ in range(pieces)]
        check(stacked, *slices, **options)
        check(stacked, *(numbers((columns, rows), dtype).T for _ in range(pieces)), **options)


@pytest.mark.parametrize("dtype, options", MACHINES, ids=str)
@pytest.mark.parametrize("short", [3, 6])
def test_permuted_operands(dtype, short, options):
    for shape in ((30, 7, short), (11, 40, short)):
        x = numbers(shape, dtype)
        for order in ((1, 2, 0), (2, 0, 1), (2, 1, 0)):
            y = numbers([shape[d] for d in order], dtype)
            y = y.permute([order.index(d) for d in range(3)])
            check(lambda x, y: x + y * 2, x, y, **options)
            check(lambda x, y: torch.cat([x, y], 1), x, y, **options)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.uint8], ids=str)
def test_neighbours_that_are_read_and_written(dtype):
    def swapped(x):
        pairs = x.unflatten(-1, (-1, 2)).flip(-1).flatten(-2)
        x.copy_(pairs + x)
        return x

    for columns in (6, 34, 80):
        x = numbers((20, columns), dtype)
        expected, got = x.clone(), x.clone()
        swapped(expected)
        oxyfuel.compile(swapped)(got)
        torch.testing.assert_close(got, expected, rtol=0, atol=0)


def every_other(x):
    out = torch.empty_like(x)
    out[..., 0::2] = x[..., 0::2] * 2
    out[..., 1::2] = x[..., 1::2] + 1
    return out


def turned(x):
    """Pairs of neighbours, rotated: the last of an odd number stays."""
    out = x.clone()
    n = x.shape[-1] // 2 * 2
    out[..., 0:n:2] = x[..., 1:n:2]
    out[..., 1:n:2] = x[..., 0:n:2]
    return out


def every_third(x):
    out = torch.zeros_like(x)
    out[..., 2::3] = x[..., : out[..., 2::3].shape[-1]]
    return out + x[..., :1]


def repeated(x):
    return x.repeat_interleave(2, -1)[..., 1:] * 2


def in_both(x):
    out = torch.zeros(x.shape[0], 2 * x.shape[1], 2 * x.shape[2], dtype=x.dtype)
    out[:, ::2, ::2] = x
    out[:, 1::2, 1::2] = x.flip(1)
    return out


def summed(x):
    out = x.clone()
    out[..., 1::2] += 2
    return out.amax(-1) + out.long().sum(-1)


def where_largest(x):
    return turned(x).argmax(-1)


PLACES = [every_other, turned, every_third, repeated, in_both, summed, where_largest]


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("dtype, options", MACHINES, ids=str)
@pytest.mark.parametrize("fn", PLACES)
def test_even_and_odd_places(fn, dtype, options, dynamic):
    if dtype == torch.bool:
        run = lambda x: fn(x.int())  # noqa: E731
    else:
        run = fn
    compiled = oxyfuel.compile(run, dynamic=dynamic, options=options)
    for shape in [(2, 5, 66), (2, 5, 33), (3, 4, 7), (1, 3, 128), (2, 2, 2), (2, 2, 3)]:
        x = numbers(shape, dtype)
        got, expected = compiled(x), run(x)
        assert got.stride() == expected.stride()
        torch.testing.assert_close(got, expected, rtol=0, atol=0)
    assert oxyfuel.stats()["fallbacks"] == 0
