"""What captured code leaves behind: results that share objects, objects that were there before and are written.

Each case is a maker of (function, args); it is called several times in eager and compiled, and everything that a user can
see must agree after each call, identities included, without a graph break.
"""

import collections
import dataclasses
import functools
import itertools
import types

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


# --------------------------------------------------------------------------------------------- functions and iterators


def calls(out):
    """What the functions in a result return, called one after the other."""
    return [f() if callable(f) else f for f in out]


@on(after=calls)
def functions_that_share_a_cell(x):
    count = x + 1

    def bump():
        nonlocal count
        count = count + 1
        return count

    return bump, bump, lambda: count, count


@on(after=calls)
def a_function_that_calls_itself(x):
    def f(n=3, *, y=x * 2):
        return y if n == 0 else f(n - 1)

    f.note, f.me = "kept", f
    return f, lambda: (f.note, f.me is f, f.__name__, f.__qualname__, f.__defaults__)


@on(after=calls)
def a_function_with_annotations(x):
    def f(a: int = 2) -> str:
        """What it does."""
        return x

    return f, lambda: (f.__annotations__, f.__doc__, f.__module__)


@on(after=calls)
def bound_methods(x):
    rows, d = [x + 1], {"k": x}
    return rows.pop, d.keys, lambda: rows, (1).bit_length


@on(lambda: [tensor(), 2], after=calls)
def bound_method_of_what_exists(rows):
    return rows.copy, rows[0] + 1


@on(after=lambda out: [out[0](), out[1] is out[0].args[0], out[1]])
def partials(x):
    rows = [x + 1]
    f = functools.partial(dict, rows, a=1)
    g = functools.partial(lambda a, b=None: (a, b), rows, b=x)
    return g, rows, f.keywords


def spent(out):
    """What is left of each iterator in a result; the same iterator is spent once."""
    return [list(i) if hasattr(i, "__next__") else i for i in out]


def iterator_case(name, make):
    @on(after=spent)
    def run(x):
        rows = [x, x + 1, x + 2, x + 3]
        it = make(rows)
        first = next(it)
        return it, first, rows, it

    CASES[-1].__name__ = f"iterator-{name}"


for _name, _make in {
    "list": iter,
    "tuple": lambda rows: iter(tuple(rows)),
    "reversed": reversed,
    "range": lambda rows: iter(range(1, 2 * len(rows), 2)),
    "str": lambda rows: iter("abc"),
    "keys": lambda rows: iter(dict(zip("abcd", rows))),
    "values": lambda rows: iter(dict(zip("abcd", rows)).values()),
    "items": lambda rows: iter(dict(zip("abcd", rows)).items()),
    "enumerate": lambda rows: enumerate(rows, 3),
    "enumerated_items": lambda rows: enumerate(dict(zip("abcd", rows)).items()),
    "zip": lambda rows: zip(rows, iter("abcdef"), range(9)),
    "chain": lambda rows: itertools.chain(rows, "ab"),
    "islice": lambda rows: itertools.islice(rows, 1, 3),
    "count": lambda rows: itertools.islice(itertools.count(4, 2), 5),
    "cycle": lambda rows: itertools.islice(itertools.cycle(rows), 7),
    "repeat": lambda rows: itertools.repeat(rows[0], 3),
    "product": lambda rows: itertools.product(rows, "ab"),
    "pairs": lambda rows: itertools.combinations(rows, 2),
}.items():
    iterator_case(_name, _make)


@on(after=spent)
def a_spent_iterator(x):
    it, items = iter([x]), iter({"a": x}.items())
    return next(it), list(it), it, list(items), items


@on(tensor, lambda: [1, 2, 3], lambda: {"a": 1, "b": 2}, after=spent)
def iterators_over_what_exists(x, rows, d):
    it, items = iter(rows), iter(d.items())
    next(it)
    next(items)
    return x + 1, it, items


@on(after=lambda out: [list(out[0]), out[1]])
def a_list_that_grows_under_its_iterator(x):
    rows = [x, x + 1]
    it = iter(rows)
    next(it)
    rows.append(it)
    return it, rows[:2]


# ---------------------------------------------------------------------------------------------------- kinds of objects


class Slotted:
    __slots__ = ("a", "b", "never")

    def __init__(self, a, b):
        self.a, self.b = a, b


class SlottedBelow(Slotted):
    def __init__(self, a):
        super().__init__(a, self)
        self.c = a


@dataclasses.dataclass
class Record:
    x: object
    rows: list = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True)
class Frozen:
    x: object


class Problem(Exception):
    def __init__(self, text, x):
        super().__init__(text)
        self.x = x


class Below(Node):
    def parent(self):
        return super()


@on()
def slots(x):
    a = Slotted(x + 1, 2)
    return a, SlottedBelow(x), [a]


@on()
def dataclasses_made(x):
    r = Record(x + 1)
    r.rows.append(r)
    return r, Frozen(r), dataclasses.replace(Frozen(1), x=r)


@on()
def deques(x):
    d = collections.deque([1, 2, 3, x], maxlen=3)
    d.append(d)
    return d, d.maxlen, x + 1


@on()
def default_and_counted(x):
    d = collections.defaultdict(list)
    d["a"].append(x + 1)
    c = collections.Counter("abca")
    c["me"] = d
    return d, d.default_factory, c


@on()
def exceptions(x):
    e = Problem("no", x + 1)
    e.__cause__ = ValueError("why", e)
    return e, e.x, e.args, e.__cause__.args


@on(after=lambda out: out[0].__init__.__self__ is out[1])
def a_super_object(x):
    b = Below(x + 1)
    return b.parent(), b


@on(after=lambda out: (out[0].start, out[0].stop is out[1], out[2], out[3]))
def slices_and_ranges(x):
    y = x + 1
    return slice(1, y), y, range(3), x[slice(0, 1)]


@on()
def namespaces(x):
    n = types.SimpleNamespace(a=x + 1)
    n.me = n
    return n.me.me.a, n


@on(after=lambda out: (list(out[0]), list(out[1]), out[2]))
def views_of_dicts(x):
    d = {"a": x + 1, "b": 2}
    return d.keys(), d.values(), d


@on(after=lambda out: (sorted(out[0]), out[1], len(out[2]), next(iter(out[2])) is out[3]))
def sets_of_made_things(x):
    n = Node(x + 1)
    return frozenset((1, 2, 3)), {("a", 1), ("a", 2)}, {n}, n


@on()
def return_types(x):
    return [x.max(0), torch.Size([1, 2]), x.shape]


@breaks
def a_set_of_frozen_records():
    return lambda x: {Frozen(1), Frozen(2)} and [{Frozen(1): x + 1}], [tensor()]


@breaks
def a_generator_in_a_result():
    def f(x):
        g = (x + i for i in range(3))
        return next(g), g

    return f, [tensor()]


a_generator_in_a_result.after = lambda out: (out[0], *out[1])


@breaks
def a_raised_exception_in_a_result():
    def f(x):
        try:
            raise ValueError("no")
        except ValueError as e:
            return x + 1, e

    return f, [tensor()]


@pytest.mark.parametrize("make", CASES, ids=lambda m: m.__name__)
def test_case(make):
    stats = check(make, functools.partial(oxyfuel.compile, fullgraph=True))
    assert stats["graph_breaks"] == 0


@pytest.mark.parametrize("make", BREAKS, ids=lambda m: m.__name__)
def test_break(make):
    assert check(make, oxyfuel.compile)["graph_breaks"] >= 1
