"""Functions and methods written in C that are given an iterator: their result or error, and what is
left of it."""

from __future__ import annotations

import builtins
import cmath
import collections
import copy
import functools
import itertools
import math
import operator
import types

import pytest
import torch

import oxyfuel

pytestmark = pytest.mark.usefixtures("strict_without_grad")

HELD = []  # iterators of before the call
# They talk to the terminal or to files, run code, or tell an address.
_TALK = {
    "breakpoint",
    "copyright",
    "credits",
    "exec",
    "eval",
    "exit",
    "hash",
    "help",
    "id",
    "input",
    "license",
    "open",
    "print",
    "quit",
    "compile",
    "__import__",
}
_BASES = [
    "ab",
    b"ab",
    [1, 2],
    (1, 2),
    {1: 2},
    {1, 2},
    frozenset((1, 2)),
    5,
    2.5,
    collections.deque((1, 2)),
]
_BASES += [collections.OrderedDict({1: 2}), collections.defaultdict(int, {1: 2}), range(3)]
# They tell what a class is, and memory addresses.
_KEPT = {
    "__init_subclass__",
    "__subclasshook__",
    "__class__",
    "__sizeof__",
    "__dir__",
    "__reduce_ex__",
    "__reduce__",
}


def _generator():
    yield 1
    yield 2
    yield 3


ITERATORS = {
    "list": lambda: iter([1, 2, 3]),
    "words": lambda: map(str, (1, 2, 3)),
    "generator": _generator,
    "pairs": lambda: zip((1, 2, 3), (4, 5, 6)),
}
PLACES = {
    "first": lambda f, it: f(it),
    "with a number": lambda f, it: f(it, 2),
    "second": lambda f, it: f((1, 2), it),
    "both": lambda f, it: f(it, it),
}


def _hash(*args):
    """Of an iterator it is an address."""
    return type(hash(*args)).__name__


def _functions():
    yield pytest.param(lambda: _hash, id="builtins.hash")
    for module in (builtins, math, cmath, operator, functools):
        for name, f in sorted(vars(module).items()):
            own = f.__module__ if isinstance(f, types.BuiltinFunctionType) else None
            if (
                own in ("builtins", "math", "cmath", "_operator", "_functools")
                and name not in _TALK
            ):
                yield pytest.param(lambda f=f: f, id=f"{module.__name__}.{name}")
    for base in _BASES:
        for name in sorted(set(dir(base)) - _KEPT):
            if callable(getattr(base, name)):
                make = lambda base=base, name=name: getattr(
                    base.copy() if hasattr(base, "copy") else base, name
                )  # noqa: E731
                yield pytest.param(make, id=f"{type(base).__name__}.{name}")


def _outcome(function, *args):
    try:
        result, rest = function(*args)
    except Exception as e:  # compared, whatever it is
        return type(e).__name__
    if not isinstance(
        result,
        (int, float, complex, str, bytes, list, tuple, dict, set, frozenset, collections.deque),
    ):
        result = type(result).__name__
    return repr(result).partition(" at 0x")[0], rest


@pytest.mark.parametrize("make", list(_functions()))
def test_what_is_left_of_it(make):
    for kind, iterator in ITERATORS.items():
        for place, call in PLACES.items():

            def function(f, it):
                try:
                    result = call(f, it)
                except (TypeError, ValueError, AttributeError, OverflowError) as e:
                    result = type(e).__name__
                return result, list(it)

            def inside(f):
                return function(f, iterator())

            if (
                _outcome(inside, make())[0] == _outcome(inside, make())[0]
            ):  # no address, no hash of one
                assert _outcome(oxyfuel.compile(inside, backend="eager"), make()) == _outcome(
                    inside, make()
                ), (kind, place)
                got = _outcome(oxyfuel.compile(function, backend="eager"), make(), iterator())
                assert got == _outcome(function, make(), iterator()), (kind, place)


def _ends_early(first, second):
    yield first
    yield second
    raise ValueError("early")


ADDITIONS = {
    "extend": lambda c: c["list"].extend(_ends_early(3, 4)),
    "update": lambda c: c["set"].update(_ends_early(3, 4)),
    "update with pairs": lambda c: c["dict"].update(_ends_early((3, 4), (5, 6))),
    "update with no pair": lambda c: c["dict"].update([(3, 4), 5]),
    "extend a deque": lambda c: c["deque"].extend(_ends_early(3, 4)),
    "extendleft": lambda c: c["deque"].extendleft(_ends_early(3, 4)),
    "+=": lambda c: operator.iadd(c["list"], _ends_early(3, 4)),
    "+= of a deque": lambda c: operator.iadd(c["deque"], _ends_early(3, 4)),
    "difference_update": lambda c: c["set"].difference_update(_ends_early(1, 2)),
    "difference_update, then a number": lambda c: c["set"].difference_update((1,), 2),
    "update, then a number": lambda c: c["set"].update((7,), 2),
    "a slice": lambda c: operator.setitem(c["list"], slice(0, 1), _ends_early(3, 4)),
}


@pytest.mark.parametrize("made_inside", [False, True])
@pytest.mark.parametrize("name", ADDITIONS)
def test_what_is_added_before_an_error(name, made_inside):
    def made():
        return {"list": [1, 2], "set": {1, 2}, "dict": {1: 2}, "deque": collections.deque((1, 2))}

    def function(containers):
        if made_inside:
            containers = made()
        try:
            ADDITIONS[name](containers)
        except (ValueError, TypeError) as e:
            return containers, str(e)
        return containers, None

    assert oxyfuel.compile(function, backend="eager")(made()) == function(made())


def test_ids_in_a_table_of_before():
    """copy.deepcopy's table has keys that are another object's at each call."""
    function = copy._reconstruct
    compiled = oxyfuel.compile(function, backend="eager")
    for text in ("abc", "de"):
        it, table = iter(text), {}
        copied = compiled(it, table, *it.__reduce__())
        assert list(copied) == list(it) == list(text)
        assert (
            list(table) == [id(it)] + [k for k in table if k != id(it)] and table[id(it)] is copied
        )


ROWS = {
    "zip_longest": lambda x: [t * (i or 0) for t, i in itertools.zip_longest(x, [1, 2])],
    "product": lambda x: [t * i for t, i in itertools.product(x, [1, 2])],
    "pairwise": lambda x: [a * b for a, b in itertools.pairwise(x)],
    "combinations": lambda x: [a * b for a, b in itertools.combinations(x, 2)],
    "chain": lambda x: [t + 1 for t in itertools.chain(x, x)],
    "cycle": lambda x: [t + 1 for t, _ in zip(itertools.cycle(x), range(7))],
    "repeat": lambda x: [t + 1 for t in itertools.repeat(x, 2)],
    "deque": lambda x: [t + 1 for t in collections.deque(x, 2)],
    "extend": lambda x: (lambda l: (l.extend(x), [t + 1 for t in l])[1])([]),
    "extendleft": lambda x: (lambda d: (d.extendleft(x), list(d))[1])(collections.deque()),
}


@pytest.mark.parametrize("name", ROWS)
def test_rows_of_sizes_that_vary(name):
    compiled = oxyfuel.compile(ROWS[name])
    for n in (4, 4, 5, 6, 1):
        x = torch.randn(3, n)
        torch.testing.assert_close(compiled(x), ROWS[name](x))
    for x in (torch.tensor(2.0), torch.empty(0, 3)):
        results = []
        for run in (ROWS[name], compiled):
            try:
                results.append(run(x))
            except Exception as e:
                results.append([type(e).__name__, str(e)])
        assert str(results[0]) == str(results[1])
    assert oxyfuel.stats()["graph_breaks"] == 0


@pytest.mark.parametrize("break_at", [0, 8, 12, 16, 20])
def test_a_dict_that_grows_under_its_iterator(break_at):
    def f(x, d):
        try:
            for k in d:
                d[k + 1] = x
        except RuntimeError as e:
            return x + len(d), str(e)

    def next_of_existing(x, d):
        d[7] = x
        try:
            return next(HELD[0])
        except RuntimeError as e:
            return x, str(e)

    for function in (f, next_of_existing):
        results = []
        for run in (
            function,
            oxyfuel.compile(function, backend="eager", options={"break_at": break_at}),
        ):
            d = {1: 2}
            HELD[:] = [iter(d)]
            results.append(str([run(torch.ones(2), d), d]))
        assert results[0] == results[1]


@pytest.mark.parametrize("container", [list, tuple, set])
@pytest.mark.parametrize("make", [list, tuple, lambda n: range(len(n))], ids=["l", "t", "r"])
def test_what_is_left_of_an_iterator_of_before_the_call(make, container):
    def run(f):
        iterator = iter(make([1, 2, 3]))
        out = [f(torch.ones(2), iterator), f(torch.ones(2), iterator), list(iterator)]
        return str(out)

    def f(x, iterator):
        first = next(iterator, None)
        return x + len(container(iterator)), first, list(iterator)

    oxyfuel.reset()
    assert run(oxyfuel.compile(f, fullgraph=True)) == run(f)
