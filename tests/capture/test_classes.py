"""Classes that captured code makes, at later calls. Programs: test_programs.py."""

import collections
import collections.abc
import gc
import sys
import typing

import pytest
import torch

import oxyfuel

pytestmark = [pytest.mark.usefixtures("strict"), pytest.mark.filterwarnings("ignore")]


def test_each_call_has_a_class_of_its_own():
    def function(x):
        y = x + 1

        class Local:
            k = 2

        return y * Local.k, Local

    compiled = oxyfuel.compile(function, backend="eager")
    x = torch.ones(2)
    classes = [compiled(x)[1] for _ in range(3)]
    assert len(set(classes)) == 3
    assert all(c.__qualname__.endswith("function.<locals>.Local") for c in classes)


def test_a_base_that_changes_is_seen():
    class Parent:
        k = 1

        def f(self, x):
            return x + self.k

    def function(x):
        class Child(Parent):
            def g(self, x):
                return self.f(x) * 2

        return Child().g(x)

    compiled = oxyfuel.compile(function, backend="eager")
    x = torch.ones(2)
    assert torch.equal(compiled(x), function(x))
    Parent.k = 5
    assert torch.equal(compiled(x), function(x))
    Parent.f = lambda self, x: x - self.k
    assert torch.equal(compiled(x), function(x))
    Parent.__init_subclass__ = classmethod(lambda cls: setattr(cls, "k", 7))
    assert torch.equal(compiled(x), function(x))


class Base:
    def names(self):
        return ["Base"]


class Left(Base):
    def names(self):
        return ["Left", *super().names()]


class Right(Base):
    def names(self):
        return ["Right", *super().names()]


@pytest.mark.parametrize("makes", (False, True))
def test_bases_that_are_assigned_later(makes):
    def function(x, cls):
        if makes:

            class Local(cls):
                pass

            o = Local()
        else:
            o = cls()
        return x * len(o.names()), o.names(), isinstance(o, Right), issubclass(cls, Right)

    class Both(Left, Right):
        pass

    compiled = oxyfuel.compile(function, backend="eager")
    x = torch.ones(2)
    for bases in ((Left, Right), (Right, Left), (Left,), (Right,), (Left, Right)):
        Both.__bases__ = bases
        for _ in range(2):
            assert str(compiled(x, Both)) == str(function(x, Both))


@pytest.mark.parametrize("raised", ("Raised", "ExceptionGroup('', [OSError(), Raised()])"))
@pytest.mark.parametrize("word", ("except", "except*"))
def test_exceptions_whose_bases_are_assigned_later(word, raised):
    if sys.version_info < (3, 11) and ("*" in word or "Group" in raised):
        pytest.skip("3.10 has no groups")

    class Raised(KeyError):
        pass

    names = {"Raised": Raised}
    exec(
        f"""
def function(x):
    try:
        try:
            raise {raised}
        {word} KeyError:
            x = x + 1
        {word} IndexError:
            x = x - 1
    except Exception as e:
        x = x * 2
    return x
""",
        names,
    )
    function = names["function"]
    compiled = oxyfuel.compile(function, backend="eager")
    x = torch.ones(2)
    for base in (KeyError, IndexError, KeyError):
        Raised.__bases__ = (base,)
        for _ in range(2):
            assert torch.equal(compiled(x), function(x))


def test_the_reason_names_the_class():
    def function(x):
        class Local:
            pass

        return x + 1, Local()

    report = oxyfuel.explain(function)(torch.ones(2))
    assert "a class made in the function" in str(report)
    assert "Local" in str(report)


def kind(o):
    match o:
        case [*_]:
            return "sequence"
        case {}:
            return "mapping"


@pytest.mark.parametrize("first", ["Sequence", "Mapping"])
def test_classes_that_are_registered_later(first):
    orders = {"Sequence": ["Sequence", "MutableMapping"], "Mapping": ["Mapping", "MutableSequence"]}

    class Base:
        pass

    class Derived(Base):
        pass

    class OfBoth(Base, collections.UserList):
        pass

    compiled = oxyfuel.compile(lambda x, o: (x + 1, kind(o)), backend="eager")
    objects = [Base(), Derived(), OfBoth(), [1], {}, "text", collections.UserDict()]
    x = torch.ones(2)
    for abstract in [None, *orders[first]]:
        if abstract is not None:
            getattr(collections.abc, abstract).register(Base)
        for _ in range(2):
            assert [compiled(x, o)[1] for o in objects] == [kind(o) for o in objects]


def test_no_class_is_left_with_its_base():
    class Base:
        pass

    class Other(Base):
        pass

    def function(x):
        class Local(Base):
            k = 2

        class Further(Local, Other):
            pass

        x = x * Further.k
        oxyfuel.graph_break()
        Base.late = 1
        return x + Further().late, Further

    gc.collect()
    gc.disable()
    try:
        kept = function(torch.ones(2))
        compiled = oxyfuel.compile(function, backend="eager")
        for calls in (2, 3):
            kept = compiled(torch.ones(2)), kept
            assert [c.__name__ for c in Base.__subclasses__()] == ["Other", *["Local"] * calls]
            assert [c.__name__ for c in Other.__subclasses__()] == ["Further"] * calls
    finally:
        gc.enable()


def test_a_class_that_only_the_capture_uses_is_left_with_no_base():
    class Base:
        pass

    def function(x):
        class Local(Base):
            k = 2

        return x * Local.k

    compiled = oxyfuel.compile(function, backend="eager")
    gc.disable()
    try:
        for _ in range(2):
            assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 2.0))
            assert Base.__subclasses__() == []
    finally:
        gc.enable()


class Fields(typing.TypedDict, total=False):
    a: int
    b: torch.Tensor


class CallsList(type):
    __call__ = list


class ListOf(metaclass=CallsList):
    pass


def test_a_call_that_a_metaclass_gives_to_another_class():
    def function(x):
        made = Fields(a=1, b=x + 1)
        made["c"] = x
        return made, type(made), type(Fields({"a": 2})), Fields(), ListOf((x, 2)), x * made["a"]

    compiled, x = oxyfuel.compile(function, fullgraph=True), torch.ones(2)
    expected, result = function(x), compiled(x)
    assert repr(result) == repr(expected)
    assert [type(part) for part in result] == [type(part) for part in expected]


class _Called(type):
    __call__ = dict


class _Static(type):
    @staticmethod
    def __call__(*a):
        return a


class _OfMeta(type):
    @classmethod
    def __call__(cls, *a):
        return (cls.__name__, *a)


class _Builtin(type):
    __call__ = len


@pytest.mark.parametrize("meta", [_Called, _Static, _OfMeta, _Builtin])
def test_a_metaclass_whose_call_is_no_function(meta, monkeypatch):
    monkeypatch.setenv("OXYFUEL_STRICT", "1")
    made = meta("Made", (), {})
    program = {
        _Called: lambda x: made(a=x * 2),
        _Builtin: lambda x: made([x, x * 2]),
    }.get(meta, lambda x: made(x * 2))
    assert str(oxyfuel.compile(program)(torch.ones(2))) == str(program(torch.ones(2)))


def test_a_namedtuple_class_that_leaves():
    """Each call has its own class."""

    def f(x, names):
        made = collections.namedtuple("Made", names)
        names.append("more")
        torch._dynamo.graph_break() if x.dim() == 2 else None
        return made(x + 1, [made]), made

    compiled = oxyfuel.compile(f)
    for x in (torch.ones(2), torch.ones(2, 1)):
        for names in (["a", "b"], ["a", "b"], ["c", "d"]):
            given = list(names)
            pair, made = compiled(x, given)
            assert given == [*names, "more"] and made._fields == tuple(names)
            assert type(pair) is made is pair[1][0] and made.__module__ == __name__
            assert torch.equal(getattr(pair, names[0]), x + 1)
        assert oxyfuel.stats()["graph_breaks"] == 0 or x.dim() == 2
    assert compiled(torch.ones(2), ["a", "b"])[1] is not compiled(torch.ones(2), ["a", "b"])[1]
