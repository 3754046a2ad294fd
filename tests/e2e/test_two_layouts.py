"""Kernels that write in two layouts: one of them through squares on the stack."""

import pytest
import torch
import torch.nn.functional as F

import oxyfuel

pytestmark = pytest.mark.usefixtures("fresh")

DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32,
          torch.int16, torch.uint8, torch.bool]  # fmt: skip
SIZES = [
    (2, 16, 64, 64),
    (1, 64, 65, 63),
    (3, 70, 9, 11),
    (1, 129, 1, 130),
    (2, 8, 3, 3),
    (0, 8, 9, 9),
]


def drawn(size, dtype):
    return torch.randint(-40, 40, size).to(dtype)


def check(fn, *inputs, **options):
    compiled = oxyfuel.compile(fn, options=options)
    for got, expected in zip(compiled(*inputs), fn(*inputs), strict=True):
        assert got.dtype == expected.dtype and got.stride() == expected.stride()
        torch.testing.assert_close(got, expected, equal_nan=True)
    assert oxyfuel.stats()["fallbacks"] == 0


def both(x):
    y = x + x
    return y.contiguous(), y.contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("last", [False, True])
def test_both(size, dtype, last):
    x = drawn(size, dtype)
    check(both, x.to(memory_format=torch.channels_last) if last else x)


@pytest.mark.parametrize("vector_bytes", [0, 32])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.uint8])
@pytest.mark.parametrize("size", [(2, 16, 64, 64), (3, 70, 9, 11)], ids=str)
def test_other_machines(size, dtype, vector_bytes):
    check(both, drawn(size, dtype), vector_bytes=vector_bytes)


@pytest.mark.parametrize("rows,columns", [(64, 64), (200, 130), (16, 1000), (1000, 17), (65, 3)])
def test_matrices(rows, columns):
    def fn(x, y):
        z = torch.sin(x) + y.T
        return z, (z * 2).T.contiguous(), (z > 0).T.contiguous(), z.to(torch.float64).T.contiguous()

    check(fn, torch.randn(rows, columns), torch.randn(columns, rows))


def test_part_of_a_tensor():
    def fn(x, out):
        out[:, 3:19, 1:, :] = x
        return out, x.contiguous(memory_format=torch.channels_last) * 2

    def run(f):
        out = torch.zeros(2, 24, 33, 40)
        return f(x, out), out

    x = torch.randn(2, 16, 32, 40)
    (got, doubled), written = run(oxyfuel.compile(fn))
    (expected, two), _ = run(fn)
    torch.testing.assert_close((got, written, doubled), (expected, expected, two), rtol=0, atol=0)
    assert doubled.stride() == two.stride()


def test_sizes_that_vary():
    compiled = oxyfuel.compile(both, dynamic=True)
    for size in [(2, 16, 20, 30), (3, 40, 7, 65), (1, 5, 64, 3), (2, 130, 70, 2)]:
        x = torch.randn(size)
        torch.testing.assert_close(compiled(x), both(x), rtol=0, atol=0)


def test_a_pool_behind_both():
    def fn(x):
        y = F.relu(x)
        pooled, places = F.max_pool2d(y, 2, return_indices=True)
        last = torch.channels_last
        return y.contiguous(), pooled.contiguous(memory_format=last), places.contiguous(), pooled

    check(fn, torch.randn(2, 32, 48, 50).to(memory_format=torch.channels_last))
    check(fn, torch.randn(2, 32, 48, 50))


@pytest.mark.parametrize("channels", [16, 32, 40])
def test_shortcuts_between_convolutions(channels):
    """The sum with a shortcut lies as the next convolution reads it."""
    draw = lambda *s: torch.randn(*s) / 12
    weights = [draw(channels, channels, 3, 3) for _ in range(3)]

    def fn(x, a, b, c):
        x = F.relu(x * 2)
        y = F.relu(x + F.conv2d(x, a, padding=1))
        z = torch.where(y > 1, y, x - F.conv2d(y, b, padding=1))
        return F.conv2d(z, c, padding=1) + x, y, z.mean((2, 3))

    compiled = oxyfuel.compile(fn)
    for x in (torch.randn(2, channels, 20, 24), torch.randn(2, channels, 24, 20).mT):
        for got, expected in zip(compiled(x, *weights), fn(x, *weights)):
            assert got.stride() == expected.stride()
            torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-4)
