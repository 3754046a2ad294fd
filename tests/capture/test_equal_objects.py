"""Objects that were there before, with `__eq__`, `__hash__` and their like from libraries: what C
code finds by them holds for the objects of one call."""

import collections
import dataclasses
import fractions
import functools
import ipaddress
import itertools
import operator
import pathlib
import types
import typing
import uuid
import weakref

import pytest
import torch

import oxyfuel

pytestmark = [pytest.mark.usefixtures("strict"), pytest.mark.filterwarnings("ignore")]


@dataclasses.dataclass(frozen=True)
class Frozen:
    n: int


@dataclasses.dataclass(unsafe_hash=True, order=True)
class Ordered:
    n: int


@dataclasses.dataclass(frozen=True)
class Pair:
    first: object
    second: int = 0


class Own:
    def __init__(self, n):
        self.n = n

    def __eq__(self, other):
        return type(other) is Own and other.n == self.n

    def __hash__(self):
        return hash(self.n)


KINDS = {
    "frozen": Frozen,
    "ordered": Ordered,
    "own": Own,
    "fraction": lambda n: fractions.Fraction(n, 3),
    "path": lambda n: pathlib.PurePosixPath(str(n)),
    "uuid": lambda n: uuid.UUID(int=n),
    "address": ipaddress.ip_address,
    "alias": lambda n: typing._LiteralGenericAlias(typing.Literal, (n,)),
}
USES = {
    "dict": lambda a, b: len({a: 1, b: 2}),
    "set": lambda a, b: len({a, b}),
    "fromkeys": lambda a, b: len(dict.fromkeys((a, b))),
    "union": lambda a, b: len({a} | {b}),
    "get": lambda a, b: {a: 3}.get(b),
    "eq": lambda a, b: (a == b, a != b),
    "in_tuple": lambda a, b: a in (b,),
    "in_list": lambda a, b: a in [1, b],
    "in_dict": lambda a, b: a in {b: 1},
    "count": lambda a, b: [a, 1].count(b),
    "tuples": lambda a, b: (a, 1) == (b, 1),
    "lists": lambda a, b: [a] == [b],
    "hash": lambda a, b: hash(a) == hash(b),
    "hash_of_tuple": lambda a, b: hash((a,)) == hash((b,)),
    "index": lambda a, b: [a, b].index(b),
    "remove": lambda a, b: len({a} - {b}),
    "inside": lambda a, b: {Pair(a): 3}.get(Pair(b)),
    "counted": lambda a, b: collections.Counter([Pair(a), Pair(a)])[Pair(b)],
    "inside_of_both": lambda a, b: Pair(Pair(a)) in {Pair(Pair(b)): 1},
}


@pytest.mark.parametrize("make", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_other_objects_of_the_class(make, use):
    def function(x, a, b):
        return x + 1, use(a, b)

    compiled = oxyfuel.compile(function)
    x, same = torch.ones(2), make(1)
    for a, b in [(make(1), make(2)), (make(1), make(1)), (same, same), (make(2), same)] * 2:
        ours, eagers = compiled(x, a, b), function(x, a, b)
        assert torch.equal(ours[0], eagers[0])
        assert ours[1] == eagers[1]


def test_objects_that_captured_code_makes_need_no_break():
    def function(x, n):
        table = {Frozen(n): 1, Frozen(n + 1): 2}
        table[Frozen(n)] = 3
        return x * table[Frozen(n)] + len(table)

    compiled = oxyfuel.compile(function, fullgraph=True)
    for n in (1, 2):
        assert torch.equal(compiled(torch.ones(2), n), function(torch.ones(2), n))


def changed(key, n):
    object.__setattr__(key, "n", n)


def looked_up(x, table, key):
    return x * table.get(key, 7), key in table, Own(1) in table, (key, 1) in table


def gone_through(x, table, key):
    for k, v in table.items():
        x = x * v + (k.n if isinstance(k, Own) else 0)
    return x, len(table), [k.n for k in list(table) if not isinstance(k, (tuple, str))]


CHANGES = {
    "nothing": lambda table, key: None,
    "the_key": lambda table, key: changed(key, 2),
    "a_key_inside": lambda table, key: changed(next(iter(table)), 2),
    "a_value": lambda table, key: table.update({Own(1): 8}),
    "another_key": lambda table, key: table.update({Own(5): 8}),
    "order": lambda table, key: table.update({Own(1): table.pop(Own(1))}),
    "all_gone": lambda table, key: table.clear(),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize("program", (looked_up, gone_through))
def test_keys_of_before_the_call(program, change):
    compiled = oxyfuel.compile(program)
    for i in range(3):
        key = Own(1)
        table = {Own(1): 2, Own(2): 3, (Own(1), 1): 4, "text": 5}
        for _ in range(2):
            ours, eagers = compiled(torch.ones(2), table, key), program(torch.ones(2), table, key)
            assert torch.equal(ours[0], eagers[0])
            assert ours[1:] == eagers[1:]
            change(table, key)
            if i == 0:
                break
    if program is looked_up:
        assert oxyfuel.stats()["graph_breaks"] == 0


asked = []


class Tells:
    def __init__(self, n):
        self.n = n

    def __hash__(self):
        return 1

    def __eq__(self, other):
        asked.append((self.n, other.n))
        return self.n == other.n


class Raises:
    def __hash__(self):
        raise ValueError("no hash")


def test_methods_with_effects_and_errors():
    table = {Tells(1): 1.0, Tells(2): 2.0}

    def function(x):
        try:
            {Raises(): 1}
        except ValueError as e:
            message = str(e)
        return x * table[Tells(2)] + len({Tells(3), Tells(3)}), message

    compiled = oxyfuel.compile(function)
    for _ in range(2):
        asked.clear()
        ours, told = compiled(torch.ones(2)), list(asked)
        asked.clear()
        eagers = function(torch.ones(2))
        assert torch.equal(ours[0], eagers[0])
        assert ours[1] == eagers[1]
        assert told == asked


class Counts:
    def __init__(self, n, log):
        self.n, self.log, self.asked = n, log, 0

    def __hash__(self):
        self.asked += 1
        return self.n

    def __eq__(self, other):
        self.log.append(other.n)
        return self.n == other.n


def test_methods_that_write_to_what_the_call_has_made():
    def function(x):
        log = []
        a, b = Counts(1, log), Counts(1, log)
        table = {a: 2, Counts(2, log): 3}
        return x * table.get(b, 7), b in table, a in [b, a], a.asked, b.asked, log

    def in_a_cell(x):
        count = 0

        class Local:
            def tick(self):
                nonlocal count
                count += 1

            def __hash__(self):
                self.tick()
                return 1

        table = {Local(): 1}
        return x * len(table), len({Local()}), Local() in table, count

    for program in (function, in_a_cell):
        compiled = oxyfuel.compile(program)
        for _ in range(2):
            ours, eagers = compiled(torch.ones(2)), program(torch.ones(2))
            assert torch.equal(ours[0], eagers[0])
            assert ours[1:] == eagers[1:]


class Moves:
    def __init__(self, n, total):
        self.n, self.total, self.rest = n, total, iter([*range(9)])

    def __hash__(self):
        self.total.add_(1)
        return 1

    def __eq__(self, other):
        next(self.rest)
        return self.n == other.n


def test_methods_that_write_to_tensors_and_take_items():
    def function(x):
        total = x + 0
        a, b = Moves(1, total), Moves(2, total)
        table = {a: 1, b: 2}
        return x * table.get(Moves(2, total), 3) + total, a in table, next(a.rest), next(b.rest)

    compiled = oxyfuel.compile(function)
    for _ in range(2):
        ours, eagers = compiled(torch.ones(2)), function(torch.ones(2))
        assert torch.equal(ours[0], eagers[0])
        assert ours[1:] == eagers[1:]


class Listed:
    def __init__(self, *items):
        self.items = items

    def __hash__(self):
        parts = []
        for item in self.items:
            parts.append(hash(item))
        return sum(parts)

    def __eq__(self, other):
        return all(a == b for a, b in zip(self.items, other.items))


def test_methods_that_write_to_what_they_have_made():
    def function(x):
        table = {Listed(1, 2): 3}
        return x * table[Listed(1, 2)], Listed(2, 3) in table

    compiled = oxyfuel.compile(function, fullgraph=True)
    ours, eagers = compiled(torch.ones(2)), function(torch.ones(2))
    assert torch.equal(ours[0], eagers[0])
    assert ours[1] == eagers[1]


class Loud(dict):
    def values(self):
        raise ValueError("asked")


def test_a_dict_with_other_values():
    compiled = oxyfuel.compile(looked_up)
    key, table = Own(1), Loud({Own(1): 2, Own(2): 3})
    ours, eagers = compiled(torch.ones(2), table, key), looked_up(torch.ones(2), table, key)
    assert torch.equal(ours[0], eagers[0])
    assert ours[1:] == eagers[1:]


class Bare:
    pass


BARE = (Bare(), Bare(), Bare())
BY_IDENTITY = {
    "lists": lambda a, b: [a] == [b],
    "dicts": lambda a, b: {1: a} == {1: b},
    "keys": lambda a, b: {a: 1} == {b: 1},
    "count": lambda a, b: [a].count(b),
    "in": lambda a, b: b in (a,),
    "get": lambda a, b: {a: 1}.get(b),
    "set": lambda a, b: len({a, b}),
    "tuples as keys": lambda a, b: {(a,): 1}.get((b,)),
    "tuples in a set": lambda a, b: len({(a, 1), (b, 1)}),
    "sets in a set": lambda a, b: len({frozenset([a]), frozenset([b])}),
    "a dict of pairs": lambda a, b: [pairs := [(a, 1), (b, 2)], len(dict(pairs))][-1],
    "a dict of lists": lambda a, b: len(dict([[a, 1], [b, 2]])),
    "a zip": lambda a, b: len(dict(zip([a, b], [1, 2]))),
    "an OrderedDict": lambda a, b: len(collections.OrderedDict([(a, 1), (b, 2)])),
    "a class of dicts": lambda a, b: len(Loud([(a, 1), (b, 2)])),
    "fromkeys": lambda a, b: len(dict.fromkeys([a, b])),
    "Counter": lambda a, b: len(collections.Counter([a, b])),
    "set()": lambda a, b: [items := [a, b], len(set(items)) + len(frozenset(items))][-1],
    "unpacked": lambda a, b: len({*[a, b]}),
    "update": lambda a, b: [d := {}, d.update([(a, 1), (b, 2)]), len(d)][-1],
    "union": lambda a, b: len({1}.union([a], [b])),
    "values": lambda a, b: {BARE[2]: a} == {BARE[2]: b},
    "slices": lambda a, b: slice(a, 1) == slice(b, 1),
    "index": lambda a, b: [a, 2].index(2),
    "deques": lambda a, b: collections.deque([a]) == collections.deque([b]),
    "in a list": lambda a, b: 2 in [a, 3],
    "items": lambda a, b: {1: a}.items() == {1: b}.items(),
    "namespaces": lambda a, b: types.SimpleNamespace(a=a) == types.SimpleNamespace(a=b),
    "deep": lambda a, b: [[[[[[[a]]]]]]] == [[[[[[[b]]]]]]],
    "an iterator": lambda a, b: len(set().union(iter([a, b]))),
    "a chain": lambda a, b: len(set().union(itertools.chain([a], [b]))),
    "a cycle": lambda a, b: len(set().union(itertools.islice(itertools.cycle([a, b]), 3))),
    "an iterator of keys": lambda a, b: len(set().union(iter({1: a, 2: b}.values()))),
    "an iterator to fromkeys": lambda a, b: len(dict.fromkeys(iter((a, b)))),
    "zip": lambda a, b: [d := {}, d.update(zip([a, b], [1, 2])), len(d)][-1],
    "aliases": lambda a, b: list[a] == list[b],
    "aliases as keys": lambda a, b: {list[a]: 1}.get(list[b]),
    "in an iterator": lambda a, b: a in iter([b]),
    "in a generator": lambda a, b: a in (o for o in (b,)),
    "operators": lambda a, b: (len({a} & {b}), {a} <= {b}, len({a: 1} | {b: 2})),
    "methods of dicts": lambda a, b: [d := {a: 1}, d.setdefault(b, 2), d.pop(b)][1:],
    "methods of sets": lambda a, b: [s := {a}, s.add(b), s.discard(b), {a}.isdisjoint([b]), len(s)],
}
BOUND = {
    "methods": lambda a, b: a.__init__ == b.__init__,
    "methods as keys": lambda a, b: {a.__init__: 1}.get(b.__init__),
    "functions": lambda a, b: (f := Own.__hash__.__get__)(a) == f(b),
    "weak references": lambda a, b: weakref.ref(a) == weakref.ref(b),
}


@pytest.mark.parametrize("use", BY_IDENTITY)
def test_a_class_that_gets_an_eq_later(use, monkeypatch):
    def f(x):
        return x + 1, BY_IDENTITY[use](*BARE[:2])

    for break_at in (0, 4, 6, 8, 10):
        oxyfuel.reset()
        compiled = oxyfuel.compile(f, backend="eager", options={"break_at": break_at})
        x = torch.ones(2)
        assert str(compiled(x)) == str(f(x))
        with monkeypatch.context() as change:
            change.setattr(Bare, "__eq__", lambda *_: True)
            change.setattr(Bare, "__hash__", lambda *_: 1)
            assert str(compiled(x)) == str(f(x))
        assert str(compiled(x)) == str(f(x))


def told(use, a, b):
    out = use(a, b)
    return str([type(o) if o is a or o is b else o for o in out] if isinstance(out, list) else out)


@pytest.mark.parametrize("use", BY_IDENTITY | BOUND)
def test_two_objects_that_come_as_one(use):
    use = (BY_IDENTITY | BOUND)[use]

    def f(x, a, b):
        return x + 1, use(a, b)

    compiled = oxyfuel.compile(f, backend="eager")
    x, one, other = torch.ones(2), Bare(), Bare()
    for a, b in ((one, other), (one, one), (other, one), (other, other), (Bare(), Bare())):
        assert told(lambda *both: compiled(x, *both)[1], a, b) == told(use, a, b)


def test_many_keys_that_come_as_fewer():
    def f(x, objects):
        return x * len({*objects}), len(dict.fromkeys([*objects]))

    compiled = oxyfuel.compile(f, backend="eager", fullgraph=True)
    objects = [Bare() for _ in range(200)]
    for n in (200, 200, 100, 199):
        given = (objects[:n] * 2)[:200]
        assert str(compiled(torch.ones(1), given)) == str(f(torch.ones(1), given))
    assert oxyfuel.stats()["graphs"] == 3


TEXTS = {
    "a deque": lambda o: str(collections.deque([o])),
    "a set": lambda o: repr({o}),
    "keys": lambda o: str({o: 1}.keys()),
    "values": lambda o: repr({1: o}.values()),
    "a slice": lambda o: f"{slice(o)}",
    "an alias": lambda o: repr(list[o]),
    "an alias that is handed out": lambda o: list[o],
    "in %": lambda o: "%r %s" % ([o], 1),  # noqa: UP031
    "itself in %": lambda o: "%s" % o + "%r" % o,  # noqa: UP031
    "values in %": lambda o: "%s" % {1: o}.values(),  # noqa: UP031
    "an error in %": lambda o: "%s %s" % (1, ValueError([o])),  # noqa: UP031
    "an alias in %": lambda o: "%s" % list[o],  # noqa: UP031
    "a method in %": lambda o: "%s" % o.__init__,  # noqa: UP031
    "a namespace in %": lambda o: "%s" % types.SimpleNamespace(a=o),  # noqa: UP031
    "a partial in %": lambda o: "%s" % functools.partial(print, o),  # noqa: UP031
    "a proxy in %": lambda o: "%s" % types.MappingProxyType({1: o}),  # noqa: UP031
    "in % of bytes": lambda o: b"%a" % [o] + b"%a" % o,
    "operator.mod": lambda o: operator.mod("%s", o),
    "an error": lambda o: error_of(lambda: [1].index(o)),
    "hash": lambda o: hash(frozenset([o])),
    "hash of a method": lambda o: hash(o.__init__),
    "hash of a reference": lambda o: hash(weakref.ref(o)),
    "__hash__": lambda o: (o, 1).__hash__(),
    "of functions": lambda o: str({lambda: o}) and repr({o.__init__}),
}


def error_of(function):
    try:
        return function()
    except ValueError as e:
        return str(e)


@pytest.mark.parametrize("use", TEXTS)
def test_texts_and_hashes_name_the_object_of_the_call(use):
    def f(x, o):
        return x + 1, TEXTS[use](o)

    compiled = oxyfuel.compile(f, backend="eager")
    one, other = Bare(), Bare()
    for o in (one, other, one):
        assert str(compiled(torch.ones(2), o)) == str(f(torch.ones(2), o))


class Text:
    def __init__(self, text):
        self.text = text

    def __class_getitem__(cls, key):
        return cls(key)


def test_a_set_of_objects_and_a_class_with_items_need_no_break():
    def f(x, objects):
        return x * len(set(objects)), len(frozenset(objects)), Text["a"].text

    compiled = oxyfuel.compile(f, backend="eager", fullgraph=True)
    one, other = Bare(), Bare()
    for objects in ([one, other], [one, one], [other, one]):
        assert str(compiled(torch.ones(2), objects)) == str(f(torch.ones(2), objects))


@pytest.mark.parametrize("answer", [True, False, NotImplemented])
@pytest.mark.parametrize("derives", [True, False])
def test_who_is_asked_whether_two_differ(derives, answer):
    """The object of a derived class first, by its `__eq__`, also where it has no `__ne__`."""
    asked = []

    class Base:
        def __eq__(self, other):
            asked.append(type(self).__name__)
            return answer

    class Other(Base if derives else object):
        def __eq__(self, other):
            asked.append(type(self).__name__)
            return answer

    a, b = Base(), Other()

    def f(x):
        return x, a != b, b != a, a == b, a != 3

    found = []
    for run in (f, oxyfuel.compile(f)):
        asked.clear()
        found.append((run(torch.ones(2))[1:], list(asked)))
    assert found[0] == found[1]


BESIDE_TENSORS = {
    "none": lambda x, o: [x] == o,
    "kinds": lambda x, o: ([x, 1] != (x, 1), {"a": x} == [x], (x,) == 1, {"a": [x]} == "a"),
    "member": lambda x, o: (None in (x, None), "a" in [x, "b"], o in [1, x], [o] in [x, [x]]),
    "values": lambda x, o: (None in {"a": x}.values(), "a" in collections.deque([x, "a"])),
    "dict": lambda x, o: ({"a": x, "b": 1} == {"b": 1, "a": x}, {"a": x} == {"b": x}, {1: x} != {}),
    "place": lambda x, o: ([x, "a", 2].index("a"), (None, x).index(x)),
    "given": lambda x, o: ({"k": o} == {"k": x}, [1, o] == [1, None], o != "a", (o, x) == (x, x)),
}
GIVEN = [None, "a", 1, [1], (1, 2), {"a": 1}, [None], weakref.WeakSet]


@pytest.mark.parametrize("name", BESIDE_TENSORS)
def test_what_no_tensor_equals(name):
    def f(x, o):
        return x + 1, BESIDE_TENSORS[name](x, o)

    compiled = oxyfuel.compile(f)
    x = torch.ones(2)
    for o in [*GIVEN, x, [x], {"a": x}, *GIVEN[::-1]]:
        try:
            expected = f(x, o)[1]
        except (RuntimeError, ValueError) as error:
            with pytest.raises(type(error)):
                compiled(x, o)
        else:
            assert compiled(x, o)[1] == expected, o
    if name in ("kinds", "values", "dict", "place"):
        assert oxyfuel.stats()["graph_breaks"] == 0
