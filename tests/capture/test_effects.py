"""What captured code leaves behind: results that share objects, objects that were there before and are written.

Each case is a maker of (function, args); it is called several times in eager and compiled, and everything that a user can
see must agree after each call, identities included, without a graph break.
"""

import collections
import functools

import pytest
import torch
from snapshot import outcome, outcome_differences

import oxyfuel

CALLS = 3
CASES = []
BREAKS = []  # eager's result as well, by way of a break


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    monkeypatch.setenv("OXYFUEL_STRICT", "1")
    oxyfuel.reset()
    with torch.no_grad():
        yield


def case(make):
    make.after = None
    CASES.append(make)
    return make


def breaks(make):
    make.after = None
    BREAKS.append(make)
    return make


def on(*makers, after=None):
    """A case of the decorated function itself, on a tensor or on what `makers` return; `after` looks at the result."""

    def register(function):
        def make():
            arguments = [m() for m in makers]
            return function, arguments or [torch.arange(6.0).view(2, 3)]

        make.__name__, make.after = function.__name__, after
        CASES.append(make)
        return function

    return register


def outcomes(make, compiler):
    function, args = make()
    run = compiler(function)
    call = (lambda *a: make.after(run(*a))) if make.after else run
    return [outcome(call, function, args, {}) for _ in range(CALLS)]


def check(make, compiler):
    expected, actual = outcomes(make, lambda f: f), outcomes(make, compiler)
    for i, (e, a) in enumerate(zip(expected, actual)):
        found = outcome_differences(e, a)
        assert not found, f"call {i + 1}: " + "\n".join(found)
    return oxyfuel.stats()


# ------------------------------------------------------------------------------------------------------- identities


class Node:
    def __init__(self, value):
        self.value = value


class Named(dict):
    pass


class Items(list):
    pass


Pair = collections.namedtuple("Pair", "a b")


def tensor():
    return torch.arange(6.0).view(2, 3)


@on()
def one_list_twice(x):
    rows = [x + 1]
    return rows, rows, (rows, {"rows": rows})


@on()
def one_tuple_twice(x):
    t = (x + 1, [x])
    return [t, t, t[1]]


@on()
def list_in_itself(x):
    rows = [x * 2]
    rows.append(rows)
    return rows


@on()
def dict_in_itself(x):
    d = {"x": x + 1}
    d["self"] = (d, [d])
    return d["self"]


@on()
def object_in_itself(x):
    a, b = Node(x + 1), Node(x)
    a.other, b.other = b, a
    return b, a


@on()
def object_and_its_dict(x):
    a = Node(x + 1)
    return a, a.__dict__, a.__dict__


@on()
def one_tensor_twice(x):
    y = x + 1
    return [y, y, x, x]


@on()
def subclasses(x):
    d, rows = Named(a=x + 1), Items([x])
    d["rows"], d.owner = rows, rows
    rows.append(d)
    return d, rows, Pair(rows, d)


@on()
def ordered(x):
    d = collections.OrderedDict(a=x + 1, b=2)
    d.move_to_end("a")
    d["self"] = d
    return d


@on()
def a_set_shared(x):
    names = {"a"}
    names.add("b")
    return names, names, x + 1


@on()
def method_of_a_made_object(x):
    a = Node(x + 1)
    return a.__init__, a


@on(tensor, lambda: [1, 2], lambda: {"k": 0})
def existing_in_a_result(x, rows, d):
    return x + 1, rows, [rows, d], d


@on(tensor, lambda: Node(None))
def result_is_written_too(x, node):
    rows = [x + 1]
    node.rows, node.value = rows, {"rows": rows, "node": node}
    return rows, node.value


@on(tensor, lambda: Node(None), lambda: {})
def one_list_in_two_places(x, node, d):
    rows = [x + 1]
    node.rows = rows
    d["rows"] = rows
    d["node"] = node
    return x


def depth(rows):
    count = 0
    while isinstance(rows[0], list):
        rows, count = rows[0], count + 1
    return count, rows[0]


@on(after=depth)
def a_deep_list(x):
    rows = [x + 1]
    for _ in range(2000):
        rows = [rows]
    return rows


@pytest.mark.parametrize("make", CASES, ids=lambda m: m.__name__)
def test_case(make):
    stats = check(make, functools.partial(oxyfuel.compile, fullgraph=True))
    assert stats["graph_breaks"] == 0


@pytest.mark.parametrize("make", BREAKS, ids=lambda m: m.__name__)
def test_break(make):
    assert check(make, oxyfuel.compile)["graph_breaks"] >= 1
