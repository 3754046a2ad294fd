"""Programs that make classes while they run: `PROGRAMS` by name, each defining `main(x, n, items,
table, thing)` (the arguments and names of tests/property/python_prelude.py). `BREAKS` names those
that are more than one graph, and why."""

BREAKS = {
    "a class returned": "it leaves the function",
    "an instance returned": "its class leaves the function",
    "a class kept in a global": "it leaves the function",
    "a class in a result that is a container": "it leaves the function",
    "a method returned": "it has the class in __class__",
    "a metaclass of the program's": "it may do anything",
    "init_subclass": "it may do anything",
    "set_name": "it may do anything",
    "mro_entries": "they are asked for the bases",
    "print in the body": "the body is not left in its middle",
    "an enum returned": "its member leaves the function",
    "a subclass registered": "the registry is global",
    "an exception that is kept": "its class leaves the function",
    "type of what is returned": "type() with three arguments makes a class",
}

PROGRAMS = {
    "plain": """
def main(x, n, items, table, thing):
    class Pair:
        kind = "pair"
        scale = n * 2
        def __init__(self, a, b):
            self.a, self.b = a, b
        def total(self):
            return self.a + self.b * self.scale
    p = Pair(x, n)
    q = Pair(p.total(), 1)
    return (q.total(), Pair.kind, p.scale, isinstance(p, Pair), type(q) is Pair, Pair.__name__,
            Pair.__qualname__)
""",
    "properties, static and class methods": """
def main(x, n, items, table, thing):
    class Box:
        made = 0
        def __init__(self, v):
            self._v = v
            type(self).made += 1
        @property
        def v(self):
            return self._v
        @v.setter
        def v(self, value):
            self._v = value * 2
        @staticmethod
        def twice(k):
            return k * 2
        @classmethod
        def of(cls, k):
            return cls(k + cls.made)
        @functools.cached_property
        def heavy(self):
            return self._v + n
    b = Box.of(x)
    b.v = x + n
    c = Box.of(b.v)
    Box.extra = b.heavy
    del Box.twice
    return c.v, Box.made, b.heavy, b.heavy is b.heavy, c.extra, hasattr(Box, "twice")
""",
    "super and __class__": """
def main(x, n, items, table, thing):
    class A:
        def f(self, p):
            return p + 1
        @property
        def name(self):
            return "A"
    class B(A):
        def f(self, p):
            return super().f(p) * 2
        @property
        def name(self):
            return super().name + __class__.__name__
    class C(B, Base):
        def f(self, p):
            return super().f(p) + self.a
    c = C(n, 2)
    return (c.f(x), c.name, c.method(3), [k.__name__ for k in C.__mro__], len(c), n in c,
            c == C(n, 2))
""",
    "names of the body": """
def main(x, n, items, table, thing):
    value = 5
    class Body:
        before = value
        value = value + n
        after = value
        size: int = n
        other: "str"
        listed = [k + n for k in range(2)]
        for i in range(3):
            pass
        if n > 2:
            high = True
        else:
            low = True
        try:
            gone
        except NameError as e:
            missing = str(e)
        gone = 1
        del gone
        def get(self):
            return value
    o = Body()
    return (x + o.value, o.before, o.after, Body.__annotations__, Body.listed, Body.i,
            hasattr(o, "high"),
            hasattr(o, "low"), o.missing, hasattr(o, "gone"), o.get(), Body.__doc__,
            Body.__module__)
""",
    "closures": """
def main(x, n, items, table, thing):
    count = 0
    def make(step):
        class Counter:
            size = step
            def tick(self):
                nonlocal count
                count += self.size
                return count
        return Counter()
    a, b = make(n), make(10)
    seen = [a.tick(), b.tick(), a.tick(), type(a) is type(b)]
    return seen, count, x * count
""",
    "dataclasses": """
def main(x, n, items, table, thing):
    @dataclasses.dataclass
    class Plain:
        a: object
        b: int = 3
        rest: list = dataclasses.field(default_factory=list)
        def __post_init__(self):
            self.rest.append(self.b)
    @dataclasses.dataclass(frozen=True, order=True)
    class Cold:
        a: int
        b: int = n
    @dataclasses.dataclass(slots=True)
    class Tight:
        a: int
    p, q, t = Plain(x), Plain(x, n, [1]), Tight(n)
    c = Cold(1)
    try:
        c.a = 2
    except dataclasses.FrozenInstanceError as e:
        said = str(e)
    try:
        t.b = 2
    except AttributeError as e:
        said += type(e).__name__
    return (p.a + q.b, p.rest, q.rest, c == Cold(1, n), c < Cold(2), said, t.a,
            hash(c) == hash(Cold(1)))
""",
    "slots": """
def main(x, n, items, table, thing):
    class Tight:
        __slots__ = ("a", "b")
        def __init__(self, a):
            self.a = a
    t = Tight(x)
    try:
        t.c = 1
    except AttributeError as e:
        said = str(e)
    try:
        t.b
    except AttributeError as e:
        said += str(e)
    t.b = n
    return t.a + t.b, said, hasattr(t, "__dict__")
""",
    "operators of a class": """
def main(x, n, items, table, thing):
    class V:
        def __init__(self, v):
            self.v = v
        def __add__(self, o):
            return V(self.v + (o.v if isinstance(o, V) else o))
        __radd__ = __add__
        def __eq__(self, o):
            return True
        def __len__(self):
            return 3
        def __getitem__(self, i):
            if i > 2:
                raise IndexError(i)
            return self.v * i
        def __call__(self, k):
            return self.v - k
        def __getattr__(self, name):
            return name + "?"
        def __enter__(self):
            return self
        def __exit__(self, *a):
            return a[0] is KeyError
        def __iter__(self):
            return iter([self.v, self.v])
        def __contains__(self, o):
            return o == 3
        def __bool__(self):
            return n > 2
    with V(x) as v:
        raise KeyError(1)
    total = sum([v, V(x)])
    return total.v, (1 + v).v, v(n), v.name, len(v), v[2], [*v], 3 in v, bool(v), v == 3
""",
    "descriptors": """
def main(x, n, items, table, thing):
    class Double:
        def __get__(self, o, owner=None):
            return o.k * 2 if o is not None else owner.__name__
        def __set__(self, o, value):
            o.k = value + 1
    class Holder:
        d = Double()
    h = Holder()
    h.d = n
    return h.d, Holder.d, x + h.k
""",
    "exceptions": """
def main(x, n, items, table, thing):
    class Odd(ValueError):
        def __init__(self, k):
            super().__init__(k, "odd")
            self.k = k
    out = []
    for k in range(n + 2):
        try:
            if k % 2:
                raise Odd(k)
            out.append(k)
        except Odd as e:
            out.append((e.k, e.args))
    return out, x + 1
""",
    "an exception that leaves": """
def main(x, n, items, table, thing):
    class Odd(Problem):
        pass
    items.append(n)
    try:
        raise Odd(n)
    except Problem as e:
        raise Problem(str(e)) from None
""",
    "a base of the program's": """
def main(x, n, items, table, thing):
    class More(Base):
        kind = "more"
        def method(self, p):
            return super().method(p) + 1
    class Evenmore(More, Point):
        pass
    m, e = More(n), Evenmore(n, 2)
    m.double = 10
    return (m.method(x), m.a, m.clone().a, m.double, e.kind, isinstance(m, Base), Base.kind,
            len(m + m))
""",
    "modules": """
def main(x, n, items, table, thing):
    class Scale(torch.nn.Module):
        def __init__(self, k):
            super().__init__()
            self.k = k
        def forward(self, t):
            return t * self.k
    return Scale(n)(x) + torch.nn.Sequential(Scale(2), Scale(n))(x)
""",
    "autograd functions": """
def main(x, n, items, table, thing):
    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx, t, k):
            ctx.k = k
            return t * 2 + k
        @staticmethod
        def backward(ctx, g):
            return g * 2, None
    return Twice.apply(x, n) + Twice.apply(x, 1)
""",
    "abstract classes": """
import abc
def main(x, n, items, table, thing):
    class Shape(abc.ABC):
        @abc.abstractmethod
        def area(self): ...
    class Square(Shape):
        def area(self):
            return x * n
    try:
        Shape()
    except TypeError as e:
        said = type(e).__name__
    return Square().area(), said, issubclass(Square, Shape)
""",
    "enums": """
def main(x, n, items, table, thing):
    class Color(enum.Enum):
        RED = 1
        BLUE = n + 5
        def next(self):
            return Color.RED if self is Color.BLUE else Color.BLUE
    c = Color(1)
    return (c.name, c.next().value, x + Color.BLUE.value, Color["RED"] is c,
            [m.name for m in Color], len(Color))
""",
    "type with three arguments": """
def main(x, n, items, table, thing):
    A = type("A", (Base,), {"k": n, "f": lambda self, p: p + self.k})
    return A(1, 2).f(x), A.k, A.__name__, A(n).method(2), isinstance(A(1), Base)
""",
    "decorators of a class": """
def main(x, n, items, table, thing):
    seen = []
    def mark(k):
        def wrap(cls):
            cls.mark = k
            seen.append(cls.__name__)
            return cls
        return wrap
    @mark(n)
    @mark(1)
    class A:
        pass
    return A.mark + x, seen
""",
    "made in a loop": """
def main(x, n, items, table, thing):
    out = x
    kinds = []
    for k in range(n):
        class A:
            size = k
        kinds.append(A)
        out = out + A().size
    return out, [a.size for a in kinds], len(set(kinds))
""",
    "nested": """
def main(x, n, items, table, thing):
    class Outer:
        class Inner:
            k = n
            class Deep:
                v = 3
        def make(self):
            return self.Inner.Deep.v + Outer.Inner.k
    return Outer().make() + x, Outer.Inner.Deep.__qualname__
""",
    "in a generator and a comprehension": """
def main(x, n, items, table, thing):
    def gen():
        for k in range(n):
            class A:
                v = k
            yield A().v
    return list(gen()), [type("B", (), {"w": k}).w + x for k in range(2)]
""",
    "a list subclass": """
def main(x, n, items, table, thing):
    class Stack(list):
        def top(self):
            return self[-1]
    class Table(dict):
        def __missing__(self, key):
            return key * 2
    s, t = Stack([x, n]), Table(a=1)
    s.append(x + 1)
    return s.top(), len(s), t["a"], t[4], isinstance(s, list)
""",
    "an error in the body": """
def main(x, n, items, table, thing):
    try:
        class A:
            k = n
            items.append(k)
            raise Problem(k)
    except Problem as e:
        said = e.args
    try:
        class B(Base, object, Base):
            pass
    except TypeError as e:
        said += (type(e).__name__,)
    return said, x
""",
    "effects of the body": """
def main(x, n, items, table, thing):
    class A:
        items.append(n)
        table["class"] = n
        thing.a = n
        y = x + n
    return A.y, A.y is A().y
""",
    # What leaves the function.
    "a class returned": """
def main(x, n, items, table, thing):
    y = x + n
    class A:
        k = n
        def f(self, p):
            return p + self.k
    z = y * 2
    return A().f(z), A
""",
    "an instance returned": """
def main(x, n, items, table, thing):
    @dataclasses.dataclass
    class Result:
        value: object
        more: int = 3
    r = Result(x + n)
    r.more = r.value * 2
    return r
""",
    "a class kept in a global": """
kept = []
def main(x, n, items, table, thing):
    class A:
        k = n
    kept.append(A)
    return x + A.k, len(kept), len(set(kept)), [a.k for a in kept]
""",
    "a class in a result that is a container": """
def main(x, n, items, table, thing):
    class A:
        k = n
    class B(A):
        pass
    out = {"a": [B().k, x]}
    out["b"] = (B,)
    return out["a"], out["b"][0].__name__, out
""",
    "a method returned": """
def main(x, n, items, table, thing):
    class A(Base):
        def f(self, p):
            return super().method(p)
    y = A(n).f(x)
    return y, A.f.__name__, functools.partial(A.f, thing)
""",
    "a metaclass of the program's": """
made = []
class Meta(type):
    def __new__(mcs, name, bases, names, **kw):
        made.append(name)
        return super().__new__(mcs, name, bases, names)
    def __init__(cls, name, bases, names, **kw):
        super().__init__(name, bases, names)
        cls.tag = kw.get("tag")
def main(x, n, items, table, thing):
    class A(metaclass=Meta, tag=n):
        k = 1
    class B(A):
        pass
    return x + A.k, A.tag, B.tag, list(made)
""",
    "init_subclass": """
class Registry:
    known = []
    def __init_subclass__(cls, tag=None, **kw):
        super().__init_subclass__(**kw)
        Registry.known.append(tag)
def main(x, n, items, table, thing):
    class A(Registry, tag=n):
        k = 1
    return x + A.k, list(Registry.known)
""",
    "set_name": """
def main(x, n, items, table, thing):
    class Field:
        def __set_name__(self, owner, name):
            self.name = name
            items.append(name)
        def __get__(self, o, owner=None):
            return self.name
    class A:
        f = Field()
        g = Limited()
    a = A()
    a.g = 3
    return a.f, x + n, a.g
""",
    "mro_entries": """
from typing import Generic, NamedTuple, TypeVar
T = TypeVar("T")
def main(x, n, items, table, thing):
    class A(Generic[T]):
        k = n
    class B(NamedTuple):
        p: int
        q: int = 2
    return A().k + x, tuple(B(n)), B(1).q
""",
    "print in the body": """
def main(x, n, items, table, thing):
    class A:
        print("made", n)
        k = n
    print("used")
    return x + A.k, A().k
""",
    "an enum returned": """
def main(x, n, items, table, thing):
    class Color(enum.IntEnum):
        RED = n
        BLUE = n + 1
    return Color.RED + x, Color.BLUE
""",
    "a subclass registered": """
registry = {}
def register(cls):
    registry[cls.__name__] = cls
    return cls
def main(x, n, items, table, thing):
    @register
    class A:
        k = n
    return registry["A"] is A, registry["A"]().k + x, len(registry)
""",
    "an exception that is kept": """
def main(x, n, items, table, thing):
    class Odd(Exception):
        pass
    try:
        raise Odd(n)
    except Odd as e:
        kept = e
    return kept.args, type(kept).__name__, x, [kept]
""",
    "a namedtuple": """
def main(x, n, items, table, thing):
    P = collections.namedtuple("P", "a b c", defaults=[n])
    p, names = P(x, n), ["k", "class"]
    q = p._replace(b=[P])
    odd = collections.namedtuple("Odd", names, rename=True)(x, 2)
    try:
        collections.namedtuple("P", "1b")
    except ValueError as e:
        wrong = str(e)
    return (p, q.b[0] is type(q) is P, P.__module__, p._asdict()["c"], P._make([1, 2, 3]).c, odd._1,
            odd._fields, wrong, isinstance(p, tuple), P._field_defaults)
""",
    "type of what is returned": """
def main(x, n, items, table, thing):
    A = type("A", (), {"k": n})
    return A, x + A.k
""",
}
