"""Objects: attributes, properties, methods, class features, data classes, operators, special
methods."""

# Clumsy ways to write a thing are meant.
# ruff: noqa: B006, B009, B010, C405, C406, C408, C409, C417, E711, UP028, UP031, UP032
from __future__ import annotations

import collections
import dataclasses
import enum
import types
from typing import NamedTuple

import torch
from families.entry import Family

objects = Family("objects")
operators = Family("operators")
attribute_writes = Family("attribute_writes")
FAMILIES = [objects, operators, attribute_writes]


class Base:
    factor = 2

    def __init__(self, w):
        self.w = w
        self.count = 0

    def scaled(self, x):
        return x * self.w * self.factor

    @property
    def doubled(self):
        return self.w * 2

    @property
    def size(self):
        return self.count

    @size.setter
    def size(self, value):
        self.count = value + 1

    @staticmethod
    def shifted(x, by=1):
        return x + by

    @classmethod
    def of_class(cls, x):
        return x * cls.factor

    def __call__(self, x):
        return self.scaled(x) + 1


class Derived(Base):
    factor = 5

    def __init__(self, w):
        super().__init__(w)
        self.extra = 1.5

    def scaled(self, x):
        return super().scaled(x) + self.extra


def _with(kind):
    return lambda: (kind(torch.randn(3)), torch.randn(3))


@objects.on(_with(Base))
def attribute(o, x):
    return x + o.w


@objects.on(_with(Base))
def class_attribute(o, x):
    return x * o.factor + type(o).factor


@objects.on(_with(Base))
def method(o, x):
    return o.scaled(x)


@objects.on(_with(Derived))
def inherited(o, x):
    return o.scaled(x) + o.doubled


@objects.on(_with(Derived))
def static_and_class_methods(o, x):
    return o.shifted(x, by=2) + Base.shifted(x) + o.of_class(x) + Base.of_class(x)


@objects.on(_with(Base))
def called(o, x):
    return o(x)


@objects.made
def bound_method_itself():
    return Derived(torch.randn(3)).scaled, (torch.randn(3),)


@objects.made
def instance_itself():
    return Derived(torch.randn(3)).__call__, (torch.randn(3),)


@objects.on(_with(Base))
def bound_method_variable(o, x):
    f = o.scaled
    return f(f(x))


@objects.case
def built_inside(x):
    o = Derived(x)
    return o(x) + o.doubled


@objects.case
def built_and_returned(x):
    o = Base(x + 1)
    o.count = 7
    return o


@objects.on(_with(Derived))
def isinstance_of_own(o, x):
    return x + 1 if isinstance(o, Base) and issubclass(type(o), Base) and type(o) is Derived else x


@objects.on(_with(Base))
def getattr_names(o, x):
    return getattr(o, "w") + getattr(o, "nothing", x) + hasattr(o, "count") + hasattr(o, "none")


class Fallback:
    def __init__(self, w):
        self.w = w

    def __getattr__(self, name):
        if name.startswith("times"):
            return self.w * int(name[5:])
        raise AttributeError(name)


@objects.on(_with(Fallback))
def getattr_hook(o, x):
    return x + o.times3 + hasattr(o, "other")


@dataclasses.dataclass
class Point:
    x: torch.Tensor
    y: torch.Tensor
    scale: float = 2.0
    tags: list = dataclasses.field(default_factory=list)

    def length(self):
        return (self.x**2 + self.y**2).sqrt() * self.scale


@objects.on(lambda: (Point(torch.randn(3), torch.randn(3)),))
def dataclass_argument(p):
    return p.length() + len(p.tags)


@objects.case
def dataclass_built(x):
    p = Point(x, x + 1, scale=3.0)
    return p.length(), p


@objects.case
def dataclass_replaced(x):
    return dataclasses.replace(Point(x, x), scale=1.0).length()


class Pair(NamedTuple):
    a: torch.Tensor
    b: torch.Tensor
    n: int = 3


Classic = collections.namedtuple("Classic", "u v")


@objects.on(lambda: (Pair(torch.randn(3), torch.randn(3)),))
def namedtuple_argument(p):
    a, b, n = p
    return p.a * b + n + a


@objects.case
def namedtuple_built(x):
    p = Pair(x, b=x + 1)
    return p, Classic(p.a, p[1]), p._replace(n=4).n


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


@objects.on(lambda: (torch.randn(3), Colour.BLUE))
def enum_values(x, colour):
    return x * colour.value if colour is Colour.BLUE and colour != Colour.RED else x


@objects.on(lambda: (types.SimpleNamespace(a=torch.randn(3), n=2),))
def simple_namespace(o):
    return o.a * o.n


class Slotted:
    __slots__ = ("a",)

    def __init__(self, a):
        self.a = a


@objects.on(_with(Slotted))
def slots(o, x):
    return o.a + x


@objects.on(lambda: (torch.randn(3),), beyond_dynamo=True)
def local_class(x):
    class Local:
        n = 3

        def run(self, y):
            return y * self.n

    return Local().run(x)


class Vector:
    def __init__(self, data):
        self.data = data

    def __add__(self, other):
        return Vector(self.data + (other.data if isinstance(other, Vector) else other))

    __radd__ = __add__

    def __mul__(self, n):
        return Vector(self.data * n)

    def __matmul__(self, other):
        return (self.data * other.data).sum()

    def __neg__(self):
        return Vector(-self.data)

    def __getitem__(self, i):
        return self.data[i]

    def __len__(self):
        return 3

    def __iter__(self):
        return iter([self.data, self.data + 1])

    def __contains__(self, n):
        return n == 3

    def __eq__(self, other):
        return isinstance(other, Vector)

    def __bool__(self):
        return True

    __hash__ = None


@operators.on(_with(Vector), beyond_dynamo=True)
def binary(v, x):
    return ((v + v) * 2 + x).data


@operators.on(_with(Vector))
def reflected(v, x):
    return (1 + v).data + x


@operators.on(_with(Vector), beyond_dynamo=True)
def matmul_negative(v, x):
    return (v @ -v) + x


@operators.on(_with(Vector))
def item_and_length(v, x):
    return v[0] + x * len(v)


@operators.on(_with(Vector))
def iteration(v, x):
    for y in v:
        x = x + y
    return x


@operators.on(_with(Vector))
def contains_and_truth(v, x):
    return x + 1 if 3 in v and 4 not in v and v and v == Vector(x) else x


class Meters(list):
    def total(self):
        return sum(self)


@operators.on(lambda: (Meters([torch.randn(3), torch.randn(3)]),))
def list_subclass(m):
    return m.total() + len(m)


class Config(dict):
    def __getattr__(self, name):
        return self[name]


@operators.on(lambda: (Config(a=torch.randn(3), n=2),))
def dict_subclass(c):
    return c.a * c["n"]


@attribute_writes.on(_with(Base))
def number(o, x):
    o.count += 1
    return x + o.count


@attribute_writes.on(_with(Base))
def tensor(o, x):
    o.w = o.w + x
    return o.w * 2


@attribute_writes.on(_with(Base))
def new_attribute(o, x):
    o.cache = x + 1
    o.items = [x, o.cache]
    return x


@attribute_writes.on(_with(Base))
def by_setter(o, x):
    o.size = 4
    return x * o.size


@attribute_writes.on(_with(Base))
def by_setattr(o, x):
    setattr(o, "count", 9)
    setattr(o, "w", x)
    return x + o.count


@attribute_writes.on(_with(Base))
def deleted(o, x):
    y = x + o.w
    del o.w
    return y


@attribute_writes.on(_with(Base))
def in_place(o, x):
    o.w += x
    return o.w.sum()


@attribute_writes.on(lambda: (lambda o: (o, o, torch.randn(3)))(Base(torch.randn(3))))
def one_object_twice(a, b, x):
    a.count = 3
    return x * b.count


@attribute_writes.on(_with(Derived))
def in_method(o, x):
    def run(self, y):
        self.extra = self.extra * 2
        return self.scaled(y)

    return run(o, x)
