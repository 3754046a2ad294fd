"""Attributes that are not found, or whose getters raise AttributeError: what CPython asks next."""

import builtins
import functools
import sys
import types

import pytest
import torch

import oxyfuel

pytestmark = pytest.mark.usefixtures("strict_without_grad")

X = torch.randn(3)


class Raises:
    def __get__(self, instance, owner=None):
        raise AttributeError("none of mine")


class RaisesAsData(Raises):
    def __set__(self, instance, value):
        raise AttributeError("read only")


class Plain:
    getter, data = Raises(), RaisesAsData()

    @property
    def own(self):
        raise AttributeError("own")

    @functools.cached_property
    def kept(self):
        return self.missing_too

    @property
    def other_error(self):
        raise KeyError("other_error")


class Falls(Plain):
    """Counts what it is asked for."""

    def __init__(self):
        self.asked = []

    def __getattr__(self, name):
        if name.startswith("no_"):
            raise AttributeError(f"{name} is nowhere")
        self.asked.append(name)
        return 7


class Doubles(Falls):
    """What it finds is doubled; what __getattr__ gives is not."""

    def __getattribute__(self, name):
        found = object.__getattribute__(self, name)
        return found * 2 if isinstance(found, int) else found

    six = 3


class Module(torch.nn.Module):
    getter = Raises()

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(3))

    @property
    def own(self):
        raise AttributeError("own")

    def __getattr__(self, name):
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name == "weight":
                raise
            return 5


NAMES = ("getter", "data", "own", "kept", "other_error", "missing", "no_thing", "asked", "six")


def attribute(x, o, name):
    try:
        return x * getattr(o, name), "found"
    except (AttributeError, KeyError) as e:
        return x, type(e).__name__, str(e)


def with_default(x, o, name):
    try:
        return x * getattr(o, name, 2), hasattr(o, name)
    except KeyError as e:
        return x, str(e)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("function", (attribute, with_default))
@pytest.mark.parametrize("cls", (Plain, Falls, Doubles))
def test_as_cpython(cls, function, name):
    compiled = oxyfuel.compile(function)
    results = []
    for run in (function, compiled):
        o = cls()
        try:
            results.append([[run(X, o, name) for _ in range(2)], vars(o)])
        except Exception as e:
            results.append([type(e), str(e)])
    assert str(results[0]) == str(results[1])


def test_a_module():
    def f(x, m):
        return x * m.own + m.getter + m.weight * m.nothing, m(x) if hasattr(m, "no") else None

    Module.forward = lambda self, x: x * self.own + self.weight
    m = Module()
    torch.testing.assert_close(oxyfuel.compile(f)(X, m), f(X, m))
    torch.testing.assert_close(oxyfuel.compile(m)(X), m(X))


def test_a_traced_module():
    traced = torch.jit.trace(torch.nn.Linear(3, 3), X)
    torch.testing.assert_close(oxyfuel.compile(lambda x: traced(x) + 1)(X), traced(X) + 1)


class Slots:
    __slots__ = ("other", "size")


def asks_slots(x, o):
    try:
        found = o.size
    except AttributeError as e:
        found = str(e)
    o.other = 2
    return x + o.other, found, hasattr(o, "size"), getattr(o, "size", 3)


def test_a_slot_that_is_filled_later():
    results = []
    for run in (asks_slots, oxyfuel.compile(asks_slots)):
        o = Slots()
        out = [run(X, o), run(X, o)]
        o.size = 4
        out += [run(X, o), run(X, o)]
        del o.size
        results.append(str([*out, run(X, o)]))
    assert results[0] == results[1]
    assert oxyfuel.stats()["graph_breaks"] == 0


def test_a_name_that_the_builtins_get_later(monkeypatch):
    def f(x):
        try:
            return x + given_later
        except NameError as e:
            return str(e)

    compiled = oxyfuel.compile(f)
    for value in (None, 1, 2):
        if value:
            monkeypatch.setattr(builtins, "given_later", value, raising=False)
        assert str(compiled(X)) == str(f(X))


def test_names_that_a_module_gets_later(monkeypatch):
    def f(x):
        from made_module import size

        try:
            from made_module import more
        except ImportError as e:
            return x + size, str(e), e.name
        return x + size, more

    def module(**members):
        made = types.ModuleType("made_module")
        vars(made).update(members)
        monkeypatch.setitem(sys.modules, "made_module", made)

    compiled = oxyfuel.compile(f)
    for members in (
        {"size": 1},
        {"size": 2},
        {"size": 2, "more": 5},
        {"size": 2},
        {"size": 2, "__file__": "here.py"},
        {"size": 2, "__file__": "here.py", "__spec__": types.SimpleNamespace(_initializing=True)},
    ):
        module(**members)
        for _ in range(2):
            assert str(compiled(X)) == str(f(X))
    made = sys.modules["made_module"]
    for name, value in {"__spec__": None, "__file__": "there.py", "__name__": "other"}.items():
        setattr(made, name, value)
        assert str(compiled(X)) == str(f(X))
    made.more = 7
    assert compiled(X)[1] == 7


STATEMENTS = (
    "import made_package.part as part",
    "import made_package.part; part = made_package.part",
    "from made_package import part",
    "from made_package.part import size; part = made_package",
    "from .part import size; part = made_package",
)


@pytest.mark.parametrize("statement", STATEMENTS)
def test_modules_that_are_imported_and_go(statement, monkeypatch):
    def module(name, **members):
        made = types.ModuleType(name)
        vars(made).update(members)
        monkeypatch.setitem(sys.modules, name, made)
        return made

    package = module("made_package", __path__=[], size=1)
    package.made_package = package
    package.part = module("made_package.part", size=2)
    exec(
        f"""
def f(x):
    try:
        {statement}
    except ImportError as e:
        return x, type(e).__name__, str(e), e.name, e.path
    return x + 1, part.size
""",
        vars(package),
    )
    package.__package__ = "made_package"
    compiled = oxyfuel.compile(package.f)
    changes = (
        lambda: None,
        lambda: monkeypatch.setitem(sys.modules, "made_package.part", None),
        lambda: module("made_package.part", size=3),
        lambda: setattr(package, "part", sys.modules["made_package.part"]),
        lambda: setattr(package, "__package__", "made_package.nothing"),
    )
    for change in changes:
        change()
        for _ in range(2):
            assert str(compiled(X)) == str(package.f(X))


def test_the_class_gets_another_name():
    class Named:
        pass

    def f(x, o):
        try:
            return o.missing
        except AttributeError as error:
            return x * 2, str(error), f"{error}"

    compiled = oxyfuel.compile(f)
    for name in "Named", "Other", "Named":
        Named.__name__ = name
        assert str(compiled(X, Named())) == str(f(X, Named()))


class Slotted:
    __slots__ = ("a",)


@pytest.mark.parametrize("o", [Slotted(), types.SimpleNamespace()], ids=["slot", "dict"])
def test_what_the_code_has_deleted(o):
    def f(x, o):
        o.a = 3
        x, _ = x * o.a, delattr(o, "a")
        try:
            return x, o.a
        except AttributeError as e:
            return x, str(e), e.name, hasattr(o, "a")

    (x, *told), (y, *expected) = oxyfuel.compile(f, fullgraph=True)(X, o), f(X, o)
    torch.testing.assert_close(x, y)
    assert told == expected


class Holder:
    def __init__(self, function):
        self.function = function

    def __call__(self, x):
        return self.function(x)


def asked_behind_a_break(x, weight, mark):
    function = lambda y: y * weight  # noqa: E731
    if mark:
        function.mark = mark
    held = Holder(function)
    torch._dynamo.graph_break()
    if hasattr(function, "mark"):
        x = x + function.mark
    torch._dynamo.graph_break()
    return held(x)


def test_a_function_that_each_call_makes_is_asked():
    compiled = oxyfuel.compile(asked_behind_a_break)
    x, weight = torch.arange(4.0), torch.full((4,), 2.0)
    for _ in range(4):
        assert torch.equal(compiled(x, weight, 0), asked_behind_a_break(x, weight, 0))
    assert oxyfuel.stats()["recompiles"] == 0
    for mark in (1, 3, 0, 5, 0):
        expected = asked_behind_a_break(x, weight, mark)
        assert torch.equal(compiled(x, weight, mark), expected)
