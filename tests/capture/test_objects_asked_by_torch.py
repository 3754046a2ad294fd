"""Objects of a user's classes, given to what asks them: operators beside tensors, indices, sizes
and other arguments of torch, caches. What they answer changes between the calls."""

import collections
import dataclasses
import enum
import fractions
import functools
import operator

import numpy
import pytest
import torch

import oxyfuel

STATES = (1, 2, 3)


@pytest.fixture(autouse=True)
def fresh(strict):
    pass


def same(f, make, states=STATES, change=None, x=None):
    """Of both runs: results, or errors by their types, and what the objects have counted."""
    found = []
    for run in (f, oxyfuel.compile(f)):
        o, out = make(states[0]), []
        for state in states:
            o = make(state) if change is None else o
            if change is not None:
                change(o, state)
            argument = torch.arange(1.0, 5.0) if x is None else x.copy()
            try:
                out.append(repr(run(argument, o)))
            except Exception as e:
                out.append(type(e))
            out.append(getattr(o, "calls", None))
        found.append(out)
    assert found[0] == found[1]


def set_k(o, k):
    o.k = k


class Counted:
    def __init__(self, k):
        self.k, self.calls = k, 0

    def asked(self):
        self.calls += 1
        return self.k


class Operand(Counted):
    def apply(self, x):
        return x * self.asked()

    __matmul__ = __rmatmul__ = __mul__ = __rmul__ = __radd__ = __rsub__ = __rtruediv__ = apply
    __rpow__ = __rfloordiv__ = __rmod__ = __rlshift__ = __gt__ = __ge__ = __eq__ = __ne__ = apply
    __imul__ = __iadd__ = __ror__ = __rand__ = __rxor__ = apply


class Refuses(Counted):
    def __mul__(self, x):
        self.calls += 1
        return NotImplemented

    __rmul__ = __matmul__ = __eq__ = __rsub__ = __mul__


class Pair(collections.namedtuple("Pair", "a b")):
    def __mul__(self, x):
        return x * self.a - self.b

    __rmul__ = __mul__


class Scales(torch.nn.Module):
    def __init__(self, k):
        super().__init__()
        self.k = k

    def __matmul__(self, x):
        return x * self.k

    __rmatmul__ = __rmul__ = __mul__ = __matmul__


class Meta(type):
    def __mul__(cls, x):
        return x * cls.k

    __rmul__ = __rmatmul__ = __matmul__ = __mul__


def class_of(k):
    return Meta("OfMeta", (), {"k": k})


OPERATORS = {
    "o@x": lambda x, o: o @ x,
    "x@o": lambda x, o: x @ o,
    "o*x": lambda x, o: o * x,
    "x*o": lambda x, o: x * o,
    "x+o": lambda x, o: x + o,
    "x-o": lambda x, o: (x + 1) - o,
    "x/o": lambda x, o: x / o,
    "x//o": lambda x, o: x // o,
    "x%o": lambda x, o: x % o,
    "x**o": lambda x, o: x**o,
    "x<<o": lambda x, o: x << o,
    "x|o": lambda x, o: x | o,
    "x^o": lambda x, o: x ^ o,
    "x<o": lambda x, o: x < o,
    "x<=o": lambda x, o: x <= o,
    "o<x": lambda x, o: o < x,
    "x==o": lambda x, o: x == o,
    "o==x": lambda x, o: o == x,
    "x!=o": lambda x, o: x != o,
    "operator.mul": lambda x, o: operator.mul(o, x),
    "operator.matmul": lambda x, o: operator.matmul(x, o),
    "sum": lambda x, o: sum([x, o]),
}


def iadd(x, o):
    x += o
    return x


def imul(x, o):
    o *= x
    return o


OPERATORS |= {"x+=o": iadd, "o*=x": imul}


@pytest.mark.parametrize("f", OPERATORS.values(), ids=OPERATORS)
@pytest.mark.parametrize("kind", [Operand, Refuses, Counted])
def test_operators_beside_a_tensor(f, kind):
    same(f, kind, change=set_k)


MUL = [OPERATORS[name] for name in ("o*x", "x*o", "o@x", "x@o", "operator.mul")]


@pytest.mark.parametrize("f", MUL)
@pytest.mark.parametrize("make", [lambda k: Pair(k, 2), Scales, class_of, lambda k: Pair(2, k)])
def test_operators_of_tuples_modules_and_classes(f, make):
    same(f, make)


@pytest.mark.parametrize("f", [OPERATORS[name] for name in ("x*o", "o*x", "x+o", "x==o")])
@pytest.mark.parametrize("kind", [Operand, lambda k: Float(k)])
def test_operators_beside_an_array(f, kind):
    same(f, kind, x=numpy.arange(3.0))


class AsArray(Counted):
    def __array__(self, dtype=None, copy=None):
        return numpy.full(3, float(self.asked()))


@pytest.mark.parametrize(
    "f",
    [
        lambda x, o: x[0] * torch.from_numpy(numpy.asarray(o)),
        lambda x, o: x * float(numpy.array(o)[0]),
        lambda x, o: x * float(numpy.sum(o)),
    ],
)
def test_an_object_that_is_made_an_array(f):
    same(f, AsArray, change=set_k)


def test_operators_that_are_followed_break_nothing():
    o = Operand(2)
    compiled = oxyfuel.compile(lambda x: (o @ (x + 1)) + o)
    for o.k in STATES:
        torch.testing.assert_close(compiled(torch.ones(2)), torch.ones(2) * 2 * o.k * o.k)
    stats = oxyfuel.stats()
    assert o.calls == 6 and stats["graph_breaks"] == stats["fallbacks"] == 0


class Float(float):
    pass


class Int(int):
    pass


class Complex(complex):
    pass


class Text(str):
    pass


class Backwards(float):
    """Not what its value is."""

    def __mul__(self, x):
        return x - float(self)

    def __rmul__(self, x):
        return x + float(self)

    def __eq__(self, x):
        return x + 10

    __hash__ = None


class Level(enum.IntEnum):
    LOW = 1
    MIDDLE = 2
    HIGH = 3

    def __mul__(self, x):
        return x - self.value


VALUES = {
    "mul": lambda x, v: v * x,
    "rmul": lambda x, v: x * v,
    "rsub": lambda x, v: v - x,
    "pow": lambda x, v: x**v,
    "add": lambda x, v: torch.add(x, x, alpha=v),
    "addcmul": lambda x, v: x.addcmul(x, x, value=v),
    "eq": lambda x, v: x == v,
    "full": lambda x, v: torch.full((2,), v),
    "tensor": lambda x, v: torch.tensor([v]) + x,
    "fill": lambda x, v: x.fill_(v),
    "setitem": lambda x, v: operator.setitem(x, 0, v) or x,
    "max": lambda x, v: x * max(v, 1),
    "float": lambda x, v: x * float(v),
    "sum": lambda x, v: x * sum([v, 1]),
}
PLACES = {
    "index": lambda x, v: x[v],
    "slice": lambda x, v: x[:v] + 1,
    "item": lambda x, v: x * [4, 5, 6, 7][v],
    "key": lambda x, v: x * {1: 5, 2: 6, 3: 7}[v],
    "topk": lambda x, v: x.topk(v).values,
    "roll": lambda x, v: torch.roll(x, v),
    "arange": lambda x, v: torch.arange(v),
    "zeros": lambda x, v: torch.zeros(v),
    "shape": lambda x, v: torch.zeros((v, 2)),
    "view": lambda x, v: x[: 2 * v].view(-1, v) if v < 3 else x,
    "range": lambda x, v: [x + i for i in range(v)],
    "narrow": lambda x, v: x.narrow(0, 0, v),
    "expand": lambda x, v: x.expand(v, 4),
    "store": lambda x, v: operator.setitem(x, slice(v), 0) or x,
}


@pytest.mark.parametrize("f", VALUES.values(), ids=VALUES)
@pytest.mark.parametrize("kind", [Float, Int, Complex, Backwards, Level])
def test_values_of_derived_numbers(f, kind):
    same(f, kind)


@pytest.mark.parametrize("f", PLACES.values(), ids=PLACES)
@pytest.mark.parametrize("kind", [Int, Level])
def test_indices_of_derived_ints(f, kind):
    same(f, kind)


@pytest.mark.parametrize(
    "f",
    [
        lambda x, s: x * {"sin": 1, "cos": 2}[s],
        lambda x, s: getattr(x, s)(),
        lambda x, s: x if s in ("sin", "tan") else -x,
        lambda x, s: x * len(s + s[:1]),
        lambda x, s: x + (s == "sin"),
        lambda x, s: torch.einsum(s, x, x) if "," in s else x,
    ],
)
def test_texts_of_a_derived_class(f):
    same(f, Text, ("sin", "cos", "sin", "i,i->i", "i,j->ij"))


@dataclasses.dataclass
class Place:
    k: int
    calls: int = 0

    def __index__(self):
        self.calls += 1
        return self.k

    __int__ = __index__


class Number(Counted):
    def __float__(self):
        return float(self.asked())


class Sized(Counted):
    def __len__(self):
        return self.asked()

    def __getitem__(self, i):
        if i >= self.k:
            raise IndexError
        return i + self.k


class Items(list):
    """Has more than it holds."""

    def __init__(self, k):
        super().__init__([1, 2])
        self.k = k

    def __len__(self):
        return self.k

    def __iter__(self):
        return iter([self.k] * self.k)

    def __getitem__(self, i):
        return self.k


class Truth(Counted):
    def __bool__(self):
        return self.asked() > 1


ARGUMENTS = PLACES | {
    "new_tensor": lambda x, o: x.new_tensor([o]),
    "tensor": lambda x, o: torch.tensor(o),
    "as_tensor": lambda x, o: torch.as_tensor([o, o]),
    "nested": lambda x, o: torch.tensor([[1.0, o]]),
    "fill": lambda x, o: x.fill_(o),
    "add": lambda x, o: torch.add(x, o),
    "sizes": lambda x, o: x.new_zeros(o),
    "keepdim": lambda x, o: x.sum(0, keepdim=o),
    "size": lambda x, o: x.view(2, 2).size(o),
    "pad": lambda x, o: torch.nn.functional.pad(x, (o, 1)),
    "slices": lambda x, o: x.view(2, 2)[0, o:],
    "several": lambda x, o: x.view(2, 1, 2)[..., 0, :o],
    "contains": lambda x, o: x * (2 in o),
    "kwargs": lambda x, o: torch.sum(x, **{"dim": o}),
}


@pytest.mark.parametrize("f", ARGUMENTS.values(), ids=ARGUMENTS)
@pytest.mark.parametrize("kind", [Place, Number, Sized, Truth])
def test_objects_given_to_torch(f, kind):
    same(f, kind, (1, 2, 1, 3), change=set_k)


@pytest.mark.parametrize("f", ARGUMENTS.values(), ids=ARGUMENTS)
def test_lists_that_do_not_tell_what_they_hold(f):
    same(f, Items, (1, 2), change=set_k)


def test_indices_that_are_followed_break_nothing():
    o = Place(1)
    compiled = oxyfuel.compile(lambda x: x[o] + x[:o].sum() + [1, 2, 3][o])
    x = torch.arange(4.0)
    for o.k in (0, 1, 2):
        torch.testing.assert_close(compiled(x), x[o.k] + x[: o.k].sum() + [1, 2, 3][o.k])
    stats = oxyfuel.stats()
    assert o.calls == 9 and stats["graph_breaks"] == stats["fallbacks"] == 0


@pytest.mark.parametrize("f", [VALUES["mul"], VALUES["rmul"], VALUES["fill"], VALUES["full"]])
def test_fractions(f):
    same(f, lambda k: fractions.Fraction(k, 2))


class Handles(Counted):
    @classmethod
    def __torch_function__(cls, function, types, args, kwargs=None):
        args = [a.asked() if isinstance(a, cls) else a for a in args]
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    "f",
    [
        lambda x, o: torch.add(o, x),
        lambda x, o: x.add(o),
        lambda x, o: x + o,
        lambda x, o: o - x if hasattr(o, "__sub__") else x,
        lambda x, o: torch.stack([x, x]).sum(o),
        lambda x, o: torch.nn.functional.dropout(x, 0.0 * o.k, o),
        lambda x, o: torch.nn.functional.softmax(x, o),
        lambda x, o: torch.nn.functional.softmax(x.view(2, 2), Handles(0)),
    ],
)
def test_an_object_with_torch_function(f):
    same(f, Handles, (0, 0) if "softmax" in f.__code__.co_names else STATES, change=set_k)


class Options(dict):
    def __init__(self, k):
        super().__init__(alpha=7)
        self.k = k

    def __iter__(self):
        return iter(self.keys())

    def keys(self):
        return ["alpha"]

    def __getitem__(self, key):
        return self.k


class Ordered(collections.OrderedDict):
    def __init__(self, k):
        super().__init__(alpha=7)
        self.k = k

    def __getitem__(self, key):
        return self.k


@pytest.mark.parametrize(
    "f",
    [
        lambda x, o: torch.add(x, x, **o),
        lambda x, o: {**o, "x": x},
        lambda x, o: dict(o, x=x),
        lambda x, o: (lambda **kwargs: x * kwargs["alpha"])(**o),
    ],
)
@pytest.mark.parametrize("kind", [Options, Ordered])
def test_dicts_that_do_not_tell_what_they_hold(f, kind):
    same(f, kind, change=set_k)


class Tuple(tuple):
    """Has more than it holds."""

    __slots__ = ()

    def __len__(self):
        return Weight.k - 1

    def __iter__(self):
        return iter([Weight.k] * Weight.k)

    def __getitem__(self, i):
        return Weight.k


class Set(set):
    __len__, __iter__ = Tuple.__len__, Tuple.__iter__


class Dict(dict):
    __len__, __iter__ = Tuple.__len__, Tuple.__iter__


class HasTruth(type):
    def __bool__(cls):
        return Weight.k > 1


class HasOddTruth(type):
    __bool__ = functools.partialmethod(HasTruth.__bool__)


READS = [
    lambda x, o: x if o else -x,
    lambda x, o: torch.Size(o),
    lambda x, o: (x, [9].__iadd__(o), {9} | set(o), frozenset(o), sorted(o)),
    lambda x, o: (x, [9].extend(o), {9}.union(o), list(reversed([*o])), 1 in o),
    lambda x, o: torch.zeros(o),
    lambda x, o: x.new_zeros(*o),
]


@pytest.mark.parametrize("f", READS)
@pytest.mark.parametrize("kind", [Tuple, Set, Dict.fromkeys])
def test_containers_that_do_not_tell_what_they_hold(f, kind):
    def make(k):
        Weight.k = k
        return kind([1, 2])

    same(f, make)


@pytest.mark.parametrize("kind", [HasTruth, HasOddTruth])
def test_the_truth_of_a_class(kind):
    def make(k):
        Weight.k = k
        return kind("Truth", (), {})

    same(READS[0], make)


class Bytes(Counted):
    def __bytes__(self):
        return bytes([self.asked()])

    def __iter__(self):
        return iter([0])


@pytest.mark.parametrize("kind", [Bytes, Sized, Place])
@pytest.mark.parametrize("make", [bytes, bytearray])
def test_bytes_of_an_object(kind, make):
    same(lambda x, o: x * len(make(o)) + sum(make(o)), kind, change=set_k)


class Weight:
    k = 1


def cached(limit, typed=False):
    @functools.lru_cache(limit, typed=typed)
    def weight(*n, **named):
        return sum(n) * Weight.k + len(named)

    return weight


@pytest.mark.parametrize("typed", [False, True])
@pytest.mark.parametrize("limit", [None, 0, 1, 2])
@pytest.mark.parametrize("clear", [False, True])
def test_caches_that_let_go(limit, typed, clear):
    def f(x, weight):
        return x * weight(2) + weight(3, by=1.0), weight()

    found = []
    for run in (f, oxyfuel.compile(f)):
        weight, out = cached(limit, typed), []
        for Weight.k in (1, 2, 3, 3):
            if clear:
                weight.cache_clear()
            out.append(repr(run(torch.ones(2), weight)))
            weight(4), weight(5)
            out.append(repr(run(torch.ones(2), weight)))
        found.append((out, weight.cache_info().currsize))
    assert found[0] == found[1]


@pytest.mark.parametrize("limit", [None, 1, 2])
def test_a_cache_that_is_full(limit):
    weight = cached(limit)
    compiled = oxyfuel.compile(lambda x, n: x * weight(n))
    for n in (1, 2, 3, 1, 3):
        for Weight.k in (2, 4):
            weight.cache_clear()
            weight(5), weight(6), weight(7)
            assert compiled(torch.ones(1), n).item() == n * Weight.k
    assert oxyfuel.stats()["graph_breaks"] == 0


@pytest.mark.parametrize("typed", [False, True])
@pytest.mark.parametrize("limit", [None, 0, 2])
def test_a_cache_made_inside(limit, typed):
    def f(x, o):
        weight = cached(limit, typed)
        out = [x * weight(n) for n in (1, 1.0, 2, 3, 1, 2)]
        out.append(weight("a", b=1) if o.k > 5 else weight(b=1))
        return out, weight.cache_info(), weight.cache_clear(), weight.__name__

    same(f, lambda k: Weight, change=set_k)


def test_a_cache_made_inside_that_leaves():
    def f(x):
        weight = cached(None)
        return x * weight(2), weight

    compiled = oxyfuel.compile(f)
    for Weight.k in STATES:
        y, weight = compiled(torch.ones(1))
        assert type(weight) is type(cached(None)) and y.item() == weight(2) == 2 * Weight.k


def unwrapped(o):
    if isinstance(o, Wrapped):
        return o.t
    return type(o)(unwrapped(a) for a in o) if isinstance(o, (list, tuple)) else o


class Wrapped:
    def __init__(self, t):
        self.t, self.calls = t, []

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        kwargs = {name: unwrapped(a) for name, a in (kwargs or {}).items()}
        made = Wrapped(function(*unwrapped(args), **kwargs))
        made.calls = [cls.__name__, *(t.__name__ for t in types), function.__name__]
        return made

    def __repr__(self):
        return f"{type(self).__name__}({self.t}, {self.calls})"


class Derived(Wrapped):
    pass


class Other(Derived):
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        return NotImplemented


class OfInstance:
    def __init__(self, k):
        self.k = k

    def __torch_function__(self, function, types, args=(), kwargs=None):
        return function(args[0] * 0 + self.k, *args[2:], **(kwargs or {}))


def many(x, o):
    return torch.cat([Wrapped(x), o, Derived(x)]), torch.stack((o, o), dim=1)


GIVEN_TO_TORCH = {
    "add": lambda x, o: torch.add(Wrapped(x), o.t),
    "existing": lambda x, o: torch.add(x, o),
    "stack": lambda x, o: torch.stack([Wrapped(x), Wrapped(x)]),
    "existing_in_list": lambda x, o: torch.stack([o, Wrapped(x), x]),
    "derived": lambda x, o: torch.maximum(Wrapped(x), Derived(x * 2)),
    "derived_first": lambda x, o: torch.maximum(Derived(x * 2), Wrapped(x)),
    "where": lambda x, o: torch.where(x > 2, Wrapped(x), o),
    "keywords": lambda x, o: torch.add(x, other=Wrapped(x), alpha=2),
    "many": many,
    "used": lambda x, o: torch.mul(torch.sin(torch.add(Wrapped(x), 1)), 2).t + 1,
    "refused": lambda x, o: torch.add(Other(x), x),
    "refused_first": lambda x, o: torch.add(Wrapped(x), Other(x)),
}


@pytest.mark.parametrize("name", GIVEN_TO_TORCH)
def test_objects_that_torch_asks(name):
    same(GIVEN_TO_TORCH[name], lambda k: Wrapped(torch.full((4,), float(k))))
    if "refused" not in name:
        assert oxyfuel.stats()["graph_breaks"] == oxyfuel.stats()["fallbacks"] == 0


def test_an_instance_that_torch_asks():
    same(lambda x, o: torch.add(x, o), OfInstance, change=set_k)
    assert oxyfuel.stats()["fallbacks"] == 0
