"""reversed() of modules' lists, and of what has a length and items."""

from __future__ import annotations

import collections

import pytest
import torch
from torch import nn

import oxyfuel

X = torch.linspace(-1, 1, 12).view(3, 4)


class Sequence:
    def __init__(self, *items):
        self.items = items

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


class Shrinks(Sequence):
    """Ends in the middle."""

    def __getitem__(self, i):
        if i == 0:
            raise IndexError
        return self.items[i]


class Fails(Sequence):
    def __getitem__(self, i):
        raise KeyError(i)


class Own(Sequence):
    def __reversed__(self):
        yield from self.items


class Items(list):
    def __getitem__(self, i):
        raise AssertionError


class Refuses(Sequence):
    __reversed__ = None


class NoLength:
    def __getitem__(self, i):
        return i


torch.manual_seed(0)
LAYERS = [nn.Linear(4, 4) for _ in range(3)]
WEIGHTS = nn.ParameterList(nn.Parameter(torch.randn(4)) for _ in range(3))
GIVEN = {
    "list_of_modules": nn.ModuleList(LAYERS),
    "sequential": nn.Sequential(*LAYERS),
    "parameters": WEIGHTS,
    "sequence": Sequence(*LAYERS),
    "numbers": Sequence(1.5, 2, 3),
    "empty": Sequence(),
    "ends": Shrinks(1, 2, 3),
    "raises": Fails(1, 2),
    "own": Own(1, 2, 3),
    "list": Items([1, 2]),
    "refuses": Refuses(1, 2),
    "no_length": NoLength(),
    "deque": collections.deque([1, 2]),
}


def step(x, layer):
    return layer(x) if callable(layer) else x * 2 + layer


def loop(x, items):
    for layer in reversed(items):
        x = step(x, layer)
    return x


def unpacked(x, items):
    *rest, last = reversed(items)
    return step(x, last), len(rest)


def paired(x, items):
    for i, (a, b) in enumerate(zip(reversed(items), reversed(items))):
        x = step(step(x, a), b) + i
    return x


def in_parts(x, items):
    rest = reversed(items)
    x = step(x, next(rest))
    for layer in rest:
        x = step(x, layer)
    return x, next(rest, None)


def run(program, items):
    try:
        return program(X, items)
    except Exception as e:
        return type(e), str(e)


@pytest.mark.parametrize("name", GIVEN)
@pytest.mark.parametrize("program", (loop, unpacked, paired, in_parts))
def test_reversed(program, name, strict_without_grad):
    compiled, items = oxyfuel.compile(program), GIVEN[name]
    for _ in range(2):
        actual, expected = run(compiled, items), run(program, items)
        if isinstance(expected[0], type):
            assert actual == expected
        else:
            torch.testing.assert_close(actual, expected)
    if not isinstance(expected[0], type):
        assert oxyfuel.stats()["graph_breaks"] == 0
