"""A class, metaclass, module or function gets a member after the first call that changes what the
code means."""

import builtins
import types

import pytest
import torch

import oxyfuel


def make_object():
    class B:
        v = 1

        def __init__(self):
            self.w = 2

    return B()


def make_object_of_metaclass():
    class Meta(type):
        pass

    class B(metaclass=Meta):
        pass

    return B()


class Other:
    v = 77
    w = 78


class Base1:
    u = 1


class Base2:
    u = 2


def make_child():
    class Child(Base1):
        pass

    return Child()


def make_module():
    module = types.ModuleType("m")
    module.a = 3
    return module


def make_module_of_class(getattr_=None):
    class Module(types.ModuleType):
        pass

    if getattr_ is not None:
        Module.__getattr__ = getattr_
    return Module("z")


def make_function():
    def g():
        return 1

    return g


def on_class(name, value):
    return lambda o: setattr(type(o), name, value)


def on_metaclass(name, value):
    return lambda o: setattr(type(type(o)), name, value)


def on_object(name, value):
    return lambda o: setattr(o, name, value)


def raise_attribute_error(self, name):
    raise AttributeError(name)


def called(o):
    try:
        return o()
    except TypeError:
        return 3


def make_new(x, o):
    return x + type(o)().w


CASES = {
    "bool": (make_object, lambda x, o: x + (1 if o else 2), on_class("__bool__", lambda s: False)),
    "len": (make_object, lambda x, o: x + (1 if o else 2), on_class("__len__", lambda s: 0)),
    "eq": (
        make_object,
        lambda x, o: x + (1 if o == 3 else 2),
        on_class("__eq__", lambda s, t: True),
    ),
    "ne": (
        make_object,
        lambda x, o: x + (1 if o != 3 else 2),
        on_class("__ne__", lambda s, t: False),
    ),
    "hasattr": (
        make_object,
        lambda x, o: (x + 1, hasattr(o, "q")),
        on_class("__getattr__", lambda s, n: 5),
    ),
    "hasattr2": (
        make_object,
        lambda x, o: (x + 1, hasattr(o, "w")),
        on_class("__getattribute__", raise_attribute_error),
    ),
    "data descr": (make_object, lambda x, o: x + o.w, on_class("w", property(lambda s: 7))),
    "class attr": (make_object, lambda x, o: x + o.v, on_class("v", 9)),
    "inst attr": (make_object, lambda x, o: x + o.v, on_object("v", 4)),
    "callable": (make_object, lambda x, o: (x + 1, callable(o)), on_class("__call__", lambda s: 4)),
    "called": (make_object, lambda x, o: x + called(o), on_class("__call__", lambda s: 4)),
    "iter": (
        make_object,
        lambda x, o: (x + 1, hasattr(o, "__iter__")),
        on_class("__iter__", lambda s: iter([1])),
    ),
    "contains": (
        make_object,
        lambda x, o: (x + 1, 1 in o if hasattr(o, "__contains__") else 5),
        on_class("__contains__", lambda s, y: True),
    ),
    "isinstance": (
        make_object_of_metaclass,
        lambda x, o: x + (1 if isinstance(3, type(o)) else 2),
        on_metaclass("__instancecheck__", lambda c, y: True),
    ),
    "meta getattr": (
        make_object_of_metaclass,
        lambda x, o: (x + 1, getattr(type(o), "zz", 3)),
        on_metaclass("__getattr__", lambda c, y: 8),
    ),
    "meta getattribute": (
        make_object_of_metaclass,
        lambda x, o: (x + 1, getattr(type(o), "zz", 3)),
        on_metaclass("__getattribute__", lambda c, y: 8),
    ),
    "meta attr": (
        make_object_of_metaclass,
        lambda x, o: (x + 1, getattr(type(o), "zz", 3)),
        on_metaclass("zz", 8),
    ),
    "meta call": (
        make_object_of_metaclass,
        lambda x, o: (x + 1, type(type(o)()) is type(o)),
        on_metaclass("__call__", lambda c: 8),
    ),
    "hash": (
        make_object,
        lambda x, o: (x + 1, {1: 2}.get(o, 7)),
        on_class("__hash__", lambda s: 1),
    ),
    "str": (make_object, lambda x, o: (x + 1, len(str(o)) > 3), on_class("__str__", lambda s: "a")),
    "repr": (
        make_object,
        lambda x, o: (x + 1, len(repr(o)) > 3),
        on_class("__repr__", lambda s: "a"),
    ),
    "format": (
        make_object,
        lambda x, o: (x + 1, len(f"{o}") > 3),
        on_class("__format__", lambda s, f: "a"),
    ),
    "setattr": (
        make_object,
        lambda x, o: (setattr(o, "u", 3), x + 1, o.__dict__.get("u"))[1:],
        on_class("__setattr__", lambda s, n, v: s.__dict__.__setitem__("u", 55)),
    ),
    "delattr": (
        make_object,
        lambda x, o: (setattr(o, "u", 3), delattr(o, "u"), x + 1)[2:],
        on_class("__delattr__", lambda s, n: None),
    ),
    "add": (
        make_object,
        lambda x, o: (x + 1, (o + 1) if hasattr(type(o), "__add__") else 3),
        on_class("__add__", lambda s, n: 4),
    ),
    "enter": (
        make_object,
        lambda x, o: (x + 1, hasattr(o, "__enter__")),
        on_class("__enter__", lambda s: 4),
    ),
    "index": (
        make_object,
        lambda x, o: (x + 1, [1, 2, 3][o] if hasattr(o, "__index__") else 4),
        on_class("__index__", lambda s: 2),
    ),
    "bases": (make_object, lambda x, o: (x + 1, getattr(o, "zz", 1)), on_class("zz", 3)),
    "doc": (make_object, lambda x, o: (x + 1, o.__doc__), on_class("__doc__", "hello")),
    "class name": (
        make_object,
        lambda x, o: (x + 1, type(o).__name__),
        on_class("__name__", "hello"),
    ),
    "qualname": (
        make_object,
        lambda x, o: (x + 1, type(o).__qualname__),
        on_class("__qualname__", "hello"),
    ),
    "module": (
        make_object,
        lambda x, o: (x + 1, type(o).__module__),
        on_class("__module__", "hello"),
    ),
    "__class__": (make_object, lambda x, o: x + o.v, on_object("__class__", Other)),
    "mod attr": (make_module, lambda x, o: x + o.a, on_object("a", 4)),
    "mod attr del": (make_module, lambda x, o: x + o.a, lambda o: delattr(o, "a")),
    "mod getattr": (
        make_module,
        lambda x, o: x + getattr(o, "b", 0),
        on_object("__getattr__", lambda n: 5),
    ),
    "mod dict": (make_module, lambda x, o: x + o.__dict__.get("b", 0), on_object("b", 5)),
    "mod doc": (make_module, lambda x, o: (x + 1, o.__doc__), on_object("__doc__", "x")),
    "mod name": (make_module, lambda x, o: (x + 1, o.__name__), on_object("__name__", "x")),
    "mod setattr in f": (
        make_module,
        lambda x, o: (setattr(o, "n", 1), x + o.n, hasattr(o, "k"))[1:],
        on_object("k", "x"),
    ),
    "mod del in f": (
        make_module,
        lambda x, o: (delattr(o, "a") if hasattr(o, "a") else 0, x + 1, hasattr(o, "a"))[1:],
        on_object("a", "x"),
    ),
    "sub mod": (
        lambda: make_module_of_class(lambda s, n: 5),
        lambda x, o: x + o.q,
        on_object("q", 6),
    ),
    "sub mod2": (
        lambda: make_module_of_class(lambda s, n: 5),
        lambda x, o: x + o.q,
        lambda o: setattr(type(o), "__getattr__", lambda s, n: 9),
    ),
    "sub mod3": (
        make_module_of_class,
        lambda x, o: x + getattr(o, "q", 1),
        lambda o: setattr(type(o), "__getattr__", lambda s, n: 9),
    ),
    "sub mod4": (
        make_module_of_class,
        lambda x, o: x + getattr(o, "q", 1),
        lambda o: setattr(type(o), "q", 9),
    ),
    "func attr": (make_function, lambda x, o: x + getattr(o, "q", 1), on_object("q", 9)),
    "func code": (make_function, lambda x, o: x + o(), on_object("__code__", (lambda: 5).__code__)),
    "func defaults": (lambda: lambda a=1: a, lambda x, o: x + o(), on_object("__defaults__", (5,))),
    "func kwdefaults": (
        lambda: lambda *, a=1: a,
        lambda x, o: x + o(),
        on_object("__kwdefaults__", {"a": 5}),
    ),
    "init": (make_object, make_new, on_class("__init__", lambda s: setattr(s, "w", 50))),
    "new": (make_object, make_new, on_class("__new__", staticmethod(lambda c: Other()))),
    "del": (make_object, make_new, on_class("__del__", lambda s: None)),
    "issub": (
        make_object_of_metaclass,
        lambda x, o: x + (1 if issubclass(int, type(o)) else 2),
        on_metaclass("__subclasscheck__", lambda c, y: True),
    ),
    "isinstance tuple": (
        make_object_of_metaclass,
        lambda x, o: x + (1 if isinstance(3, (str, type(o))) else 2),
        on_metaclass("__instancecheck__", lambda c, y: True),
    ),
    "clsbases": (
        make_object,
        lambda x, o: (x + 1, type(o).__bases__, type(o).__mro__[-1]),
        on_class("__name__", "hello"),
    ),
    "rebase": (make_child, lambda x, o: x + o.u, on_class("__bases__", (Base2,))),
    "rebase2": (
        make_child,
        lambda x, o: (x, len(type(o).__bases__), type(o).__bases__[0] is Base1),
        on_class("__bases__", (Base2,)),
    ),
    "rebase3": (
        make_child,
        lambda x, o: (x, type(o).__mro__[1] is Base1),
        on_class("__bases__", (Base2,)),
    ),
    "classmethod": (
        make_object,
        lambda x, o: x + (o.cm() if hasattr(o, "cm") else 1),
        on_class("cm", classmethod(lambda c: 5)),
    ),
    "static": (
        make_object,
        lambda x, o: x + (o.cm() if hasattr(o, "cm") else 1),
        on_class("cm", staticmethod(lambda: 5)),
    ),
    "module subclass getattribute": (
        make_module_of_class,
        lambda x, o: x + getattr(o, "r", 1),
        lambda o: setattr(type(o), "__getattribute__", lambda s, n: 9),
    ),
}


def outcome(f, x, o):
    try:
        return str(f(x, o))
    except Exception as e:
        return f"{type(e).__name__}: {e}"


@pytest.mark.parametrize("case", CASES)
def test_member_added_after_the_first_call(case):
    make, f, change = CASES[case]
    o, x = make(), torch.zeros(2)
    compiled = oxyfuel.compile(f)
    with torch.no_grad():
        assert outcome(compiled, x, o) == outcome(f, x, o)
        change(o)
        expected = outcome(f, x, o)
        assert [outcome(compiled, x, o) for _ in range(2)] == [expected] * 2


class ModuleOfAClass(types.ModuleType):
    pass


def test_writes_to_a_module_of_a_class():
    """Done at each call, and with what a number is in that call."""
    module = ModuleOfAClass("of_a_class")

    def f(x, n):
        module.size = n
        if n > 4:
            del module.size
        return x + 1, sorted(k for k in vars(module) if k[0] != "_")

    for run in (f, oxyfuel.compile(f, fullgraph=True)):
        for n in (2, 2, 3, 4, 5):
            assert run(torch.ones(2), n)[1] == (["size"] if n < 5 else [])
            assert type(vars(module).get("size", 0)) is int and vars(module).pop("size", n) == n


def test_what_is_put_into_builtins_is_a_global():
    def f(x, n):
        builtins.put_there = n
        return x + put_there  # noqa: F821

    g = oxyfuel.compile(f, fullgraph=True)
    for n in (2, 3, 4):
        assert torch.equal(g(torch.ones(2), n), torch.ones(2) + n)
    del builtins.put_there
