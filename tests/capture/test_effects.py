"""What captured code leaves behind: results that share objects, objects that were there before and
are written.

Each case is a maker of (function, args); it is called several times in eager and compiled, and
everything that a user can see must agree after each call, identities included, without a graph
break.
"""

import collections
import dataclasses
import functools
import itertools
import types

import pytest
import torch
from snapshot import Snapshot, differences, outcome, outcome_differences

import oxyfuel

CALLS = 3
CASES = []
BREAKS = []  # eager's result as well, by way of a break


pytestmark = pytest.mark.usefixtures("strict_without_grad")


def case(make):
    make.after = None
    CASES.append(make)
    return make


def breaks(make):
    make.after = None
    BREAKS.append(make)
    return make


def on(*makers, after=None):
    """A case of the decorated function itself, on a tensor or on what `makers` return; `after`
    looks at the result."""

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


# --------------------------------------------------------------------------------------- identities


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
    names = {1}  # strings lie in another order in each process
    names.add(2)
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


# -------------------------------------------------------------------------- functions and iterators


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
    about = f.__name__, f.__qualname__, f.__defaults__
    return f, lambda: (f.note, f.me is f, *about, f.__globals__ is globals())


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


# --------------------------------------------------------------------------------- kinds of objects


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


@case
def a_generator_in_a_result():
    def f(x):
        g = (x + i for i in range(3))
        return next(g), g

    return f, [tensor()]


a_generator_in_a_result.after = lambda out: (out[0], *out[1])


@case
def a_raised_exception_in_a_result():
    def f(x):
        try:
            raise ValueError("no")
        except ValueError as e:
            return x + 1, e

    return f, [tensor()]


# ---------------------------------------------------------------- what was there before: containers


def numbers():
    return [3, 1, 2]


def letters():
    return {"a": 1, "b": 2, "c": 3}


@on(tensor, list)
def list_appended(x, rows):
    rows.append(x + 1)
    return x


@on(tensor, lambda: [tensor(), 2])
def list_appended_and_read(x, rows):
    rows.append(x + 1)
    rows.append(rows)
    return len(rows), rows[-2] + rows[0], [x is y for y in rows]


@on(tensor, numbers)
def list_many_ways(x, rows):
    rows.remove(1)
    rows.extend([x, 4])
    rows.insert(1, "in")
    rows[0] = x + 1
    last = rows.pop()
    del rows[1]
    rows += [last, x]
    rows.reverse()
    seen = list(rows)
    rows[:] = [1, 2, 3]
    return seen[0] + 1, seen


@on(tensor, numbers)
def list_sliced(x, rows):
    rows[1:2] = [x, x + 1]
    del rows[:1]
    rows[::2] = ["a", "b"] if len(rows) == 3 else rows[::2]
    rows *= 2
    return x


@on(tensor, numbers)
def list_sorted(x, rows):
    rows.sort(key=lambda n: -n, reverse=True)
    first = sorted(rows, reverse=True)
    rows.sort()
    return x * rows[0], first


@on(tensor, numbers, numbers)
def list_cleared_and_filled(x, rows, others):
    rows.clear()
    rows.append(x + 1)
    others.append(9)
    others.clear()
    return rows, len(others)


@on(tensor, lambda: [[1], [2]])
def list_in_a_list(x, rows):
    rows[0].append(x)
    rows.append(rows.pop(0))
    return rows[-1][1] + 1


@on(tensor, lambda: [numbers()] * 2)
def one_list_by_two_ways(x, rows):
    rows[0].append(x + 1)
    return len(rows[1]), rows[1][-1] * 2


@on(tensor, letters)
def dict_many_ways(x, d):
    d["new"] = x + 1
    d["a"] = 5
    gone = d.pop("b")
    d["b"] = gone
    del d["c"]
    none = d.pop("absent", None), d.setdefault("a", 7), d.setdefault("z", x)
    d.update({"u": x}, v=2)
    d |= {"w": 3}
    return list(d), none, "c" in d, d["new"] * 2


@on(tensor, letters, letters)
def dict_cleared(x, d, e):
    d.clear()
    d["b"] = x
    e["first"] = x + 1
    key, value = e.popitem()
    return len(d), key, value, e.get("c"), d.get("a", "none")


@on(tensor, letters)
def dict_keys_that_are_no_strings(x, d):
    d[1], d[(1, "a")], d[None], d[torch.float32] = x, x + 1, 2, "dtype"
    return d[1] + d[1, "a"]


@on(tensor, lambda: {})
def dict_with_a_made_key(x, d):
    n = Node(x + 1)
    d[n] = x
    return len({"k": d}), n


@on(tensor, lambda: collections.OrderedDict(letters()), lambda: collections.defaultdict(list))
def other_dicts(x, d, e):
    d.move_to_end("a")
    turned = d == collections.OrderedDict(letters())
    e["k"].append(x + 1)
    e["k"].append(2)
    return list(d), e["k"][0] + 1, turned


@on(tensor, lambda: collections.Counter("abc"), lambda: Named(letters()), lambda: Items([1]))
def subclasses_that_exist(x, c, d, rows):
    c["a"] += 2
    c["z"] += 1
    d["n"] = x
    d.flag = rows
    rows.append(x + 1)
    return c["a"], rows[1] * 2


@on(tensor, lambda: {1, 2, 3}, after=lambda out: (out[0], out[1], sorted(out[2])))
def sets_that_exist(x, s):
    s.add(4)
    s.add(1)
    s.discard(2)
    s |= {7, 8}
    s.remove(3)
    s -= {8}
    s.add(3)
    return x + 1, (4 in s, 2 in s, len(s)), s


@on(tensor, lambda: set())
def set_that_is_not_read(x, s):
    s.add("a")
    s.update(["b", "a"])
    return x + 1


@on(tensor, lambda: collections.deque([1, 2, 3], maxlen=4))
def deques_that_exist(x, d):
    d.append(x + 1)
    d.appendleft("left")
    d.rotate(1)
    last = d.pop()
    d.extend([x, 5])
    return len(d), d[0], last, list(d), d.maxlen


# ---------------------------------------------------------------- what was there before: attributes


class Settings:
    count = 0
    last = None

    def __init__(self):
        self.mode, self.kept = "a", [1]

    @property
    def loud(self):
        return self.mode.upper()

    @loud.setter
    def loud(self, value):
        self.mode = value.lower()

    @loud.deleter
    def loud(self):
        del self.mode


@on(tensor, Settings)
def attributes_written(x, s):
    s.mode, s.value = "b", x + 1
    s.value = s.value * 2
    s.kept.append(s)
    s.loud = "LOUD"
    setattr(s, "na" + "me", "n")
    return s.value + 1, s.loud, s.name, s.mode


@on(tensor, Settings)
def attributes_deleted(x, s):
    s.extra = x
    del s.extra
    s.mode = "again"
    del s.loud
    s.loud = "x"
    delattr(s, "kept")
    s.kept = x + 1
    return hasattr(s, "extra"), s.mode, getattr(s, "extra", None), list(s.__dict__)


@on(tensor, lambda: Slotted(1, 2))
def slots_written(x, s):
    s.a = x + 1
    s.never = s.b
    del s.b
    t = s.a, hasattr(s, "b"), s.never
    s.b = "b"
    del s.never
    return t


@case
def class_attributes():
    class Own(Settings):
        pass

    def f(x, s, Own=Own):
        Own.count = Own.count + 1
        s.count += 10
        Own.last = x * s.count
        Own.helper = lambda self: self.last + 1
        type(s).flag = True
        return s.helper(), Own.count, s.last, s.flag, Own.__base__.count

    return f, [tensor(), Own()]


def fresh_state():
    global COUNT, LAST
    _module.flag, _module.value = False, None
    noted.__dict__.clear()
    noted.calls = COUNT = 0
    KEPT.clear()
    LAST = None
    return tensor()


@on(fresh_state, after=lambda out: (out, dict(_module.__dict__)))
def module_attributes(x):
    _module.gone = 1
    _module.flag = not _module.flag
    _module.value = x + 1
    del _module.gone
    return _module.value * 2, _module.flag


@on(fresh_state, after=lambda out: (out, noted.__dict__))
def function_attributes(x):
    noted.calls = noted.calls + 1
    noted.last = x + 1
    return noted(x), noted.calls, noted.last * 2


def noted(x):
    return x * noted.calls


_module = types.ModuleType("a_module")
COUNT, KEPT, LAST = 0, [], None


@on(fresh_state, after=lambda out: (out, COUNT, list(KEPT), LAST))
def globals_written(x):
    global COUNT, LAST, PASSING
    COUNT += 1
    LAST = x * COUNT
    PASSING = 1
    del PASSING
    KEPT.append(COUNT)
    return LAST + 1, COUNT


@case
def variables_of_outer_functions():
    count, last, passing = 0, None, 1

    def f(x):
        nonlocal count, last, passing
        count = count + 1
        last = x * count
        passing = last

        def inner():
            nonlocal count
            count += 1
            return count

        return inner() + count, last + 1, inner

    return f, [tensor()]


variables_of_outer_functions.after = lambda out: (out[0], out[1], out[2](), out[2]())


@case
def a_closure_is_written_by_two():
    def make():
        total = []
        n = 0

        def add(x):
            nonlocal n
            n += 1
            total.append(x * n)

        def read():
            return sum(total), n

        return add, read

    add, read = make()

    def f(x):
        add(x)
        add(x + 1)
        return read()

    return f, [tensor()]


@on(lambda: torch.tensor([0, 7]), list, Settings)
def a_step_that_raises(i, rows, s):
    rows.append(1)
    s.mode = "half"
    y = tensor()[:, i]
    s.mode = "done"
    return y


@on(tensor, list)
def an_exception_in_python(x, rows):
    rows.append(x + 1)
    rows.missing = 3
    return rows


@on(tensor, list)
def an_exception_that_is_caught(x, rows):
    try:
        rows.append(1)
        rows.index(x.shape[0] + 5)
    except ValueError:
        rows.append("caught")
    return rows


@pytest.mark.parametrize("make", CASES, ids=lambda m: m.__name__)
def test_case(make):
    stats = check(make, functools.partial(oxyfuel.compile, fullgraph=True))
    assert stats["graph_breaks"] == 0


@pytest.mark.parametrize("make", BREAKS, ids=lambda m: m.__name__)
def test_break(make):
    assert check(make, oxyfuel.compile)["graph_breaks"] >= 1


# ----------------------------------------------------------------------------- aliases and failures


def test_aliases_are_seen():
    """A capture for two lists is no capture for one list twice, nor the other way round."""

    def f(x, a, b):
        a.append(x + 1)
        b.append(len(a))
        return a is b, len(b)

    g = oxyfuel.compile(f, fullgraph=True)
    for shared in (False, True, False, True):
        results = []
        for run in (f, g):
            a = [1]
            b = a if shared else [1]
            results.append(outcome(run, f, (tensor(), a, b), {}))
        assert not outcome_differences(*results)


def test_aliases_of_objects_are_seen():
    def f(x, a, b):
        a.value = x + 1
        b.value = x + 2
        return a.value, a is b

    g = oxyfuel.compile(f, fullgraph=True)
    for shared in (True, False, True, False):
        results = []
        for run in (f, g):
            a = Node(0)
            results.append(outcome(run, f, (tensor(), a, a if shared else Node(0)), {}))
        assert not outcome_differences(*results)


def test_read_through_two_names():
    def f(x, a, b):
        return x + a[0] + b[0]

    g = oxyfuel.compile(f)
    one, two = [1], [20]
    for a, b in ((one, one), (one, two), (two, one), (two, two)):
        assert torch.equal(g(tensor(), a, b), f(tensor(), a, b))


def test_a_list_that_is_appended_to_needs_one_capture():
    rows = []

    def f(x):
        rows.append(x + 1)
        return x

    g = oxyfuel.compile(f, fullgraph=True)
    for _ in range(5):
        g(tensor())
    assert len(rows) == 5 and oxyfuel.stats()["graphs"] == 1


def test_what_a_set_gives_away():
    def f(x, names):
        return x, names.pop(), names.pop(), sorted(names)

    run = oxyfuel.compile(f)
    makers = (
        lambda: {3, 1, 2, 40},
        lambda: {3, 1, 2, 40},
        lambda: {f"n{i}" for i in range(6)},
        lambda: {5},
        lambda: set(),
    )

    def after_pops():
        names = set(range(20))
        for _ in range(7):
            names.pop()
        return names | {100}

    def moved_finger():
        names = {3, 1, 2, 40}
        names.add(names.pop())
        return names

    for make in (*makers, after_pops, moved_finger, moved_finger):
        sets = [make(), make()]
        results = [outcome(call, f, (tensor(), s), {}) for call, s in zip((f, run), sets)]
        assert not outcome_differences(*results)
        assert list(sets[0]) == list(sets[1])
        assert [sets[0].pop() for _ in sets[0].copy()] == [sets[1].pop() for _ in sets[1].copy()]


class Returns:
    def __init__(self, number):
        self.number = number
        if number > 1:
            return number


class Made:
    def __new__(cls, number):
        return object.__new__(Derived)

    def __init__(self, number):
        self.number = number


class Derived(Made):
    def __init__(self, number):
        self.number = number + 1


def keeps_constants(notes):
    notes.append((1, 2))
    notes.append([3])


def joins_lists(notes):
    notes.append([*notes] + list(range(2)))
    notes.append((notes[0],) + (notes[-1],))
    notes.append([notes[0]] * 2)
    notes.append({"a": notes[0]} | {"b": notes[-1]})


@pytest.mark.parametrize("f", [keeps_constants, joins_lists])
@pytest.mark.parametrize("place", [0, 1, 3, 5, 9, 14])
def test_what_is_put_into_a_list_is_itself(f, place):
    compiled = oxyfuel.compile(f, backend="eager", options={"break_at": place})
    plain, captured = [[]], [[]]
    for _ in range(CALLS):
        f(plain)
        compiled(captured)
        assert not differences(Snapshot().of(plain), Snapshot().of(captured), "")


@pytest.mark.parametrize("place", range(12))
def test_what_init_gives(place):
    def f(number):
        return Made(number).number, Returns(number).number

    for n in (1, 2, 1):
        run = oxyfuel.compile(f, options={"break_at": place})
        assert not outcome_differences(outcome(f, f, (n,), {}), outcome(run, f, (n,), {}))
