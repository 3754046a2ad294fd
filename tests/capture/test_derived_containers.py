"""Containers of classes derived from CPython's own whose methods do more than their bases': what a
capture writes and makes again must not call them a second time, and `super()` reaches the base's
methods behind every break.
"""

import collections
import copy
import types

import pytest
import torch

import oxyfuel

seen = []


def loud(base):
    """A class derived from `base` that notes each call of its methods."""
    names = (
        "__iter__ __len__ __getitem__ __setitem__ __delitem__ __contains__ __reversed__ __init__ "
        "clear extend append add "
        "discard update pop keys values items insert remove __eq__ setdefault __setattr__"
    )

    def method(name):
        inner = getattr(base, name)

        def call(self, *args, **kwargs):
            seen.append(name)
            return inner(self, *args, **kwargs)

        return call

    own = {name: method(name) for name in names.split() if name in base.__dict__}
    return type("Loud" + base.__name__, (base,), own)


BASES = dict, collections.OrderedDict, list, set, tuple, collections.deque, collections.defaultdict
LOUD = {base: loud(base) for base in BASES}


def clears(c):
    c.clear()


def clears_and_fills(d):
    d.clear()
    d["x"] = 1
    return d


def clears_by_super(c):
    super(type(c), c).clear()
    return c


def extends_by_super(c):
    super(type(c), c).clear()
    super(type(c), c).extend([1, 2])
    super(type(c), c).append(3)


def deletes(d):
    del d["a"]
    return len(d)


def updates(d):
    d.update(b=3, z=4)
    d.pop("a")
    d.setdefault("q", 9)


def makes_dict(d):
    made = type(d)()
    made["a"] = 1
    made.update(k=2)
    return made


def makes_list(c):
    made = type(c)()
    made.append(2)
    made.extend([4, 5])
    return made


def makes_set(s):
    made = type(s)([1, 2])
    made.add(7)
    return made


def gives_views(d):
    return d.keys(), iter(d.items())


def sets_attribute(c):
    c.field = 3
    return c


def splices(c):
    c[1:2] = [5, 6]
    c.insert(0, 4)
    c.remove(5)
    return c


def gives_iterator(c):
    iterator = iter(c)
    next(iterator)
    return iterator


def gives_reversed(c):
    iterator = reversed(c)
    next(iterator)
    return iterator


def writes_set(s):
    s.add(9)
    s.discard(1)
    return s


OF_DICTS = clears_and_fills, clears_by_super, deletes, updates, gives_views, sets_attribute
CASES = {
    dict: (*OF_DICTS, makes_dict),
    collections.OrderedDict: (*OF_DICTS, makes_dict),
    collections.defaultdict: OF_DICTS[:4],
    list: (clears, extends_by_super, splices, gives_iterator, gives_reversed, makes_list,
           sets_attribute),
    set: (makes_set, writes_set, clears, clears_by_super),
    tuple: (gives_iterator, gives_reversed, sets_attribute),
    collections.deque: (clears, extends_by_super, gives_iterator, gives_reversed, makes_list),
}  # fmt: skip


def new(base):
    if base is collections.defaultdict:
        return LOUD[base](int, {"a": 1, "b": 2})
    return LOUD[base]({"a": 1, "b": 2} if issubclass(base, dict) else [1, 2, 3])


def plain(value):
    """The value by its base's methods."""
    for base in (dict, list, set, tuple, collections.deque):
        if isinstance(value, base):
            items = base.items(value) if base is dict else map(plain, base.__iter__(value))
            return type(value), list(items), getattr(value, "__dict__", None)
    return (type(value), *map(str, value)) if hasattr(value, "__next__") else str(value)


def outcome(f, base):
    argument = new(base)
    seen.clear()
    result = f(argument)
    calls = list(seen)
    return plain(result), plain(argument), calls


@pytest.mark.parametrize("base", CASES, ids=lambda b: b.__name__)
def test_methods_run_as_often_as_in_python(base, monkeypatch):
    monkeypatch.setenv("OXYFUEL_STRICT", "1")
    for f in CASES[base]:
        expected = outcome(f, base)
        for place in (0, 1, 2, 3, 5, 8, 13, 21):
            oxyfuel.reset()
            run = oxyfuel.compile(f, backend="eager", options={"break_at": place})
            for _ in range(2):
                assert outcome(run, base) == expected, (f.__name__, place)


class Pair(tuple):
    pass


def pair(items, *field):
    made = Pair(items)
    for value in field:
        made.field = value
    return made


def takes_away(p):
    del p.field


@pytest.mark.parametrize("items", [(1, 2), (torch.ones(1), 2)], ids=["numbers", "tensors"])
@pytest.mark.parametrize(
    "f", [lambda p: p.field, lambda p: hasattr(p, "field"), vars, sets_attribute, takes_away]
)
@pytest.mark.parametrize("fields", [((1,), (2,), (), (1,)), ((), (), (1,), ())])
def test_attributes_of_a_tuple(f, items, fields):
    run = oxyfuel.compile(f, backend="eager")
    for field in fields:
        pairs = pair(items, *field), pair(items, *field)
        results = []
        for call, p in zip((f, run), pairs):
            try:
                results.append((repr(call(p)), vars(p)))
            except AttributeError as e:
                results.append((str(e), vars(p)))
        assert results[0] == results[1]


def test_an_ordered_dict_that_has_lost_a_key():
    def f(d):
        return str(d.get("b")), len(d)

    def loses(d):
        dict.__delitem__(d, "a")
        return d

    def make():
        return collections.OrderedDict(a=1, b=2)

    given = [make(), make()]
    for d in given:
        loses(d)
    assert oxyfuel.compile(f, backend="eager")(given[1]) == f(given[0])
    for run in (loses, oxyfuel.compile(loses, backend="eager")):
        d = run(make())
        with pytest.raises(KeyError):
            list(d.items())


def test_a_proxy_of_a_mapping_that_is_no_dict():
    class Mapping:
        def __getitem__(self, key):
            return key + 1

    def f(x):
        proxy = types.MappingProxyType(Mapping())
        oxyfuel.graph_break()
        return proxy[1], x

    assert oxyfuel.compile(f, backend="eager")(3) == f(3)


@pytest.mark.parametrize("place", [0, 1, 2, 4])
@pytest.mark.parametrize("make", [list, set, collections.deque, LOUD[list]], ids=str)
def test_init_again(make, place):
    def f(old):
        new = make([4])
        new.__init__()
        old.__init__()
        return new

    for call in (f, oxyfuel.compile(f, backend="eager", options={"break_at": place})):
        old = make([1, 2, 3])
        assert plain(call(old)) == plain(old) == plain(make())


class Silent(Exception):
    def __init__(self, number):
        super().__init__()
        self.number = number


@pytest.mark.parametrize("place", [0, 2, 4, 7])
def test_init_takes_an_exceptions_arguments(place):
    def f(number):
        again = ImportError(number, name="n")
        again.__init__()
        return Silent(number).args, again.args, again.name

    assert oxyfuel.compile(f, backend="eager", options={"break_at": place})(3) == f(3)


class Slotted(dict):
    __slots__ = ("x",)


class SlottedList(list):
    __slots__ = ("x",)


@pytest.mark.parametrize("made", [Slotted(x=1), SlottedList([1])], ids=lambda o: type(o).__name__)
def test_slots_of_containers_are_no_items(made):
    def run(o):
        if isinstance(o, dict):
            o["x"] = 5
        before = o.x
        o.x = before + 1
        return before, o.x, list(o)

    compiled = oxyfuel.compile(run, backend="eager")
    other = copy.copy(made)
    made.x = other.x = 0
    for _ in range(2):
        assert compiled(made) == run(other)
        assert list(made) == list(other) and made.x == other.x


class Marked(set):
    pass


@pytest.mark.parametrize(
    "made",
    [
        collections.defaultdict(int, a=1),
        collections.Counter("aab"),
        Marked([1]),
        collections.OrderedDict(a=1),
    ],
)
def test_the_text_names_the_class(made):
    def run(o):
        return f"{o}", str(o), repr([o]), f"{(1, o)!r}"

    compiled = oxyfuel.compile(run, backend="eager")
    for _ in range(2):
        assert compiled(made) == run(made)


class Slot:
    __slots__ = ("x",)


def test_a_slot_that_is_not_there():
    def run(o):
        texts = []
        for _ in range(2):
            try:
                del o.x
            except AttributeError as e:
                texts.append(str(e))
        return texts

    compiled = oxyfuel.compile(run, backend="eager")
    for filled in (True, False):
        mine, other = Slot(), Slot()
        if filled:
            mine.x = other.x = 1
        assert compiled(mine) == run(other)


def test_an_error_names_the_class():
    def run(o):
        try:
            return 1 + o
        except TypeError as e:
            return str(e)

    compiled = oxyfuel.compile(run, backend="eager")
    for _ in range(2):
        assert compiled(collections.Counter("ab")) == run(collections.Counter("ab"))


class OfOne(collections.deque):
    def __init__(self, number=1):
        collections.deque.__init__(self, [number])


class Plain(collections.deque):
    pass


@pytest.mark.parametrize("before", [False, True])
def test_deques_of_other_parameters(before):
    def function(one, plain):
        if not before:
            one, plain = OfOne(number=3), Plain("abc", 2)
        one.append(4)
        oxyfuel.graph_break()
        one.extend(plain)
        plain.__init__([7, 8])
        return one, plain, one[0], len(one), plain.maxlen, list(reversed(one)), type(one).__name__

    compiled = oxyfuel.compile(function, backend="eager")
    for length in (1, 2):
        made = [(OfOne(5), Plain(range(length))) for _ in range(2)]
        assert compiled(*made[0]) == function(*made[1])
        assert made[0] == made[1]
