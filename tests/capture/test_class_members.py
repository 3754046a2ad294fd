"""What captured code reads of classes that were there before, at later calls too: `__dict__`,
annotations, descriptors of metaclasses, checks of instances."""

import collections
import dataclasses
import gc
import types
import typing

import pytest
import torch

import oxyfuel

pytestmark = [pytest.mark.usefixtures("strict"), pytest.mark.filterwarnings("ignore")]


class Meta(type):
    size = 3

    @property
    def hidden(cls):
        return 1 + cls.__dict__.get("added", 5)

    @property
    def of_meta(cls):
        return cls.size + 1

    def __instancecheck__(cls, o):
        return getattr(o, "tag", None) == cls.__dict__.get("added", "tag") or cls.size > 7

    def __subclasscheck__(cls, other):
        return other.__name__ in cls.names

    names = ("int",)


def make_class():
    class Class(metaclass=Meta):
        hidden = 2  # the metaclass has a data descriptor
        kept = 1
        annotated: int

    return Class


class Tagged:
    tag = "tag"


class Plain:
    pass


READS = {
    "descriptor": lambda c: c.hidden,
    "computed": lambda c: c.of_meta,
    "hasattr": lambda c: hasattr(c, "added") + c.hidden,
    "get": lambda c: c.__dict__.get("added", 4),
    "get_of_vars": lambda c: vars(c).get("added", 4),
    "item": lambda c: c.__dict__["kept"],
    "in": lambda c: "added" in c.__dict__,
    "len": lambda c: len(c.__dict__),
    "iteration": lambda c: [n for n in c.__dict__ if n in ("kept", "added")],
    "items": lambda c: [v for n, v in c.__dict__.items() if n in ("kept", "added")],
    "keys": lambda c: len(list(c.__dict__.keys())),
    "dict": lambda c: dict(c.__dict__)["kept"],
    "unpacked": lambda c: {**c.__dict__}["kept"],
    "union": lambda c: (c.__dict__ | {"z": 1})["kept"],
    "copy": lambda c: c.__dict__.copy()["kept"],
    "getattribute": lambda c: type.__getattribute__(c, "__dict__")["kept"],
    "annotations": lambda c: len(c.__annotations__),
    "isinstance": lambda c: [isinstance(o, c) for o in (Tagged(), Plain(), c(), 3)],
    "of_a_tuple": lambda c: [isinstance(o, (str, (c, dict))) for o in (Tagged(), Plain(), "", 3)],
    "issubclass": lambda c: [issubclass(k, (str, c)) for k in (int, str, Plain)],
    "subclasses": lambda c: len(c.__subclasses__()),
}


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_a_class_that_changes(read, monkeypatch):
    monkeypatch.setattr(Meta, "size", 3)
    monkeypatch.setattr(Meta, "names", ("int",))
    cls = make_class()

    def function(x):
        return x + 1, read(cls)

    compiled = oxyfuel.compile(function)
    x = torch.ones(2)

    def check():
        for _ in range(2):
            ours, eagers = compiled(x), function(x)
            assert torch.equal(ours[0], eagers[0])
            assert ours[1] == eagers[1]

    check()
    cls.kept = 2
    check()
    cls.added = 7
    check()
    cls.__annotations__["more"] = int
    check()
    Meta.size = 8
    check()
    Meta.names = ("Plain",)
    child = Meta("Child", (cls,), {})
    check()
    del cls.added, child
    check()


def test_a_dict_of_a_class_that_captured_code_writes_to():
    cls = make_class()

    def function(x, n):
        shown = cls.__dict__
        before = shown["kept"]
        cls.kept = n
        return x + before, shown["kept"], cls.__dict__["kept"], cls.kept

    compiled = oxyfuel.compile(function)
    x = torch.ones(2)
    for n in (5, 6, 6):
        cls.kept = 1
        ours = compiled(x, n)
        assert cls.kept == n
        cls.kept = 1
        eagers = function(x, n)
        assert torch.equal(ours[0], eagers[0]) and ours[1:] == eagers[1:]


@pytest.mark.parametrize("of", (dict, collections.OrderedDict))
def test_a_proxy_that_was_there_before(of):
    table = of(a=1)
    proxy = types.MappingProxyType(table)
    reads = (
        lambda x: ("b" in proxy, len(proxy), proxy.get("b"), proxy["a"]),
        lambda x: (x + 1, list(proxy), dict(proxy), proxy | {"c": 1}, proxy == {"a": 1}),
    )
    compiled = [oxyfuel.compile(f) for f in reads]
    for _ in range(2):
        assert str([c(0) for c in compiled]) == str([f(0) for f in reads])
        table["b"] = 2


@pytest.mark.parametrize("base", [object, "annotated"])
def test_annotations_are_made_when_they_are_asked_for(base):
    def make():
        bases = (make_class(),) if base == "annotated" else ()
        return type(bases[0])("Bare", bases, {}) if bases else type("Bare", (), {})

    outcomes = []
    for compiler in (lambda f: f, oxyfuel.compile):
        cls = make()

        def function(x, cls=cls):
            return x + len(cls.__annotations__)

        called = compiler(function)
        values = [called(torch.ones(1)).item()]
        there = "__annotations__" in cls.__dict__
        cls.__annotations__["a"] = int
        values += [called(torch.ones(1)).item(), there]
        outcomes.append(values)
    assert outcomes[0] == outcomes[1] == [1.0, 2.0, True]


@typing.runtime_checkable
class HasSize(typing.Protocol):
    size: int

    def grow(self) -> int: ...


def test_protocols():
    class Sized:
        def grow(self):
            return 1

    class Derived(HasSize):
        pass

    class Registered:
        size = 1

    def function(x, o):
        y = x * 2
        return y + 1 if isinstance(o, HasSize) else y - 1

    compiled = oxyfuel.compile(function)
    o, x = Sized(), torch.ones(2)
    for change in (
        lambda: None,
        lambda: setattr(o, "size", 1),
        lambda: delattr(o, "size"),
        lambda: setattr(Sized, "size", 2),
        lambda: setattr(o, "grow", None),
        lambda: HasSize.register(Registered),
    ):
        for object_ in (o, Registered(), Derived(), 3):
            for _ in range(2):
                assert torch.equal(compiled(x, object_), function(x, object_))
        change()
    assert oxyfuel.stats()["fallbacks"] == 0
    assert oxyfuel.stats()["graph_breaks"] == 0


@typing.runtime_checkable
class Grows(typing.Protocol):
    def grow(self) -> int: ...


def test_a_protocol_keeps_what_it_has_found():
    outcomes = []
    for wrap in (lambda f: f, oxyfuel.compile):

        class Base:
            def grow(self):
                return 1

        class Derived(Base):
            pass

        @wrap
        def function(x, o):
            return x + 1 if isinstance(o, Grows) else x - 1

        values, x = [], torch.ones(1)
        for change in (
            lambda: None,
            lambda: delattr(Base, "grow"),  # noqa: B023
            lambda: setattr(Base, "grow", None),  # noqa: B023
        ):
            change()
            values += [function(x, o()).item() for o in (Derived, Base)]
        outcomes.append(values)
    assert outcomes[0] == outcomes[1]


class Constant:
    def __init__(self, value):
        self.value = value

    def __get__(self, instance, owner=None):
        return self.value


def test_a_descriptor_that_becomes_one_of_data(monkeypatch):
    class Holder:
        size = Constant(2)

    def function(x, o):
        return x + o.size

    compiled, x, o = oxyfuel.compile(function), torch.ones(2), Holder()
    o.__dict__["size"] = 100
    for _ in range(2):
        assert torch.equal(compiled(x, o), x + 100)
    monkeypatch.setattr(Constant, "__set__", lambda *_: None, raising=False)
    assert torch.equal(compiled(x, o), x + 2)
    monkeypatch.delattr(Constant, "__set__")
    assert torch.equal(compiled(x, o), x + 100)


# Each with what an object that lies in a class comes to be, and of which class.
BECOMES_A_DESCRIPTOR = {
    "read": (lambda x, o: (x, type(o.member).__name__), "Member", "__get__"),
    "read on the class": (lambda x, o: (x, type(type(o).member).__name__), "Member", "__get__"),
    "read behind it": (lambda x, o: (x, o.behind()), "Member", "__get__"),
    "a property": (lambda x, o: (x, o.derived), "Derived", "__get__"),
    "written": (lambda x, o: (x, setattr(o, "member", 3), dict(vars(o))), "Member", "__set__"),
    "in the metaclass": (lambda x, o: (x, type(type(o).member).__name__), "Meta", "member"),
}


@pytest.mark.parametrize("name", BECOMES_A_DESCRIPTOR)
def test_what_lies_in_a_class_and_becomes_a_descriptor(name):
    function, changed, method = BECOMES_A_DESCRIPTOR[name]

    def run(do):
        class Member:
            pass

        class Derived(property):
            pass

        class Meta(type):
            pass

        class Holder(metaclass=Meta):
            member = Member()
            derived = Derived(lambda self: 5)

        class Below(Holder):
            def behind(self):
                return type(super().member).__name__

        o, out = Below(), []
        for _ in range(2):
            for _ in range(2):
                out.append(str(do(torch.ones(2), o)))
                vars(o).clear()
            value = property(lambda cls: 3) if changed == "Meta" else lambda *args: 3
            setattr(locals()[changed], method, value)
        return out

    assert run(oxyfuel.compile(function, backend="eager")) == run(function)


def test_what_is_deleted_of_a_class_is_there():
    class Base:
        kind = "base"

    class Class(Base):
        pass

    def function(x):
        try:
            del Class.kind
        except AttributeError as e:
            return x + 1, str(e)
        return x, Class.kind

    compiled = oxyfuel.compile(function, backend="eager")
    for present in (True, False, True, False, False):
        found = []
        for run in (function, compiled):
            if present:
                Class.kind = "own"
            found.append(run(torch.ones(2))[1])
            assert "kind" not in vars(Class)
        assert found[0] == found[1]


class ModuleWithProperty(types.ModuleType):
    @property
    def size(self):
        return self.inside + 1


def test_the_class_of_a_module():
    """It may be assigned, and its properties are asked at each call."""
    module = types.ModuleType("of_class")
    module.size, module.inside = 5, 1

    def function(x):
        return x * module.size

    compiled = oxyfuel.compile(function, backend="eager")
    for cls in (types.ModuleType, ModuleWithProperty, types.ModuleType):
        module.__class__ = cls
        for inside in (1, 2):
            module.inside = inside
            assert torch.equal(compiled(torch.ones(2)), function(torch.ones(2)))


def test_hash_asks_the_method_of_the_moment(monkeypatch):
    @dataclasses.dataclass(frozen=True)
    class Key:
        name: str

    key = Key("a")

    def function(x):
        return x, hash(key) == hash(Key("b"))

    compiled = oxyfuel.compile(function, backend="eager")
    assert not compiled(torch.ones(2))[1]
    monkeypatch.setattr(Key, "__hash__", lambda self: 1)
    assert compiled(torch.ones(2))[1]


def test_what_is_written_to_a_metaclass_is_read_of_its_classes():
    class Own(type):
        level = 1

        def __getattr__(cls, name):
            return cls.level * 2

    class Class(metaclass=Own):
        pass

    def function(x, n):
        Own.level = n
        return x * Class.level + Class.virtual

    compiled = oxyfuel.compile(function, backend="eager")
    for n in (3, 4, 5, 3):
        Own.level = 1
        assert torch.equal(compiled(torch.ones(2), n), torch.full((2,), 3.0 * n))
        assert Own.level == n


def test_a_missing_key_is_made_by_the_class_of_the_moment():
    class Table(dict):
        def __missing__(self, key):
            return len(key)

    table = Table()

    def function(x):
        try:
            return x, table["abc"]
        except KeyError as e:
            return x, repr(e)

    compiled = oxyfuel.compile(function, backend="eager")
    makes = Table.__missing__
    for makes_it in (True, False, True):
        if makes_it:
            Table.__missing__ = makes
        else:
            del Table.__missing__
        assert compiled(torch.ones(2))[1] == function(torch.ones(2))[1]


class Registered:
    factor = 1


class First(Registered):
    factor = 2


class Second(Registered):
    factor = 3


def test_subclasses_are_asked_again():
    def f(x):
        kinds = {kind.__name__: kind for kind in Registered.__subclasses__()}
        return x * sum(kind.factor for kind in kinds.values()), list(kinds), First.__subclasses__()

    def with_its_own(x):
        class Local(First):
            factor = 7

        return x * sum(kind.factor for kind in First.__subclasses__())

    x = torch.ones(2)
    compiled = oxyfuel.compile(f, fullgraph=True)
    assert str(compiled(x)) == str(f(x))
    third = type("Third", (Registered,), {"factor": 9})
    assert str(compiled(x)) == str(f(x))
    third.factor = 4
    assert str(compiled(x)) == str(f(x))
    del third
    gc.collect()
    assert str(compiled(x)) == str(f(x))
    assert torch.equal(oxyfuel.compile(with_its_own)(x), x * 7)


def test_methods_of_the_dict_of_a_class():
    cls = make_class()

    def function(x):
        members = cls.__dict__
        return (
            x + 1,
            [v for n, v in members.items() if n in ("kept", "added")],
            members.keys() >= {"kept"},
            sum(v == 1 for v in members.values()),
            {n: v for n, v in members.copy().items() if not n.startswith("_")},
            len([n for n, v in vars(cls).items() if callable(v)]),
            (members.get("kept"), members.get("added", 0), cls.__dict__.get("none")),
        )

    compiled = oxyfuel.compile(function)
    for added in (None, 7, 7, 8):
        if added is not None:
            cls.added = added
        assert str(compiled(torch.ones(2))) == str(function(torch.ones(2)))
    assert oxyfuel.stats()["graph_breaks"] == 0
