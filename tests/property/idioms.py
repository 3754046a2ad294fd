"""Random programs of idioms: `make_source(seed)` gives the text of a module with a function
`main(x, n, items, table, thing)`, as python_programs.py does, to be read behind the same prelude.

Where python_programs.py makes any expression of any other, these are pieces of ordinary code with
the standard library, one behind the other and one inside the other: a piece reads and assigns the
tensor `x`, the int `n` and the list `log`, and where it has a BODY, other pieces stand there.
"""

from __future__ import annotations

import random
import re
import textwrap

# What the pieces use at the level of the module.
MODULE = """
import abc
import bisect
import copy
import enum
import heapq
import random
import re
import string
import threading
import typing
import weakref
from dataclasses import dataclass, field, replace, asdict, astuple

state = {"calls": 0, "last": None}
local = threading.local()
local.depth = 1
rng = random.Random(3)
generator = torch.Generator().manual_seed(3)
registry = collections.OrderedDict(a=1, b=2, c=3)


class Color(enum.Enum):
    RED = 1
    GREEN = 2

    @property
    def weight(self):
        return self.value * 0.5


class Mode(enum.Flag):
    R = enum.auto()
    W = enum.auto()


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 5


@dataclass
class Config:
    size: int = 2
    names: list = field(default_factory=list)
    rate: float = 0.5

    def __post_init__(self):
        self.half = self.size // 2


@dataclass(frozen=True, order=True)
class Key:
    name: str
    at: int = 0


class Pair(typing.NamedTuple):
    left: object
    right: object = 7

    def swapped(self):
        return Pair(self.right, self.left)


Triple = collections.namedtuple("Triple", "a b c", defaults=(3,))


class Positive:
    def __set_name__(self, owner, name):
        self.name = "_" + name

    def __get__(self, instance, owner=None):
        if instance is None:
            return self
        return getattr(instance, self.name, 1)

    def __set__(self, instance, value):
        if value <= 0:
            raise ValueError(f"{self.name} is {value}")
        setattr(instance, self.name, value)


class Box:
    __slots__ = ("_width", "tag")
    width = Positive()

    def __init__(self, width, tag=None):
        self.width = width
        self.tag = tag


class Proxy:
    def __init__(self, inner):
        self.__dict__["inner"] = inner
        self.__dict__["reads"] = 0

    def __getattr__(self, name):
        self.__dict__["reads"] += 1
        if name.startswith("no_"):
            raise AttributeError(name)
        return getattr(self.inner, name)

    def __setattr__(self, name, value):
        setattr(self.inner, name, value)


class Dots(dict):
    __getattr__ = dict.get
    __setattr__ = dict.__setitem__


class Guard:
    def __init__(self, log, swallows=()):
        self.log, self.swallows = log, swallows

    def __enter__(self):
        self.log.append("in")
        return self

    def __exit__(self, kind, value, trace):
        self.log.append(kind.__name__ if kind else "out")
        return kind is not None and issubclass(kind, tuple(self.swallows))


@contextlib.contextmanager
def scope(log, name):
    log.append(f"<{name}")
    try:
        yield name
    finally:
        log.append(f"{name}>")


def traced(label=None):
    def wrap(f):
        @functools.wraps(f)
        def inner(*args, **kwargs):
            state["last"] = label or f.__name__
            return f(*args, **kwargs)

        inner.calls = 0
        return inner

    return wrap


class Stack:
    def __init__(self, *parts):
        self.parts = list(parts)

    def __len__(self):
        return len(self.parts)

    def __getitem__(self, i):
        return self.parts[i]

    def __iter__(self):
        yield from self.parts

    def __contains__(self, o):
        return any(p is o or p == o for p in self.parts)

    def __call__(self, x):
        for p in self:
            x = p(x) if callable(p) else x * p
        return x

    def __or__(self, other):
        return Stack(*self.parts, *other.parts)

    def __bool__(self):
        return bool(self.parts)


class Shape:
    instances = 0

    def __init_subclass__(cls, sides=0, **kwargs):
        super().__init_subclass__(**kwargs)
        cls.sides = sides

    def __new__(cls, *args):
        cls.instances += 1
        return super().__new__(cls)

    @classmethod
    def of(cls, *args):
        return cls(*args)

    @staticmethod
    def area(a, b=2):
        return a * b

    @functools.cached_property
    def costly(self):
        state["calls"] += 1
        return self.sides * 10


class Square(Shape, sides=4):
    def area(self, a=1, b=2):
        return super().area(a, b) + self.sides


@functools.singledispatch
def describe(o):
    return "object"


@describe.register
def _(o: int):
    return f"int {o}"


@describe.register
def _(o: list):
    return f"list of {len(o)}"


@functools.lru_cache(maxsize=None)
def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)


class Wide(Box):
    __slots__ = ("extra",)

    def __init__(self, width, extra):
        super().__init__(width)
        self.extra = extra

    @property
    def area(self):
        return self.width * len(self.extra)

    @area.setter
    def area(self, value):
        self.width = value + 1

    def scaled(self, by, of=1):
        return self.width * by / of

    halved = functools.partialmethod(scaled, 1, of=2)


class UserTable(collections.UserDict):
    def __setitem__(self, key, value):
        super().__setitem__(key.lower(), value)


class Abstract(abc.ABC):
    @property
    @abc.abstractmethod
    def name(self): ...

    def step(self, x):
        return x + len(self.name)


class Concrete(Abstract):
    name = "concrete"


class Counted:
    calls = 0

    def __call__(self, x):
        type(self).calls += 1
        return x + self.calls

    def __getitem__(self, key):
        return (key.start, key.stop) if isinstance(key, slice) else key * 2


class Closing:
    def __init__(self, log):
        self.log = log

    def close(self):
        self.log.append("closed")


def memoryless(k):
    seen = {}

    def once(n):
        if n not in seen:
            seen[n] = n * k
        return len(seen), seen[n]

    return once


def numbers(n):
    sent = None
    for i in range(n):
        sent = yield i if sent is None else i + sent
    return n * 2
"""

# Lines of a piece; BODY: other pieces, at its indentation. A B C: small ints; F: a float; V: a new
# name; W: a word.
PIECES = [
    # tensors
    "x = x * A + B",
    "x = x.relu() if n % 2 else x.sin()",
    "x = x + torch.arange(x.shape[-1]) * F",
    "x = torch.cat([x, x[:1]]).mean(0, keepdim=True) + x",
    "x, V = (x + A, x.sum())\nlog.append(V)",
    "x = x.clone()\nx[..., 0] += A\nx[-1:] *= F",
    "log.append(x.detach().shape)",
    # closures
    (
        "def V(k, *, by=A):\n"
        "    nonlocal_n = n + k\n"
        "    return nonlocal_n * by\n"
        "n = V(B) % 11\n"
        "x = x + V(1, by=2)"
    ),
    (
        "V = 0\n"
        "def V_add(k):\n"
        "    nonlocal V\n"
        "    V += k\n"
        "    return V\n"
        "for i in range(A):\n"
        "    V_add(i)\n"
        "log.append((V, V_add(n)))"
    ),
    "V = [lambda y, i=i: y + i for i in range(A)]\nfor f in V:\n    x = f(x)",
    "V = [lambda: i for i in range(A)]\nlog.append([f() for f in V])",
    "def V(y, depth=0):\n    return y if depth >= A else V(y * F, depth + 1)\nx = V(x)",
    (
        "@traced('W')\n"
        "def V(y, *rest, **named):\n"
        "    log.append((len(rest), sorted(named)))\n"
        "    return y - A\n"
        "x = V(x, 1, 2, k=n)\n"
        "log.append((V.__name__, state['last']))"
    ),
    "V = functools.partial(operator.mul, A)\nx = V(x)\nlog.append(V(n))",
    "V = functools.reduce(lambda a, b: a * b % 7, range(1, A + 2), 1)\nn += V",
    # comprehension and unpacking
    (
        "V = [i * j for i in range(A) for j in range(i) if (i + j) % 2]\n"
        "log.append(V)\n"
        "n = (n + sum(V)) % 13"
    ),
    "V = {k: v for k, v in sorted(table.items()) if v != A}\nlog.append(list(V.items()))",
    "a, *V, b = [n, *items, *range(A)]\nlog.append((a, V, b))",
    "(a, b), [c, *d] = (n, A), items or [1]\nn, V = b, a\nlog.append((c, d))",
    "V = {**table, 'W': n, **{'z': A}}\nlog.append(sorted(V))",
    "if (V := n % A) > 1:\n    x = x + V\nelif (V := V + 1) and V:\n    x = x - V\nlog.append(V)",
    "V = {i % A for i in items}\nlog.append((len(V), n in V, sorted(V | {n})))",
    "log.append([*map(lambda i: i + n, items)])\nV = [*zip(items, 'abc')]\nlog.append(dict(V))",
    "V = items[::-1][:A]\nV[1:1] = [n]\ndel V[:1]\nlog.append(V)",
    # generators
    "V = numbers(A)\nlog.append(list(V))",
    (
        "V = numbers(A + 1)\n"
        "log.append(next(V, None))\n"
        "try:\n"
        "    while True:\n"
        "        log.append(V.send(n))\n"
        "except StopIteration as e:\n"
        "    n = e.value % 9"
    ),
    "def V():\n    got = yield from numbers(A)\n    yield got\nx = x + sum(V())",
    (
        "def V():\n"
        "    try:\n"
        "        yield 1\n"
        "        yield 2\n"
        "    finally:\n"
        "        log.append('closed')\n"
        "for i in V():\n"
        "    if i == B % 3:\n"
        "        break\n"
        "    x = x + i"
    ),
    "V = (i * n for i in items if i)\nlog.append((any(i > A for i in V), sum(V)))",
    "V = iter(items)\nlog.append(list(zip(V, V)))",
    # itertools, functools, collections, operator
    (
        "log.append(list(itertools.accumulate(items, operator.add)))\n"
        "log.append(list(itertools.islice(itertools.count(n, A), 3)))"
    ),
    (
        "for V, g in itertools.groupby(sorted(items, key=lambda i: i % A), key=lambda i: "
        "i % A):\n"
        "    log.append((V, list(g)))"
    ),
    (
        "log.append(list(itertools.product('ab', range(2)))[:A])\n"
        "log.append(list(itertools.combinations(items[:3], 2)))"
    ),
    "for a, b in itertools.zip_longest(items, range(A), fillvalue=n):\n    x = x + (a - b) % 3",
    (
        "V = collections.Counter(i % A for i in items)\n"
        "log.append(V.most_common())\n"
        "log.append(sum(V.values()))"
    ),
    (
        "V = collections.defaultdict(list)\n"
        "for i in items:\n"
        "    V[i % A].append(i)\n"
        "log.append(sorted(V.items()))"
    ),
    "V = collections.deque(items, maxlen=A)\nV.append(n)\nV.rotate(1)\nlog.append((list(V), V[0]))",
    "V = collections.ChainMap({'a': n}, table)\nlog.append((V['a'], len(V), V.get('W')))",
    (
        "V = collections.OrderedDict(sorted(table.items()))\n"
        "if V:\n"
        "    V.move_to_end(next(iter(V)))\n"
        "log.append(list(V))"
    ),
    "registry.move_to_end(next(iter(registry)))\nlog.append(list(registry))\nx = x * registry['a']",
    (
        "V = [n, A, *items]\n"
        "heapq.heapify(V)\n"
        "heapq.heappush(V, B)\n"
        "log.append([heapq.heappop(V) for _ in range(2)])\n"
        "log.append((heapq.nlargest(2, V), heapq.nsmallest(1, V)))"
    ),
    "V = sorted(items)\nbisect.insort(V, n)\nlog.append((V, bisect.bisect_left(V, A)))",
    "log.append(max(items, key=lambda i: (i % A, i), default=None))\nlog.append(min([n, A, B]))",
    "V = operator.itemgetter(0, -1)([n, A, B])\nlog.append((V, operator.attrgetter('a')(thing)))",
    "log.append(sorted(['b', 'W', 'a'], key=str.lower, reverse=bool(n % 2)))",
    # text
    "log.append(f'{n:>{A}d}|{F:.2f}|{n!r:^5}|{\"W\":*<6}')\nlog.append('%s-%03d' % ('W', n))",
    (
        "V = 'W,x ,y'.split(',')\n"
        "log.append('/'.join(p.strip().title() for p in V))\n"
        "log.append('W'.center(9, '-').replace('-', '=', A))"
    ),
    (
        "log.append('{0}{k}{1[0]}'.format(n, items or [0], k=A))\n"
        "log.append(string.Template('$a-$b').substitute(a=n, b='W'))"
    ),
    (
        "V = re.match(r'(?P<word>\\w+)-(\\d+)', 'W-%d' % n)\n"
        "log.append((V['word'], int(V.group(2)), V.span()))"
    ),
    (
        "log.append(re.sub(r'\\d', lambda m: str(int(m[0]) + 1), 'a1b2'))\n"
        "log.append([m.start() for m in re.finditer('W', 'xWyW')])"
    ),
    (
        "V = re.compile(r'[a-z]+')\n"
        "log.append((V.findall('ab1cd'), V.search('12') is None))\n"
        "if V.fullmatch('abc'):\n"
        "    x = x + 1"
    ),
    "log.append(str(x.shape) + repr(n) + str(items[:A]))",
    # classes
    (
        "V = Config(n, ['W'])\n"
        "V.size += A\n"
        "log.append((V, asdict(V), V.half))\n"
        "log.append(replace(V, rate=F) == V)"
    ),
    (
        "log.append(sorted([Key('b', n), Key('a', A)])[0])\n"
        "log.append((Key('a') == Key('a'), Key('a') < Key('b'), astuple(Key('W', 1))))"
    ),
    (
        "V = Pair(x, n)\n"
        "x = V.left + V.swapped().left\n"
        "log.append(V._replace(left=0))\n"
        "log.append(Triple(n, A)._asdict())"
    ),
    "V = Box(A, tag=x)\nV.width += n % 3\nx = V.tag * V.width\nlog.append(V.width)",
    (
        "V = Box(A)\n"
        "try:\n"
        "    V.width = n - A\n"
        "except ValueError as e:\n"
        "    log.append(str(e))\n"
        "log.append(V.width)"
    ),
    (
        "V = Proxy(thing)\n"
        "log.append((V.a, hasattr(V, 'no_such'), getattr(V, 'no_x', 'W')))\n"
        "V.a = n\n"
        "log.append(V.reads)"
    ),
    (
        "V = Dots(scale=A, inner=Dots(k=n))\n"
        "x = x * V.scale\n"
        "V.more = V.inner.k\n"
        "log.append((dict(V), V.nothing))"
    ),
    (
        "V = Stack(A, torch.tanh) | Stack(lambda y: y + n)\n"
        "x = V(x)\n"
        "log.append((len(V), A in V, bool(Stack()), V[-1] is V.parts[-1]))"
    ),
    (
        "V = Square.of()\n"
        "log.append((V.area(A), V.costly, V.costly, Square.sides, Shape.area(n)))\n"
        "log.append(Square.instances - Square.instances)"
    ),
    "log.append((isinstance(thing, Base), issubclass(Square, Shape), type(thing).__name__))",
    (
        "V = Color.RED if n % 2 else Color['GREEN']\n"
        "x = x * V.weight\n"
        "log.append((V.name, [c.value for c in Color], Color(1) is Color.RED))"
    ),
    (
        "V = Mode.R | Mode.W if n > A else Mode.R\n"
        "log.append((Mode.W in V, V & Mode.R == Mode.R, (V ^ Mode.R).value))"
    ),
    "x = x * Level.LOW + Level.HIGH.value\nlog.append(Level.HIGH > n)",
    "log.append((describe(n), describe(items), describe('W')))",
    "n = fib(A + 4) % 17 + n % 3",
    (
        "V = copy.copy(thing)\n"
        "V.a = A\n"
        "log.append((thing.a, copy.deepcopy(items), copy.deepcopy(table) == table))"
    ),
    (
        "V = copy.deepcopy({'t': x.detach().clone(), 'k': [n]})\n"
        "V['t'] += A\n"
        "V['k'].append(A)\n"
        "x = x + V['t']\n"
        "log.append(V['k'])"
    ),
    (
        "class V(Base):\n"
        "    kind = 'W'\n"
        "    def method(self, p):\n"
        "        return super().method(p) + A\n"
        "log.append((V(n).method(B), V.kind, V.__mro__[1] is Base))"
    ),
    (
        "log.append(vars(thing).get('a'))\n"
        "setattr(thing, 'extra', n)\n"
        "log.append(getattr(thing, 'extra'))\n"
        "delattr(thing, 'extra')"
    ),
    # state
    "state['calls'] += 1\nx = x + state['calls']\nlog.append(state['last'])",
    "local.depth += 0\nx = x * local.depth\nlog.append(getattr(local, 'none', A))",
    "global total\ntotal += n % A\nx = x - total % 5",
    (
        "table['W'] = table.get('W', 0) + n\n"
        "log.append(table.setdefault('k', []) == [])\n"
        "table.pop('k')"
    ),
    "items.append(n % 7)\nif len(items) > 6:\n    del items[0]\nitems[0] = A",
    "items.sort(key=lambda i: -i)\nlog.append(items.index(items[-1]))",
    # random numbers
    "x = x * rng.random() + rng.uniform(0, A)",
    "x = x + torch.rand(x.shape[-1], generator=generator)",
    "if rng.random() < 0.5:\n    x = x.cos()",
    "V = rng.randint(0, A)\nx = x + V\nlog.append(V)",
    # matching
    (
        "match [n % 3, *items[:2]]:\n"
        "    case [0, *rest]:\n"
        "        log.append(('zero', rest))\n"
        "    case [1 | 2 as k, first, *_] if first > A:\n"
        "        x = x + k\n"
        "    case _:\n"
        "        log.append('other')"
    ),
    (
        "match {'kind': 'W', 'n': n, **table}:\n"
        "    case {'kind': str(k), 'n': int(v), **rest}:\n"
        "        log.append((k, v, sorted(rest)))"
    ),
    (
        "match Pair(n, A) if n % 2 else thing:\n"
        "    case Pair(left=l, right=r):\n"
        "        log.append(l - r)\n"
        "    case Base(a=a):\n"
        "        log.append(a)"
    ),
    # errors
    (
        "try:\n"
        "    log.append(items[A + 5])\n"
        "except (IndexError, KeyError) as e:\n"
        "    log.append(f'{type(e).__name__}: {e}')\n"
        "else:\n"
        "    log.append('fine')\n"
        "finally:\n"
        "    x = x + 1"
    ),
    (
        "try:\n"
        "    try:\n"
        "        raise Problem(n)\n"
        "    except Problem as e:\n"
        "        raise ValueError('W') from e\n"
        "except ValueError as e:\n"
        "    log.append((e.args, type(e.__cause__).__name__))"
    ),
    (
        "with contextlib.suppress(KeyError, ZeroDivisionError):\n"
        "    log.append(A // (n % 2))\n"
        "    log.append(table['missing'])"
    ),
    (
        "with contextlib.ExitStack() as V:\n"
        "    V.enter_context(scope(log, 'W'))\n"
        "    V.callback(log.append, n)\n"
        "    x = x * F"
    ),
    "if n % 7 == A:\n    raise Detailed(n, 'W')",
    "assert n != A * 100, 'W'",
    # more of classes and calls
    (
        "V = Wide(A, 'W')\n"
        "log.append((V.area, V.scaled(2), V.halved(), list(V.__slots__)))\n"
        "V.area = n\n"
        "x = x * V.area"
    ),
    "V = UserTable(a=n)\nV['W'] = A\nlog.append((sorted(V), len(V), V.data, V.get('q', 1)))",
    (
        "def V(*args, k=A, **rest):\n"
        "    return sum(args) + k + len(rest)\n"
        "n = V(*items, **{'k': n % 3, **{str(i): i for i in range(2)}}) % 19"
    ),
    "V = weakref.ref(thing)\nlog.append(V() is thing)",
    "V = operator.methodcaller('upper')\nlog.append([V(w) for w in ('W', 'q')])",
    (
        "log.append([f.name for f in dataclasses.fields(Config)])\n"
        "V = Config(size=n, names=['W', A])\n"
        "match V:\n"
        "    case Config(size=k, names=[w, *_]):\n"
        "        log.append((k, w))"
    ),
    "V = Concrete()\nx = V.step(x)\nlog.append((isinstance(V, Abstract), V.name))",
    "try:\n    V = Abstract()\nexcept TypeError as e:\n    log.append(type(e).__name__)",
    "V = Counted()\nfor i in range(A % 3 + 1):\n    x = V(x)\nlog.append((V.calls, V[1:A], V[n]))",
    (
        "V = [Level.LOW, Level.HIGH]\n"
        "log.append([m.name for m in sorted(V, reverse=True)])\n"
        "log.append({Color.RED: A, Color.GREEN: n}[Color(n % 2 + 1)])"
    ),
    "V = lambda *a: a[0] if 0 < len(a) <= A else None\nlog.append((V(), V(n), V(*range(6))))",
    "V = type(thing)(n)\nV.double = A * 2\nlog.append((V.a, V.double, V + 1 == V, n in V, [*V]))",
    # more of generators and flow
    (
        "V = numbers(A)\n"
        "next(V)\n"
        "try:\n"
        "    V.throw(ValueError('W'))\n"
        "except ValueError as e:\n"
        "    log.append(e.args)"
    ),
    (
        "def V():\n"
        "    while True:\n"
        "        try:\n"
        "            got = yield n\n"
        "            log.append(got)\n"
        "        except KeyError:\n"
        "            yield 'caught'\n"
        "            return\n"
        "it = V()\n"
        "next(it)\n"
        "log.append((it.send(A), it.throw(KeyError), next(it, 'end')))"
    ),
    (
        "def V(k):\n"
        "    try:\n"
        "        return k // (k % 2)\n"
        "    except ZeroDivisionError:\n"
        "        return -1\n"
        "    finally:\n"
        "        log.append('left')\n"
        "log.append((V(n), V(n + 1)))"
    ),
    (
        "V = 0\n"
        "while True:\n"
        "    V += 1\n"
        "    if V > A:\n"
        "        break\n"
        "    if V % 2:\n"
        "        continue\n"
        "    x = x + V"
    ),
    (
        "log.append(list(itertools.chain.from_iterable([items, range(A)])))\n"
        "log.append(list(itertools.pairwise(items)))\n"
        "log.append(list(itertools.takewhile(lambda i: i < n, items)))"
    ),
    (
        "log.append([*zip(range(A), items, strict=False)])\n"
        "for V, (a, b) in enumerate(zip(items, items[1:]), start=n):\n"
        "    x = x + (V * a - b) % 3"
    ),
    "with contextlib.nullcontext(x) as V, contextlib.closing(Closing(log)):\n    x = V + 1",
    (
        "try:\n"
        "    raise KeyError('W') from None\n"
        "except LookupError as e:\n"
        "    log.append((e.__cause__, e.__suppress_context__, str(e)))"
    ),
    (
        "log.append('aXbX'.translate(str.maketrans('X', '-')) + 'W'.zfill(6) + "
        "'a,b'.partition(',')[2])\n"
        "log.append((int.from_bytes(b'\\x01\\x02', 'big') + n, bytes(range(A)), 'W'.encode()))"
    ),
    (
        "V = {'a': {'b': [n, A]}}\n"
        "log.append(V['a']['b'][-1])\n"
        "V['a']['b'][0] += 1\n"
        "x = x * V['a']['b'][0]"
    ),
    "log.append(0 <= n < A or not items)\nlog.append(n if n > A else (A, n)[n % 2])",
    (
        "V = [[i * j for j in range(A)] for i in range(2)]\n"
        "log.append([*map(list, zip(*V))])\n"
        "log.append([r for r in V if (s := sum(r)) > n] or s)"
    ),
    "V = list(range(A))\nV += [n]\nV *= 2\nlog.append((V, V.count(n), V[1:-1:2], V == V[:]))",
    "V = memoryless(A)\nlog.append((V(n), V(n), V.__closure__ is not None))",
    "x, *V = torch.unbind(torch.stack([x, x * A, x + n]))\nx = x + sum(V) / len(V)",
    "V = {'w': x, 'k': [x * A, (x + 1,)]}\nx = V['w'] + V['k'][0] - V['k'][1][0]\nlog.append(V)",
    (
        "V = torch.nn.functional.pad(x, (0, n % 3))\n"
        "log.append(tuple(V.shape))\n"
        "x = V[..., : x.shape[-1]]"
    ),
    (
        "if x.dim() > 1 and x.shape[-1] >= 2:\n"
        "    x = x.reshape(-1, x.shape[-1]).sum(0).expand_as(x) + x"
    ),
    # around others
    (
        "for V in range(A % 3 + 1):\n"
        "    BODY\n"
        "    if V == n % 4:\n"
        "        continue\n"
        "    x = x + V\n"
        "else:\n"
        "    log.append('end')"
    ),
    "V = A\nwhile V > 0:\n    V -= 1\n    if V == B % 4:\n        break\n    BODY",
    (
        "try:\n"
        "    BODY\n"
        "except (ValueError, Problem) as e:\n"
        "    log.append(repr(e))\n"
        "finally:\n"
        "    log.append('finally')"
    ),
    "with Guard(log, [ValueError]) as V, scope(log, 'W'):\n    BODY",
    "with torch.no_grad():\n    BODY",
    "if n % A == 1:\n    BODY\nelse:\n    BODY",
    "def V(x, n, log):\n    BODY\n    return x, n\nx, n = V(x, n, log)",
    "def V(x, n):\n    for i in range(2):\n        BODY\n        yield x\nx = sum(V(x, n))",
    (
        "class V:\n"
        "    def __call__(self, x, n):\n"
        "        BODY\n"
        "        self.n = n\n"
        "        return x\n"
        "V_made = V()\n"
        "x = V_made(x, n)\n"
        "log.append(V_made.n)"
    ),
]  # fmt: skip

WORDS = ("ab", "Key", "w", "long_name")
MOST_DEPTH = 3


class Writer:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.count = 0

    def piece(self, depth: int) -> str:
        """One with its bodies."""
        around = [p for p in PIECES if "BODY" in p]
        plain = [p for p in PIECES if "BODY" not in p]
        nests = depth < MOST_DEPTH and self.random.random() < 0.3
        text = self.random.choice(around if nests else plain)
        self.count += 1
        name = f"v{self.count}"
        for mark, value in {
            "A": str(self.random.randint(2, 5)),
            "B": str(self.random.randint(1, 9)),
            "C": str(self.random.randint(1, 3)),
            "F": self.random.choice(("0.5", "1.25", "-0.75")),
            "W": self.random.choice(WORDS),
        }.items():
            text = replaced(text, mark, value)
        text = re.sub(r"\bV(?=\b|_)", name, text)
        lines = []
        for line in text.split("\n"):
            if line.strip() == "BODY":
                indent = line[: len(line) - len(line.lstrip())]
                inside = "\n".join(self.piece(depth + 1) for _ in range(self.random.randint(1, 2)))
                lines.append(textwrap.indent(inside, indent))
            else:
                lines.append(line)
        return "\n".join(lines)

    def source(self) -> str:
        pieces = [self.piece(0) for _ in range(self.random.randint(3, 7))]
        globals_ = [
            line for p in pieces for line in p.split("\n") if line.strip() == "global total"
        ]
        body = "\n".join(p for p in pieces)
        body = "\n".join(line for line in body.split("\n") if line.strip() != "global total")
        head = "global total\n" if globals_ else ""
        return (
            MODULE
            + "\n\ndef main(x, n, items, table, thing):\n"
            + textwrap.indent(f"{head}log = []\n{body}\nreturn x, n, log\n", "    ")
        )


def replaced(text: str, mark: str, value: str) -> str:
    """The mark where it stands alone."""
    return re.sub(rf"\b{mark}\b", value, text)


def make_source(seed: int) -> str:
    return Writer(seed).source()
