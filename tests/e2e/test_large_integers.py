"""Integers of all 64 bits: division by numbers, which goes by floats, and the ends of the range."""

import operator

import pytest
import torch

import oxyfuel

pytestmark = pytest.mark.usefixtures("strict_without_grad")

DIVISORS = (1, 2, 3, -3, 7, -7, 10, 64, 127, -128, 2**15 - 1, -(2**15), 2**29 + 1, 2**31 - 1,
            -(2**31), 2**52, 2**53 + 1, 2**62 + 3, -(2**63))  # fmt: skip
PROGRAMS = {
    "remainder": lambda x, d: torch.remainder(x, d),
    "fmod": lambda x, d: torch.fmod(x, d),
    "floor_divide": lambda x, d: x // d,
    "trunc": lambda x, d: torch.div(x, d, rounding_mode="trunc"),
}


def numbers(dtype):
    """The ends of the range, what lies around powers of two, and drawn ones; an odd count."""
    info = torch.iinfo(dtype)
    powers = [s * 2**k + e for k in range(63) for e in (-1, 0, 1) for s in (-1, 1)]
    edge = [x for x in (*powers, info.min, info.max) if info.min <= x <= info.max]
    small = torch.randint(-100, 100, (97,)).clamp(info.min, info.max)
    wide = torch.randint(info.min, info.max, (301,))
    return torch.cat([torch.tensor(edge), small, wide]).to(dtype)


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize(
    "dtype", [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8], ids=str
)
def test_division_by_numbers(name, dtype):
    x, info = numbers(dtype), torch.iinfo(dtype)
    for divisor in DIVISORS:
        if not info.min <= divisor <= info.max:
            continue
        compiled = oxyfuel.compile(lambda x, d=divisor: PROGRAMS[name](x, d))
        for given in (x, x[:5], x[3::2]):
            assert torch.equal(compiled(given), PROGRAMS[name](given, divisor)), divisor


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize(
    "dtype", [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8], ids=str
)
def test_division_by_tensors(name, dtype):
    compiled = oxyfuel.compile(PROGRAMS[name])
    x = numbers(dtype)
    small = x.clamp(max=99) if dtype == torch.uint8 else x.clamp(-99, 99)
    for a, b in ((x, x.roll(7)), (x, small.roll(3)), (small, small.roll(1)), (x[3::2], x[:-3:2])):
        refused = (b == 0) | ((b == -1) & (a == torch.iinfo(dtype).min))
        b = torch.where(refused, 3, b)
        assert torch.equal(compiled(a, b), PROGRAMS[name](a, b))
    assert oxyfuel.stats()["extern_calls"] == 0


ENDS = (2**63 - 1, -(2**63), 2**63 - 2, -(2**63) + 1, 2**62, -(2**62), 2**62 - 1, -(2**62) - 1)
WITH_A_NUMBER = {
    "add": lambda x, n: x + n,
    "mul": lambda x, n: x * n,
    "compare": lambda x, n: (x < n, x == n),
    "full": lambda x, n: torch.full((3,), n, dtype=torch.int64) ^ x[:3],
    "masked_fill": lambda x, n: x.masked_fill(x > 2, n),
    "where": lambda x, n: torch.where(x > 2, x, n),
    "clamp": lambda x, n: x.clamp(max=n),
    "tensor": lambda x, n: torch.tensor(n) + x,
    "float": lambda x, n: x.double() + n,
    "float_fill": lambda x, n: x.float().masked_fill(x > 2, n),
    "constant": lambda x, n: torch.full((2,), n).double() + x[:2],
    "amin": lambda x, n: x.masked_fill(x > 2, n).amin(),
}


@pytest.mark.parametrize("name", WITH_A_NUMBER)
def test_ends_of_int64(name):
    x = torch.tensor([-5, 1, 2, 3, 2**62, 2**63 - 1, -(2**63)])
    for n in ENDS:
        expected = WITH_A_NUMBER[name](x, n)
        actual = oxyfuel.compile(lambda x, n=n: WITH_A_NUMBER[name](x, n))(x)
        torch.testing.assert_close(actual, expected, rtol=0, atol=0)


@pytest.mark.parametrize("vector_bytes", [0, 32, 64])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_places_beside_numbers_that_i32_has_not(dtype, vector_bytes):
    ends = [2**31 - 2, 2**31 - 1, 2**31, 2**40, 2**63 - 1]
    numbers = torch.tensor([0, 3, 16, 17, -1, *ends, *(-n for n in ends), -(2**63)])
    compare = (operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne)

    def masks(x, numbers):
        places = torch.arange(x.shape[1])
        rows = numbers[:, None]
        return [x * f(a, b) for f in compare for a, b in ((places, rows), (rows, places * 2 - 3))]

    f = oxyfuel.compile(masks, options={"strict": True, "vector_bytes": vector_bytes})
    for columns in (17, 40):
        x = torch.randn(len(numbers), columns).to(dtype)
        for a, b in zip(f(x, numbers), masks(x, numbers), strict=True):
            assert torch.equal(a, b)


@pytest.mark.parametrize("dtype", [torch.int64, torch.float64, torch.float32])
@pytest.mark.parametrize("start", [2**62 - 3, 2**62, 2**53 + 1, -(2**53) - 3, 2**53 - 2])
def test_ranges(start, dtype):
    """Eager counts the elements of floats in doubles."""
    for count in (0, 1, 3):
        for step in (1, 2):

            def f(x, count=count, step=step):
                return torch.arange(start, start + count, step, dtype=dtype) + x

            x = torch.zeros((), dtype=dtype)
            expected, got = f(x), oxyfuel.compile(f)(x)
            assert torch.equal(got, expected) and got.dtype == expected.dtype
