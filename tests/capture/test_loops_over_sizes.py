"""Loops over ranges of sizes, whose number of rounds is a fact, and sizes as named arguments."""

from __future__ import annotations

import pytest
import torch
from test_sizes_as_numbers import same

import oxyfuel

R = torch.randn


def captures(program, sizes, arguments=lambda n: (R(n, 4),)):
    """Equal to eager at these sizes; how many captures that takes."""
    oxyfuel.reset()
    compiled = oxyfuel.compile(program)
    for n in sizes:
        args = arguments(n)
        same(compiled(*args), program(*args))
    stats = oxyfuel.stats()
    assert stats["graph_breaks"] == stats["static_captures"] == stats["fallbacks"] == 0, stats
    return stats["recompiles"] + 1


def blocks(x, size=8):
    n = x.shape[0]
    return [x[at : min(n, at + size)].amax(0) for at in range(0, n, size)]


def from_behind(x):
    total = 0
    for end in range(x.shape[0], 0, -8):
        total = total + x[max(0, end - 8) : end].amax(0) * end
    return total


def last_rows(x):
    n = x.shape[0]
    return [x[i] * i for i in range(n - 3, n)]


def every_third(x):
    return [x[i : i + 1] + i for i in range(x.shape[0] - 7, x.shape[0], 3)]


def nested(x):
    return [(a, b) for a in range(0, x.shape[0], 9) for b in range(a, a + 2)]


def what_is_left(x):
    i = -1
    for i in range(1, x.shape[0], 8):
        x = x + i
    return x, i


@pytest.mark.parametrize(
    ("program", "sizes", "most"),
    [
        (blocks, (5, 8, 7, 3, 2), 2),
        (blocks, (17, 24, 18, 20, 5, 7, 6), 3),
        (from_behind, (9, 16, 10, 15), 2),
        (last_rows, (5, 9, 6, 40), 2),
        (every_third, (9, 10, 33, 21), 2),
        (nested, (5, 9, 7, 3), 2),
        (what_is_left, (10, 17, 12, 2, 9), 3),
    ],
    ids=lambda v: getattr(v, "__name__", None),
)
def test_rounds(program, sizes, most):
    assert captures(program, sizes) <= most


@pytest.mark.parametrize(
    "program",
    [
        lambda x: [x[i] for i in range(x.shape[0])],
        lambda x: [i + 1 for i in range(x.shape[0], 3)] + [x],
        lambda x: list(range(0, x.shape[0], 5)) + [x],
        lambda x: [range(x.shape[0]), x],
        lambda x: (range(0, x.shape[0], 4).stop, x + 1),
        lambda x: [r.stop for r in map(range, [x.shape[0]])] + [x],
        lambda x: [x + i for r in [range(2, x.shape[0], 3)] for i in r],
        lambda x: [x + i for i in range(0, 9, x.shape[0])],
    ],
)
def test_ranges_are_eagers(program):
    captures(program, (2, 5, 3, 9, 5))


def test_a_step_of_zero():
    def program(x):
        try:
            return [x + i for i in range(0, x.shape[0], 0)]
        except ValueError as e:
            return x, str(e)

    captures(program, (3, 5, 4))


class Scaled(torch.nn.Module):
    def forward(self, x, *others, height=1, width=1, **rest):
        return x * height + width + sum(others) + sum(rest.values())


class Outer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Scaled()

    def forward(self, x, **sizes):
        return self.inner(x, **sizes, more=sizes["height"] // 2)


@pytest.mark.parametrize("module", [Scaled(), Outer()], ids=["module", "handed_on"])
@pytest.mark.parametrize("half", [None, 2.5])
def test_sizes_as_named_arguments(module, half):
    """Through the ** of functions between, alone and beside a float of a size."""

    def program(x):
        rows, columns = x.shape
        named = {} if half is None else {"scale": rows / half}
        return module(x, height=rows, width=columns, **named)

    count = captures(program, (6, 12, 9, 7), lambda n: (torch.ones(n, n + 1),))
    assert count == 2 or half  # `sum` and `//` read the float


@pytest.mark.parametrize(
    "program",
    [
        lambda x: x * x.amax((1, 2), keepdim=True),
        lambda x: x + torch.ones(1, 1, x.shape[2]),
        lambda x: x[:, 1:] * x[:, :1],
        lambda x: torch.ones(4, 1, 1) - x,
        lambda x: (x[:, :-1] * x[:, :1, :1]).contiguous().reshape(-1),
        lambda x: torch.where(x.amax(2, True) > 0, x, 1.0),
    ],
)
def test_a_size_that_becomes_one(program):
    """Row-major operands: a dimension of one element is no capture of its own."""

    def image(n):
        return (R(4, 3, n // 2, n // 3)[:, 0],)

    def pooled(x):
        return program(torch.nn.functional.avg_pool2d(x[:, None], 2)[:, 0])

    assert captures(pooled, (24, 48, 36, 10, 15), image) <= 2
