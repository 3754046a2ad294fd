"""Sets lie in the order of eager's, which depends on what was added first where hashes collide, and
break no graph."""

import random

import pytest
import torch

import oxyfuel

pytestmark = [pytest.mark.usefixtures("strict"), pytest.mark.filterwarnings("ignore")]


class Base:
    pass


class Derived(Base):
    pass


CLASSES = {Base, Derived, int, torch.nn.Linear}
SIZES = (0, 1, 2, 3, 4, 5, 6, 8, 13, 18, 30)


def names(count, seed):
    """Texts whose hashes differ from process to process."""
    draw = random.Random(seed)
    return ["".join(draw.choices("abcdefghij", k=6)) for _ in range(count)]


def graphs(compiled, *inputs):
    """The result, of a call without breaks."""
    result = compiled(*inputs)
    assert oxyfuel.stats()["graph_breaks"] == 0
    return result


@pytest.mark.parametrize("count", SIZES)
@pytest.mark.parametrize("seed", range(4))
def test_sets_that_are_made(count, seed):
    keys = names(count, seed) + [None, 3, 3.5, Base][: seed if count < 10 else 0]

    def function(x):
        made = set()
        for key in keys:
            made.add(key)
        return x + 1, made, frozenset(made), {*keys}

    x = torch.ones(2)
    ours, eagers = graphs(oxyfuel.compile(function), x), function(x)
    assert [list(part) for part in ours[1:]] == [list(part) for part in eagers[1:]]
    assert [type(part) for part in ours] == [type(part) for part in eagers]


@pytest.mark.parametrize("count", SIZES)
@pytest.mark.parametrize("seed", range(4))
def test_sets_that_were_there_before(count, seed):
    there = set(names(count, seed))

    def function(x):
        return x * len(there), list(there), "other" in there

    compiled = oxyfuel.compile(function)
    x = torch.ones(2)
    for _ in range(2):
        ours, eagers = graphs(compiled, x), function(x)
        assert torch.equal(ours[0], eagers[0]) and ours[1:] == eagers[1:]
    there.add("other")
    assert compiled(x)[1:] == function(x)[1:]


def test_sets_of_classes():
    def function(x, cls):
        return x + 1 if cls in CLASSES else x - 1

    compiled = oxyfuel.compile(function)
    x = torch.ones(2)
    for cls in (Base, str, Derived):
        assert torch.equal(graphs(compiled, x, cls), function(x, cls))
    CLASSES.add(str)
    assert torch.equal(compiled(x, str), function(x, str))
    CLASSES.discard(str)
    assert torch.equal(compiled(x, str), function(x, str))
