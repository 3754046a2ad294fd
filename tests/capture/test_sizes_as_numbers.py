"""What Python and torch compute of sizes: one capture for all of them, with eager's values, dtypes
and strides."""

from __future__ import annotations

import collections
import copy
import itertools
import math
import operator
import random

import pytest
import torch
import torch.nn.functional as F

import oxyfuel

R = torch.randn
SIZES = (5, 9, 14, 33, 7, 20)


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    monkeypatch.setenv("OXYFUEL_STRICT", "1")
    oxyfuel.reset()
    with torch.no_grad():
        yield


def same(actual, expected):
    assert type(actual) is type(expected), (actual, expected)
    if isinstance(expected, torch.Tensor):
        torch.testing.assert_close(actual, expected, rtol=0, atol=0, equal_nan=True)
        assert actual.stride() == expected.stride()
    elif isinstance(expected, (tuple, list)):
        assert len(actual) == len(expected)
        for a, e in zip(actual, expected, strict=True):
            same(a, e)
    else:
        assert actual == expected


def served(program, calls, recompiles=1):
    compiled = oxyfuel.compile(program)
    for args in calls:
        same(compiled(*args), program(*args))
    stats = oxyfuel.stats()
    assert stats["recompiles"] <= recompiles, stats
    assert stats["graph_breaks"] == stats["static_captures"] == stats["fallbacks"] == 0, stats
    assert stats["layout_copies"] == 0, stats


# ---- ints

OF_SIZE = {
    "shifts": lambda n: (n >> 1, n << 3, -n >> 2, (n - 7) >> 1, n >> 0),
    "low_bits": lambda n: (n & 1, n & 7, 15 & n, -n & 3),
    "cleared_bits": lambda n: (n & ~7, ~3 & n, -n & ~15, n & -1),
    "as_an_int": lambda n: (
        operator.index(n),
        n.__index__(),
        n.__int__(),
        n.real,
        n.imag,
        n.numerator,
        n.denominator,
        n.conjugate(),
        n.as_integer_ratio(),
        n.__floor__(),
        n is n,
    ),
    "copies": lambda n: (copy.deepcopy(n), copy.deepcopy([n, (n, n + 1)])),
    "shapes": lambda n: (
        torch.broadcast_shapes((n, 1), (3,)),
        torch.broadcast_shapes(n, (2, 1), [n]),
    ),
    "sums_of_ranges": lambda n: (
        sum(range(n)),
        sum(range(3, n, 2)),
        sum(range(n, 0, -3)),
        sum(range(n, 2)),
        sum(range(0, 100, n)),
    ),
    "in_ranges": lambda n: (
        3 in range(n),
        n in range(2, 100),
        n not in range(-n, 0),
        n in range(n),
    ),
    "set_bits": lambda n: (n | 1, 7 | n, -n | 3, n ^ 1, n ^ 15, 7 ^ -n),
    "counts": lambda n: (
        len(range(n)),
        len(range(0, n, 4)),
        len(range(3, n)),
        len(range(n, 0, -3)),
        len(range(0, 100, n)),
        len(range(n, 2)),
        len(range(1, n, n)),
    ),
    "powers": lambda n: (1 << n, 2**n, 1 << (n - 1), -3 << n, pow(2, n - 1), 2 ** (n // 3), 3**n),
    "powers_of_negative": lambda n: ((-1) ** n, (-2) ** (n + 1), -(2**n), (-1) ** (n * n)),
    "shifted_by_sizes": lambda n: (1000 >> n, n << (n % 5), (n * n) >> (n // 4), -n >> (n - 1)),
    "bits_of_both": lambda n: (n & (n - 1), n & -n, n & (n >> 1), (3 * n) & (n + 5), 21 & n),
    "bits_of_either": lambda n: (n | (n >> 1), n | (n - 1), -n | (n // 3), 0b100101 | n),
    "bits_of_one": lambda n: (n ^ (n >> 1), n ^ (n - 1), n ^ n, -n ^ (2 * n), 0b10101 ^ n),
    "set_in_runs": lambda n: (n & 6, n & 0b1100110, n & ~0b110, n | 0b11000, n ^ 0b1110),
    "bit_length": lambda n: (n.bit_length(), (n - 1).bit_length(), (-n).bit_length()),
    "bit_length_of_int": lambda n: (int.bit_length(n), [m.bit_length() for m in (n, n * n)]),
    "next_power": lambda n: (1 << (n - 1).bit_length(), 2 ** (n - 1).bit_length() - n),
    "next_power_by_logarithm": lambda n: (
        2 ** math.ceil(math.log2(n)),
        1 << int(math.log2(n)),
        math.floor(math.log2(3 * n)),
    ),
    "inverted": lambda n: (~n, ~(n // 2)),
    "divmod": lambda n: (divmod(n, 3), divmod(n, -4), divmod(-n, 5), divmod(100, n)),
    "rounded_half": lambda n: (round(n / 2), round(-n / 2), round((n + 1) / 2), round(n / -2)),
    "rounded_quarter": lambda n: (round(n / 4), round(n * 0.25), round(n * 0.75), round(n / 6)),
    "rounded_third": lambda n: (round(n / 3), round(-n / 3), round(2 * n / 3), round(n)),
    "rounded_by_size": lambda n: (round(100 / n), round(n / (n + 1)), round(n * n / (2 * n))),
    "ceil_and_floor": lambda n: (
        math.ceil(n / 3),
        math.floor(n / 3),
        int(-n / 3),
        math.trunc(n / 2),
    ),
    "part": lambda n: (
        int(n * 0.7),
        int(0.29 * n),
        int(n * 1.1),
        int(-0.1 * n),
        int((n - 1) * 0.3),
    ),
    "part_up": lambda n: (math.ceil(n * 0.7), math.ceil(n * -0.3), math.ceil(3.3 * n)),
    "part_down": lambda n: (math.floor(n * 0.1), math.floor(n * -0.7), math.trunc(n * 100.1)),
    "part_nearest": lambda n: (round(n * 0.7), round(n * 0.1), round(n * -0.3), round(n * 2.3)),
    "many_times": lambda n: (int(n * 1e5), round(n * 99999.9), int(n * 1e-9), round(n * 1e-300)),
    "divided_by_a_float": lambda n: (int(n / 1.5), round(n / 2.5), math.ceil(n / -0.75)),
    "divided_by_many_digits": lambda n: (
        int(n / 0.7),
        math.ceil(n / 1.3),
        round(n / -2.9),
        math.floor(n / 1e-5),
        int(-n / 33.3),
    ),
    "plus_a_half": lambda n: (int(n * 0.7 + 0.5), int(n / 3 + 0.5), math.floor(0.5 + n / 0.7)),
    "plus_numbers": lambda n: (
        math.floor((n - 3) / 2 + 1),
        math.ceil(n / 3 - 1),
        round(n / 7 + 2.5),
        int(1 - n / 6),
        int(n / 2 + n),
    ),
    "less_than_a_half": lambda n: (math.ceil(n * 0.7 - 0.5), int(3.3 * n - 0.25)),
    "of_a_float": lambda n: (int(float(n) * 0.7), round(float(n) / 3), int(float(n) + 1)),
    "floor_divided": lambda n: (int(n // 2.0), int(n / 3 // 1), int(n * 0.7 // 1), int(7.5 // n)),
    "power": lambda n: (n**2, (n + 1) ** 3, n**0, pow(n, 2)),
    "root": lambda n: (int(n**0.5), int(math.sqrt(n)), math.isqrt(n), math.floor(n**0.5)),
    "root_up": lambda n: (
        math.ceil(n**0.5),
        math.ceil(math.sqrt(n * n)),
        math.ceil((n - 1) ** 0.5),
    ),
    "root_nearest": lambda n: (
        round(n**0.5),
        round(math.sqrt(n * n + 1)),
        round((n * n + n) ** 0.5),
    ),
    "root_of_less": lambda n: (int((n - 1) ** 0.5), math.isqrt(n * 4 + 1), int(math.sqrt(n // 2))),
}


@pytest.mark.parametrize("name", OF_SIZE)
def test_numbers(name):
    function = OF_SIZE[name]

    def program(x):
        numbers = function(x.shape[0])
        return x * 2, numbers

    served(program, [(R(n),) for n in SIZES])


@pytest.mark.parametrize("name", OF_SIZE)
def test_numbers_of_arguments(name):
    """The same of an int that varies, from 1 on."""
    function = OF_SIZE[name]

    def program(x, n):
        return x[: n if n < 10 else 10] + 1, function(n)

    compiled = oxyfuel.compile(program)
    for n in (2, 3, 1, 8, 9, 24, 25, 10**6):
        x = R(40)
        same(compiled(x, n), program(x, n))


FACTORS = (0.1, 0.29, 0.57, 1 / 3, 0.7, 0.999999, 1.1, 1.4, 2.9, 100.1, 0.75, 3.0, -0.3, -2.7, 1e-4)


@pytest.mark.parametrize("factor", FACTORS)
def test_as_pythons_doubles(factor):
    """One capture for all sizes gives what Python's doubles give."""

    def numbers(n, f):
        yield from (int(n * f), math.floor(n * f), math.ceil(n * f), round(n * f))
        yield from (int(n / f), math.floor(n / f), math.ceil(n / f), round(n / f))
        yield from (round(n / 7 - 1.5), round(n / 4 + 0.25), math.floor(n / 10 + 4))
        if f > 0:
            yield from (int(n * f + 0.5), int(n / f + 0.5), int(n * f - 0.5), math.ceil(n / f - 1))

    def program(x, n):
        return x + 1, tuple(numbers(n, factor))

    compiled = oxyfuel.compile(program)
    random.seed(int(factor * 1000))
    x, least = R(2), 30_000 if abs(factor) < 0.01 else 300
    for n in (40, 41, *range(50, 99), *(random.randint(99, 10**6) for _ in range(40)), 100, 290):
        assert compiled(x, n + least)[1] == program(x, n + least)[1], n
    assert oxyfuel.stats()["recompiles"] == 1


@pytest.mark.parametrize("factor", [f for f in FACTORS if f > 0])
def test_more_than_one_added(factor):
    """As Python's doubles; a sum just below an integer may have a capture of its own."""

    def program(x, n):
        f = factor
        return x + 1, (int(n * f + 1), math.floor(n / f + 2.5), int(3 + n * f), int(n / f + 100))

    compiled = oxyfuel.compile(program)
    random.seed(int(factor * 1000))
    x, least = R(2), 30_000 if factor < 0.01 else 300
    for n in (40, 41, *range(50, 250), *(random.randint(99, 10**6) for _ in range(40)), 100, 290):
        assert compiled(x, n + least)[1] == program(x, n + least)[1], n
    assert oxyfuel.stats()["recompiles"] <= 8


COMPARISONS = {
    "product": lambda n, f: n * f > 300,
    "sizes": lambda n, f: n / f <= n + 1,
    "part": lambda n, f: n / f <= 100.25,
    "quotient": lambda n, f: n / 6 < 12.5,
    "equal": lambda n, f: n * f == n,
    "whole": lambda n, f: n / 2 != n // 2,
    "root": lambda n, f: n**0.5 < 10,
    "sum": lambda n, f: n / 2 + 1 >= 25.5,
    "int": lambda n, f: 48.5 < n != 50.5 and n < float("inf") and n != 1e300 and n >= -1e300,
    "whole float": lambda n, f: n == 49.0,
    "key": lambda n, f: n in {99.0: 1, "50": 3, None: 4},
}


@pytest.mark.parametrize("name", COMPARISONS)
def test_comparisons_as_pythons(name):
    compares = COMPARISONS[name]
    for factor in FACTORS:

        def program(x, n, factor=factor):
            return x + 1 if compares(n, factor) else x - 1

        oxyfuel.reset()
        compiled, x = oxyfuel.compile(program), R(2)
        for n in (
            40,
            41,
            75,
            100,
            99,
            101,
            48,
            49,
            50,
            51,
            30,
            29,
            *range(200, 220),
            30_000,
            10**6,
        ):
            same(compiled(x, n), program(x, n))
        assert oxyfuel.stats()["recompiles"] <= 2


def test_comparisons_of_floats():
    """Their answers are guarded, not the sizes."""

    def program(x):
        n = x.shape[0]
        if n / 2 > 3.5:
            x = x + 1
        if n * 0.7 < n - 1 and n / 3 != 1:
            x = x * 2
        return x if n // 2 == n / 2 or n % 2 == 1 else x - 1

    served(program, [(R(n),) for n in (12, 14, 22, 40, 8, 100)])


@pytest.mark.parametrize("n", [2, 3, 4, 5, 6, 7])
def test_exactly_between(n):
    """A half goes to the even neighbour, whatever the size in the first call."""

    def program(x):
        return x + 1, round(x.shape[0] / 4), round(3 * x.shape[0] / 2), round(x.shape[0] * 0.125)

    compiled = oxyfuel.compile(program, dynamic=True)
    for size in (n, *range(2, 40)):
        x = R(size)
        same(compiled(x), program(x))
    assert oxyfuel.stats()["recompiles"] == 0


def test_zero_divisor():
    def program(x, n):
        try:
            return x + divmod(x.shape[0], n)[0]
        except ZeroDivisionError as e:
            return x - 1, str(e)

    compiled = oxyfuel.compile(program)
    for n in (3, 4, 0, 5, 0):
        x = R(6 + n)
        same(compiled(x, n), program(x, n))


# ---- grids of tokens

GRIDS = {
    "int_of_power": lambda n: int(n**0.5),
    "int_of_sqrt": lambda n: int(math.sqrt(n)),
    "isqrt": math.isqrt,
}


@pytest.mark.parametrize("name", GRIDS)
def test_tokens_as_an_image(name):
    side = GRIDS[name]

    def program(x):
        h = w = side(x.shape[1])
        image = x.transpose(1, 2).reshape(x.shape[0], x.shape[2], h, w)
        return F.avg_pool2d(image, 2, 1), image.mean((2, 3)), x.view(x.shape[0], h, w, -1) * 2

    exact(program, [(R(2, n * n, 3),) for n in SIZES])


def test_tokens_that_are_no_image():
    def program(x):
        h = int(x.shape[0] ** 0.5)
        return x[: h * h].view(h, h).mT.contiguous() + h

    compiled = oxyfuel.compile(program)
    for n in (9, 16, 25, 37, 48, 49, 10):
        x = R(n)
        same(compiled(x), program(x))


# ---- tensors of sizes

TENSORS = {
    "number": lambda x: (torch.tensor(x.shape[0]), x * torch.tensor(x.shape[0])),
    "list": lambda x: torch.tensor([x.shape[0], 2, x.shape[0] // 2]),
    "nested": lambda x: torch.as_tensor([(x.shape[0], 1), (3, x.shape[0] + 1)], dtype=torch.long),
    "dtype": lambda x: torch.tensor([x.shape[0], 3], dtype=torch.float32) / x.shape[0],
    "half": lambda x: torch.tensor(x.shape[0], dtype=torch.float16, device=x.device) + x,
    "back": lambda x: x[: torch.tensor(x.shape[0]).item() - 1],
    "back_as_int": lambda x: (x[: int(torch.tensor(x.shape[0]) // 2)], int(torch.tensor(len(x)))),
    "div": lambda x: x[: torch.div(x.shape[0], 2, rounding_mode="trunc")],
    "div_down": lambda x: torch.div(-x.shape[0], 4, rounding_mode="floor"),
    "div_to_zero": lambda x: torch.div(-x.shape[0], 4, rounding_mode="trunc"),
    "div_of_sizes": lambda x: torch.div(x.shape[0] * 3, x.shape[0], rounding_mode="floor") * x,
    "chain": lambda x: torch.zeros(torch.div(torch.div(x.shape[0], 2, rounding_mode="floor"), 2,
                                             rounding_mode="floor").item() + 1),
    "floor_divide": lambda x: torch.floor_divide(x.shape[0], 3) + x,
    "sum": lambda x: (torch.add(x.shape[0], 1), torch.mul(x.shape[0], x.shape[0])),
    "float_back": lambda x: x * float(torch.tensor(x.shape[0])),
    "written": lambda x: torch.tensor(x.shape[0]).add_(1),
    "lengths": lambda x: torch.arange(40) < torch.tensor([x.shape[0]])[:, None],
}  # fmt: skip


@pytest.mark.parametrize("name", TENSORS)
def test_tensors_of_sizes(name):
    served(TENSORS[name], [(R(n),) for n in SIZES])


def test_written_number_is_read_again():
    def program(x):
        t = torch.tensor(x.shape[0])
        t += 1
        return x[: t.item() - 2]

    compiled = oxyfuel.compile(program)
    for n in SIZES:
        x = R(n)
        same(compiled(x), program(x))


WRITES = {
    "in_place": lambda t: t.add_(1),
    "by_index": lambda t: t.__setitem__((), 3),
    "through_a_view": lambda t: t.view(1).add_(1),
    "through_real": lambda t: t.real.add_(1),
    "as_out": lambda t: torch.add(t, 1, out=t),
    "in_a_list": lambda t: torch._foreach_add_([t], 1),
    "as_an_array": lambda t: t.numpy().__iadd__(1),
}


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("name", WRITES)
def test_written_numbers(name, symbolic):
    """What a tensor was made of counts no longer once something may have been written to it."""

    def program(x):
        t = torch.tensor(x.shape[0] if symbolic else 5)
        WRITES[name](t)
        return x[: t.item() - 2]

    compiled = oxyfuel.compile(program)
    for n in SIZES:
        x = R(n)
        same(compiled(x), program(x))


def test_chunks():
    """As longformer makes them."""

    def program(x):
        y = x.view(x.size(0), torch.div(x.size(1), 4, rounding_mode="trunc"), 4, x.size(2))
        size = list(y.size())
        size[1] = size[1] * 2 - 1
        stride = list(y.stride())
        stride[1] = stride[1] // 2
        return y.as_strided(size=size, stride=stride).sum(2)

    compiled = oxyfuel.compile(program)
    for n in SIZES:
        x = R(2, 4 * n, 3)
        torch.testing.assert_close(compiled(x), program(x))
    assert oxyfuel.stats()["recompiles"] <= 1


# ---- ops with a size as an int of their schema

SIZED = {
    "linspace": lambda x: torch.linspace(0, 1, x.shape[0]) * x,
    "linspace_by_name": lambda x: torch.linspace(
        start=-1, end=1, steps=x.shape[0], device=x.device
    ),
    "linspace_of_sizes": lambda x: torch.linspace(0, x.shape[0] - 1, x.shape[0]),
    "linspace_double": lambda x: torch.linspace(-3, 7.3, 2 * x.shape[0] + 1, dtype=torch.float64),
    "linspace_int": lambda x: torch.linspace(-9, 100, x.shape[0], dtype=torch.int64),
    "linspace_half": lambda x: torch.linspace(0.1, 0.9, x.shape[0], dtype=torch.bfloat16),
    "linspace_op": lambda x: torch.ops.aten.linspace.default(0, 1, x.shape[0]),
    "linspace_grid": lambda x: torch.stack(
        torch.meshgrid(torch.linspace(-1, 1, x.shape[0]), torch.linspace(0, 1, 3), indexing="ij")
    ),
    "logspace": lambda x: torch.logspace(0, 1, x.shape[0], 2.0, dtype=torch.float64),
    "triu_indices": lambda x: torch.triu_indices(x.shape[0], x.shape[0], 1),
    "triu_indices_wide": lambda x: torch.triu_indices(3, x.shape[0], -1, dtype=torch.int32),
    "tril_indices": lambda x: torch.tril_indices(x.shape[0], x.shape[0]),
    "tril_indices_high": lambda x: torch.tril_indices(row=x.shape[0], col=4, offset=-2),
    "tril_indices_above": lambda x: torch.tril_indices(x.shape[0], x.shape[0], 2),
    "pairs": lambda x: (x[:, None] * x)[tuple(torch.triu_indices(len(x), len(x), 1))],
    "windows": lambda x: (torch.hann_window(len(x)), torch.bartlett_window(len(x), False)),
    "window_by_name": lambda x: torch.hamming_window(
        window_length=len(x), periodic=False, dtype=torch.float64
    ),
    "window_of_one": lambda x: torch.blackman_window(len(x) // len(x)) * x,
    "vander": lambda x: torch.vander(x),
    "vander_columns": lambda x: torch.vander(x, 3, increasing=True),
    "vander_many": lambda x: torch.vander(torch.arange(1, 4), x.shape[0]),
    "pdist": lambda x: F.pdist(torch.stack([x, x * x], 1)),
    "affine_grid": lambda x: F.affine_grid(
        torch.ones(3, 2, 3), (3, 1, x.shape[0], x.shape[0] + 1), align_corners=True
    ),
    "affine_volume": lambda x: F.affine_grid(
        torch.ones(2, 3, 4), [2, 1, 4, x.shape[0], x.shape[0] + 1], align_corners=False
    ),
}


def exact(program, calls):
    """Equal to the bit but for what loops round at another place."""
    compiled = oxyfuel.compile(program)
    for args in calls:
        actual, expected = compiled(*args), program(*args)
        torch.testing.assert_close(actual, expected, rtol=2e-6, atol=4e-6)
        for a, e in zip(*[r if isinstance(r, tuple) else (r,) for r in (actual, expected)]):
            assert a.stride() == e.stride()
    stats = oxyfuel.stats()
    assert stats["recompiles"] <= 1, stats
    assert stats["graph_breaks"] == stats["static_captures"] == stats["fallbacks"] == 0, stats
    assert stats["layout_copies"] == 0, stats


@pytest.mark.parametrize("name", SIZED)
def test_size_as_int_of_the_schema(name):
    exact(SIZED[name], [(R(n),) for n in SIZES])


@pytest.mark.parametrize("form", ["linspace", "triu", "tril"])
def test_sizes_of_any_offset(form):
    """At the borders, and where the result is empty."""

    def program(x, rows, columns, offset):
        if form == "linspace":
            return torch.linspace(offset, columns, rows) + x
        return getattr(torch, f"{form}_indices")(rows, columns, offset) + x.long()

    compiled = oxyfuel.compile(program)
    for rows, columns, offset in (
        (3, 4, 0), (5, 7, 1), (6, 3, -1), (1, 1, 0), (4, 9, 9), (9, 2, -9), (0, 5, 0), (2, 2, 5),
        (8, 8, -3), (8, 8, 3), (7, 1, -6), (1, 7, 6), (20, 30, 25), (30, 20, -25),
    ):  # fmt: skip
        x = torch.ones(1)
        same(compiled(x, rows, columns, offset), program(x, rows, columns, offset))


def test_errors_are_eagers():
    compiled = oxyfuel.compile(lambda x, n: torch.linspace(0, 1, n) + x)
    for n in (4, 6, 8):
        compiled(torch.ones(1), n)
    with pytest.raises(RuntimeError, match="number of steps must be non-negative"):
        compiled(torch.ones(1), -3)


@pytest.mark.parametrize("corners", [True, False])
@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
def test_sampling_at_a_grid(mode, corners):
    def program(x, theta):
        grid = F.affine_grid(theta, x.shape, align_corners=corners)
        return F.grid_sample(x, grid, mode=mode, align_corners=corners)

    exact(program, [(R(4, 3, n, n + 1), R(4, 2, 3)) for n in SIZES])


def test_sampling_volumes():
    exact(
        lambda x, grid: F.grid_sample(x, grid, align_corners=False),
        [(R(2, 3, 4, n, 6), R(2, n, 3, 4, 3)) for n in SIZES],
    )


STFT = {
    "plain": {"window": torch.ones(8)},
    "no_centre": {"window": torch.hann_window(8), "center": False},
    "short_window": {"window": torch.hann_window(6), "win_length": 6},
    "no_window": {"win_length": 5},
    "both_sides": {"onesided": False, "normalized": True},
}


@pytest.mark.filterwarnings("ignore:A window was not provided")
@pytest.mark.parametrize("rank", [1, 2])
@pytest.mark.parametrize("name", STFT)
def test_stft(name, rank):
    def program(x):
        return torch.stft(x, 8, 3, return_complex=True, **STFT[name])

    exact(program, [(R(*([2, 8 * n][-rank:])),) for n in SIZES])


def test_stft_of_complex_signals():
    def program(x):
        return torch.stft(x, 8, 4, window=torch.ones(8), return_complex=True, onesided=False).abs()

    exact(program, [(R(2, 8 * n, dtype=torch.complex64),) for n in SIZES])


# ---- steps of slices, and what math asks of sizes


def stepped(x):
    n = x.shape[0]
    return x[:: n // 4], x[1 :: n // 2 + 1, ::2] + 1, x[: n // 2 : n // 5] * 2


def test_slices_by_a_step_that_is_a_size():
    served(stepped, [(R(n, 4),) for n in SIZES])


def test_slices_by_a_step_that_are_written():
    def program(x):
        y = x * 2
        y[:: x.shape[0] // 4] = 1.0
        y[1 :: x.shape[0] // 3] += x[0]
        return y

    served(program, [(R(n, 4),) for n in SIZES], recompiles=2)  # a step of 1 is one of its own


def test_a_step_of_nothing_raises():
    compiled = oxyfuel.compile(stepped)
    for n in (9, 14, 3, 2, 1, 0, 20):
        try:
            expected = stepped(torch.ones(n, 4))
        except ValueError as error:
            with pytest.raises(ValueError, match=str(error)):
                compiled(torch.ones(n, 4))
        else:
            same(compiled(torch.ones(n, 4)), expected)


ASKED = {  # with how many answers there are
    "gcd": (lambda n: math.gcd(n, 4), 3),
    "lcm": (lambda n: math.lcm(n, 4), 3),
    "lcm_of_negative": (lambda n: math.lcm(-n, 6), 4),
    "isfinite": (lambda n: (math.isfinite(n), math.isinf(1 / n), math.isnan(n / 2)), 1),
    "isclose": (lambda n: math.isclose(n / 2, 4.5), 2),
    "divmod": (lambda n: (divmod(n / 2, 3), divmod(n, 2.5), divmod(7.5, n)), 1),
}


@pytest.mark.parametrize("name", ASKED)
def test_what_math_asks_of_sizes(name):
    ask, answers = ASKED[name]
    sizes = (5, 9, 14, 33, 7, 20, 12, 18)
    served(lambda x: (x + 1, ask(x.shape[0])), [(R(n, 2),) for n in sizes], recompiles=answers)


@pytest.mark.parametrize("gradient", [False, True])
def test_windows_that_are_laid_over_each_other(gradient):
    """Each size is a symbol from the first call on: torch is asked far away from the hints."""

    def program(x):
        return F.fold(F.unfold(x, 3, padding=1), x.shape[2:], 3, padding=1)

    compiled = oxyfuel.compile(program, dynamic=True)
    for n, h, w in ((1, 4, 5), (2, 5, 4), (3, 3, 3), (2, 6, 9)):
        x = R(n, 8, h, w)
        same(compiled(x), program(x))
        if not gradient:
            continue
        with torch.enable_grad():
            leaves = [x.clone().requires_grad_() for _ in range(2)]
            for function, leaf in zip((compiled, program), leaves, strict=True):
                function(leaf).square().sum().backward()
            torch.testing.assert_close(leaves[0].grad, leaves[1].grad)


@pytest.mark.filterwarnings("ignore:oxyfuel")
@pytest.mark.parametrize("dynamic", [None, True, False])
def test_gradients_of_vander_raise(dynamic, monkeypatch):
    """torch has written over what they need."""
    monkeypatch.delenv("OXYFUEL_STRICT")
    program = lambda x: torch.vander(x * 2, 3).sum()
    compiled = oxyfuel.compile(program, dynamic=dynamic)
    with torch.enable_grad():
        for n in (4, 5, 6):
            x = R(n, requires_grad=True)
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                program(x).backward()
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                compiled(x).backward()


@pytest.mark.parametrize("dtype", [torch.int64, torch.float64, torch.int32])
@pytest.mark.parametrize(
    "program",
    [
        lambda x, v: x.new_tensor(v),
        lambda x, v: x.new_tensor([v, 1]),
        lambda x, v: torch.tensor(v, dtype=x.dtype),
        lambda x, v: torch.asarray(v, dtype=x.dtype),
    ],
)
def test_tensors_of_wide_ints(program, dtype, monkeypatch):
    """With eager's error where the dtype does not hold it."""
    compiled = oxyfuel.compile(program)
    for v in (1, 2, 3, 2**31, -(2**31) - 1, 2**40, 7):
        answers = []
        for function in (program, compiled):
            try:
                answers.append(function(torch.zeros(1, dtype=dtype), v).tolist())
            except RuntimeError as e:
                answers.append(str(e)[:40])
        assert answers[0] == answers[1], v
    assert dtype == torch.int32 or oxyfuel.stats()["recompiles"] == 1


@pytest.mark.parametrize(
    "program",
    [
        lambda x, v: v**x,
        lambda x, v: x // v,
        lambda x, v: x + v,
        lambda x, v: x % v,
        lambda x, v: torch.full((2,), v),
    ],
)
def test_ints_of_64_bits(program):
    calls = [
        (torch.tensor([1, 2]), v) for v in (2, 3, 5, 2**63 - 1, -(2**63), 2**62, 2**61, -(2**61), 7)
    ]
    served(program, calls)


@pytest.mark.parametrize(
    "program",
    [
        lambda x, n: torch.ones(n, n).tril(),
        lambda x, n: torch.eye(n),
        lambda x, n: F.one_hot(torch.tensor([0, 1, 2]), n),
        lambda x, n: F.layer_norm(torch.ones(3, n), (n,)),
    ],
)
def test_tensors_of_an_int(program):
    served(program, [(x, n) for n, x in ((n, R(2)) for n in SIZES)])


def test_bits_of_a_size():
    """A capture for each number of bits."""

    def program(x):
        n = x.shape[0]
        return x * n.bit_length(), torch.zeros(1 << (n - 1).bit_length())

    served(program, [(R(n),) for n in (5, 6, 7, 12, 15, 9, 5, 11, 6)], recompiles=2)


LAYOUTS = {
    "channels_last": lambda n: R(2, 4, n, n).contiguous(memory_format=torch.channels_last),
    "transposed": lambda n: R(n, 4).t(),
    "permuted": lambda n: R(n, 4, 2).permute(2, 0, 1),
}


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_dropout_in_other_layouts(layout, dynamic):
    compiled = oxyfuel.compile(lambda x: F.dropout(x, 0.3), dynamic=dynamic)
    for n in (3, 5, 6, 8, 9):
        x = LAYOUTS[layout](n)
        torch.manual_seed(n)
        expected = F.dropout(x, 0.3)
        torch.manual_seed(n)
        same(compiled(x), expected)
    stats = oxyfuel.stats()
    assert stats["recompiles"] <= 1 and stats["static_captures"] == 0


@pytest.mark.parametrize("corners", [False, True])
@pytest.mark.parametrize("dims", [2, 3])
def test_gradients_of_affine_grids(dims, corners):
    def program(theta, *sizes):
        return F.affine_grid(theta, [2, 3, *sizes], align_corners=corners)

    compiled = oxyfuel.compile(program)
    with torch.enable_grad():
        for n in (3, 5, 6, 8, 4):
            leaf = R(2, dims, dims + 1)
            leaves = [leaf.clone().requires_grad_() for _ in range(2)]
            for function, t in zip((compiled, program), leaves, strict=True):
                function(t, *range(n, n + dims)).square().sum().backward()
            torch.testing.assert_close(leaves[0].grad, leaves[1].grad)
    stats = oxyfuel.stats()
    assert stats["recompiles"] <= 1 and stats["static_captures"] == 0


class Window(collections.deque):
    pass


OF_C = {
    "deque": lambda n: collections.deque(range(9), maxlen=n),
    "deque_by_position": lambda n: collections.deque((n, n + 1, n + 2), n - 3),
    "derived_deque": lambda n: list(Window(range(9), maxlen=n)),
    "permutations": lambda n: len(list(itertools.permutations(range(5), n - 3))),
    "permutations_by_name": lambda n: list(itertools.permutations("abc", r=n // 3)),
    "combinations": lambda n: list(itertools.combinations((n, n + 1, 7, 8, 9), n - 2)),
    "product": lambda n: len(list(itertools.product((0, 1), repeat=n))),
    "digits": lambda n: "%.*f" % (n, 3.14159),  # noqa: UP031
    "width": lambda n: "%*d|%s" % (n, n, n * 2),  # noqa: UP031
    "width_of_bytes": lambda n: b"%*d" % (n, 3),
    "islice": lambda n: list(itertools.islice(range(30), n, 3 * n, 2)),
    "comb": lambda n: (math.comb(20, n), math.perm(n, 2)),
    "padded": lambda n: ("ab".ljust(n), "ab".center(n, "*"), "7".zfill(n), bytes(n)),
}


@pytest.mark.parametrize("name", OF_C)
def test_functions_of_c(name):
    """One that takes an int alone is given the number, with a guard."""
    function = OF_C[name]

    def program(x):
        return x * 2, function(x.shape[0])

    served(program, [(R(n),) for n in (4, 5, 7, 4, 5, 6)], recompiles=4)


def test_what_containers_give_is_what_lies_in_them():
    """A list with a size in it, and an empty one."""

    def f(x, n):
        held, groups, stack = [n], {}, [[n], []]
        groups.setdefault("a", []).append(n)
        groups.setdefault("a", held).append(x)
        groups.get("a").append(held)
        top = stack.pop()
        top.append(held)
        both = copy.deepcopy([held, held])
        both[0].append(1)
        return x + n, groups, top, [held].copy()[0] is held, both

    compiled = oxyfuel.compile(f)
    for n in SIZES:
        x = torch.ones(3)
        assert str(compiled(x, n)) == str(f(x, n))
