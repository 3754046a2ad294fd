"""What every program of python_programs.py begins with: its imports, globals, classes and small
functions."""

CLASSES = ("Base", "Checked", "Point", "Slotted", "Lazy", "Frozen")

PRELUDE = '''
import collections
import contextlib
import dataclasses
import enum
import functools
import itertools
import math
import operator

import torch


class Problem(Exception):
    pass


class Detailed(Problem):
    def __init__(self, code, note="none"):
        super().__init__(code, note)
        self.code = code

    def __str__(self):
        return f"{self.code}: {self.args[1]}"


class Base:
    kind = "base"

    def __init__(self, a, b=1):
        self.a = a
        self.b = b

    @property
    def double(self):
        return self.a * 2

    @double.setter
    def double(self, value):
        self.a = value // 2

    def method(self, p):
        return self.a + self.b * p

    def clone(self):
        return type(self)(self.a, self.b)

    def __add__(self, other):
        if isinstance(other, Base):
            return type(self)(self.a + other.a, self.b)
        if isinstance(other, int):
            return type(self)(self.a + other, self.b)
        return NotImplemented

    def __eq__(self, other):
        if not isinstance(other, Base):
            return NotImplemented
        return (self.a, self.b) == (other.a, other.b)

    def __len__(self):
        return abs(self.a) % 5

    def __iter__(self):
        yield self.a
        yield self.b

    def __getitem__(self, i):
        return (self.a, self.b)[i]

    def __contains__(self, q):
        return q == self.a

    def __hash__(self):
        return 7

    def __repr__(self):
        return f"{type(self).__name__}({self.a!r}, {self.b!r})"


class Limited:
    """A descriptor that refuses what is too large."""

    def __set_name__(self, owner, name):
        self.name = "_" + name

    def __get__(self, o, owner=None):
        if o is None:
            return self
        return getattr(o, self.name)

    def __set__(self, o, value):
        if value > 50:
            raise ValueError(f"{value} is too large")
        setattr(o, self.name, value)


class Checked(Base):
    a = Limited()

    def method(self, p):
        return super().method(p) + 1

    def __setitem__(self, i, value):
        self.b = value

    def __bool__(self):
        return self.b != 2


class Lazy(Base):
    def __init__(self, a, b=2):
        super().__init__(a, b=b)
        self.asked = []

    def __getattr__(self, name):
        if name.startswith("__") or name in ("asked", "a", "b"):
            raise AttributeError(name)
        self.asked.append(name)
        return len(name)

    @functools.cached_property
    def once(self):
        return self.a + 100


class Slotted(Base):
    __slots__ = ("extra",)

    def __radd__(self, other):
        return other + self.a


@dataclasses.dataclass
class Point(Base):
    a: int
    b: int = 4
    tags: list = dataclasses.field(default_factory=list)

    __hash__ = None


@dataclasses.dataclass(frozen=True)
class Frozen(Base):
    a: int
    b: int = 5


Pair = collections.namedtuple("Pair", "left right", defaults=[3])


class Color(enum.Enum):
    RED = 1
    BLUE = 2


class Manager:
    def __init__(self, name, caught):
        self.name, self.caught = name, caught

    def __enter__(self):
        notes.append("enter " + self.name)
        return self

    def __exit__(self, kind, value, trace):
        notes.append(f"exit {self.name} {kind and kind.__name__}")
        return kind is not None and issubclass(kind, self.caught)


@contextlib.contextmanager
def managed(p):
    notes.append("in")
    try:
        yield p + 1
    except ValueError as e:
        notes.append(e.args)
    finally:
        notes.append("out")


total = 3
notes = []
settings = {"a": 1, "b": 2}
shared = Base(2, 3)


def twice(p):
    return p * 2


def apply(first, second=1):
    return first - second


def adder(step):
    def add(p):
        return p + step

    return add


def bump(by=1):
    global total
    total += by
    return total


def counter(stop):
    k = 0
    while k < stop:
        yield k
        k += 1


@functools.lru_cache(maxsize=None)
def cached(p):
    return p * 3


def noted(function):
    @functools.wraps(function)
    def run(*args, **kwargs):
        notes.append(function.__name__)
        return function(*args, **kwargs)

    return run


def chain(e):
    out = []
    while e is not None and len(out) < 5:
        out.append((type(e).__name__, e.args, e.__suppress_context__))
        e = e.__cause__ or e.__context__
    return out


'''
