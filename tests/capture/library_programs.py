"""Programs that use the standard library as models do: `PROGRAMS` by name, each defining `main(x,
n, items, table, thing)` (the arguments and names of tests/property/python_prelude.py). `BREAKS`
names those that are more than one graph."""

BREAKS = {
    "texts of plain values": "pickle.loads imports what it is told to",
    "classes of iterators": "another one is followed in the place of those of itertools",
    "contexts": "they are CPython's own",
    "contextvars": "setting a variable is CPython's own",
    "random and time": "they are not the same for every call",
}

PROGRAMS = {
    "annotations": """
import typing
T = typing.TypeVar("T")
def main(x, n, items, table, thing):
    def call(f: typing.Callable[[T], T], *rest: typing.Union[T, typing.Tuple[T, ...]]
             ) -> typing.Dict[str, typing.Optional[typing.List[T]]]:
        return f(x) + len(rest)
    return call(lambda v: v * n, 1, 2), [str(a) for a in call.__annotations__.values()]
""",
    "texts of plain values": """
import base64, json, pickle, unicodedata, zlib
def main(x, n, items, table, thing):
    key = json.dumps({"n": n, "items": list(items), "none": None}, sort_keys=True)
    packed = zlib.compress(key.encode())
    same = json.loads(zlib.decompress(packed)) == json.loads(key)
    try:
        json.dumps({"x": n}, indent=object)
    except TypeError as e:
        same = same, type(e)
    return (x * len(key), same, zlib.crc32(packed), base64.b64encode(key.encode()),
            pickle.loads(pickle.dumps(key)), unicodedata.normalize("NFKD", "é"))
""",
    "sorting pairs of a name and an object": """
def main(x, n, items, table, thing):
    pairs = sorted({"b": thing, "a": x, "c": table}.items())
    best = min([(n, thing), (n - 1, thing)])
    lists = sorted([[2, thing], [1, thing], [2, thing]], reverse=True)
    try:
        sorted([(1, thing), (1, object())])
    except TypeError as e:
        return x, [k for k, _ in pairs], best[0], [first for first, _ in lists], str(e)[:40]
""",
    "keys of mappings": """
import inspect
def main(x, n, items, table, thing):
    parameters = inspect.signature(main).parameters
    return sorted(set(parameters)), sorted(frozenset(table)), set(table) == set(table.keys()), x + n
""",
    "views of ordered dicts": """
KEPT = collections.OrderedDict(b=1, a=2)
def main(x, n, items, table, thing):
    made = collections.OrderedDict([("z", n), ("y", 2)])
    made.move_to_end("z")
    views = KEPT.keys(), made.keys(), made.values(), made.items()
    return x * len(views[0]), views, list(reversed(views[3])), "a" in views[0]
""",
    "removal from a deque": """
KEPT = collections.deque([3, 1, 2, 1])
def main(x, n, items, table, thing):
    KEPT.extend([1, 7])
    KEPT.remove(1)
    try:
        KEPT.remove("no")
    except ValueError as e:
        KEPT.append(str(e)[:5])
    return list(KEPT), x * len(KEPT)
""",
    "sys.exception": """
import sys
def main(x, n, items, table, thing):
    ask = getattr(sys, "exception", lambda: sys.exc_info()[1])
    seen = []
    for i in items:
        try:
            try:
                raise KeyError(i)
            except KeyError as e:
                seen += [ask() is e, ask().args]
                raise ValueError(n) from ask()
        except ValueError:
            seen += [type(ask()).__name__, ask().args, ask().__cause__.args]
    return x * len(seen), seen
""",
    "exc_info": """
import sys
class Kept:
    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        self.seen = (kind, value.args, trace is None, trace.tb_lineno - trace.tb_lineno)
        return True

def main(x, n, items, table, thing):
    with Kept() as kept:
        raise KeyError(n)
    try:
        raise ValueError(n)
    except ValueError as e:
        info = sys.exc_info()
        return kept.seen, info[0], info[1] is e, info[2] is None, x + n
""",
    "tracebacks": """
def fail(k):
    if k:
        fail(k - 1)
    raise ValueError(k)

def main(x, n, items, table, thing):
    def lines(e):
        out, trace = [], e.__traceback__
        while trace is not None:
            out.append(trace.tb_lineno)
            trace = trace.tb_next
        return out

    out = [KeyError(3).__traceback__]
    try:
        fail(n)
    except ValueError as e:
        kept, trace = e, e.__traceback__
        out += [lines(e), trace is e.__traceback__, trace.tb_next is e.__traceback__.tb_next]
    try:
        try:
            raise kept
        except ValueError as e:
            out.append(lines(e))
            e.__traceback__ = None
            out.append(lines(e))
            raise
    except ValueError as e:
        out.append(lines(e))
        e.__traceback__ = trace
        out += [lines(e), e.__traceback__ is trace]
        out += [e.with_traceback(trace.tb_next) is e, lines(e)]
    try:
        raise KeyError(1).with_traceback(trace)
    except KeyError as e:
        out.append(lines(e))
    try:
        KeyError(2).__traceback__ = 5
    except TypeError as e:
        out.append(str(e))
    return x + 1, out
""",
    "exit stacks and exceptions": """
def main(x, n, items, table, thing):
    with contextlib.ExitStack() as stack:
        for i in items:
            stack.enter_context(managed(i))
        x = x + 1
        raise ValueError(n)
    try:
        with contextlib.ExitStack() as stack:
            stack.enter_context(Manager("a", KeyError))
            @stack.callback
            def fail():
                raise IndexError("in a callback")
            raise ValueError(n)
    except IndexError as e:
        return x, list(notes), e.args, repr(e.__context__)
""",
    "singledispatchmethod": """
class Kinds:
    @functools.singledispatchmethod
    def of(self, o):
        return "any"

    @of.register
    def _(self, o: int):
        return o * 2

    @of.register(torch.Tensor)
    def _(self, o):
        return o + 1

kinds = Kinds()

def main(x, n, items, table, thing):
    return kinds.of(n), kinds.of("a"), kinds.of(x), Kinds().of(n)
""",
    "tracebacks of exceptions that are raised again": """
def lines(e):
    out, trace = [], e.__traceback__
    while trace is not None:
        out.append(trace.tb_lineno)
        trace = trace.tb_next
    return out

def again():
    raise

def main(x, n, items, table, thing):
    out = []
    try:
        try:
            raise ValueError(n)
        except ValueError as e:
            e.__traceback__ = None
            out.append(lines(e))
            raise
    except ValueError as e:
        out.append(lines(e))
    try:
        try:
            raise ValueError(n)
        except ValueError as e:
            try:
                raise e
            except ValueError:
                out.append(lines(e))
            raise
    except ValueError as e:
        out.append(lines(e))
    try:
        try:
            raise ValueError(n)
        except ValueError as e:
            e.with_traceback(None)
            again()
    except ValueError as e:
        out.append(lines(e))
    return x + 1, out
""",
    "texts of enum members": """
class Number(enum.IntEnum):
    ONE = 1

class Mixed(str, enum.Enum):
    A = "a"

class Plain(enum.Enum):
    R = 1

class Own(enum.IntEnum):
    ONE = 1
    def __format__(self, spec):
        return "own" + spec

values = [Number.ONE, Mixed.A, Plain.R, Own.ONE]
def main(x, n, items, table, thing):
    texts = [(f"{v}", f"{v:>9}", format(v), format(v, "<9")) for v in values]
    return x + 1, texts, ["{} {:>9}".format(v, v) for v in values]
""",
    "texts of values": """
class Number(enum.IntEnum):
    ONE = 1

class Whole(int):
    pass

class Half(float):
    def __repr__(self):
        return "half"

class Loud(str):
    def __str__(self):
        return "loud"

values = [Number.ONE, Whole(4), Half(0.5), Loud("q")]
def main(x, n, items, table, thing):
    return x + 1, [(str(v), repr(v), f"{v}", f"{v!r}", f"{v:>6}", format(v)) for v in values]
""",
    "called by operator": """
def main(x, n, items, table, thing):
    call = getattr(operator, "call", lambda f, *a, **k: f(*a, **k))
    return call(apply, x, second=n), call(thing.method, n), call(len, items)
""",
    "classes of iterators": """
import types
def main(x, n, items, table, thing):
    groups, kept = itertools.groupby(items), itertools.filterfalse(None, items)
    is_list = isinstance(groups, (list, tuple))
    is_generator = isinstance(kept, types.GeneratorType)
    return type(groups).__name__, is_list, is_generator, hasattr(kept, "send"), x + n
""",
    "sorting": """
def main(x, n, items, table, thing):
    log = []
    def order(a, b):
        log.append((a, b))
        return b - a
    out = [sorted([3, 1, 2, n], key=functools.cmp_to_key(order)), list(log)]
    values = [n, 5, 4]
    values.sort(key=functools.cmp_to_key(lambda a, b: a - b), reverse=True)
    try:
        sorted([1, 2], key=functools.cmp_to_key(lambda a, b: [][a]))
    except IndexError as e:
        out.append(e.args)
    return out, values, x * n
""",
    "lazy itertools": """
def main(x, n, items, table, thing):
    groups = itertools.groupby([1, 1, 2, 2, 3, n], lambda k: k // 2)
    first, group = next(groups)
    second, other = next(groups)
    out = [first, list(group), second, next(other), [(k, len(list(g))) for k, g in groups],
           list(other)]
    a, b, c = itertools.tee(iter(items), 3)
    out += [next(a), next(b), list(a), list(c), list(b), itertools.tee([], 0)]
    sums = itertools.accumulate(itertools.count(n), lambda p, q: p * q, initial=1)
    out += [next(sums), next(sums), next(sums), list(itertools.accumulate([], initial=None))]
    out += [collections.Counter("abca").most_common(1), [*itertools.accumulate([x, x, x])]]
    tally = collections.Counter(items)
    tally.update(items[:1])
    return out, dict(tally), x
""",
    "functools": """
def main(x, n, items, table, thing):
    add = functools.partial(apply, n)
    more = functools.partial(add, second=4)
    total = functools.reduce(lambda a, b: a * b, items, 1)
    keyed = sorted(items, key=functools.cmp_to_key(lambda a, b: b - a))
    return add(2), more(), total, keyed, functools.reduce(operator.add, [x, x, x]), noted(twice)(n)
""",
    "lru_cache": """
def main(x, n, items, table, thing):
    return cached(n), x * cached(3)
""",
    "singledispatch": """
@functools.singledispatch
def size(o):
    return 0

@size.register
def _(o: list):
    return len(o)

@size.register(int)
def _(o):
    return o

def main(x, n, items, table, thing):
    return size(items), size(n), size("a"), x + size(n)
""",
    "itertools": """
def main(x, n, items, table, thing):
    out = [list(itertools.chain(items, [n])), list(itertools.chain.from_iterable([items, items]))]
    out += [list(itertools.islice(items, 2)), list(itertools.islice(itertools.count(n), 3))]
    out += [list(itertools.accumulate(items)),
            list(itertools.accumulate(items, operator.mul, initial=2))]
    out += [list(itertools.product([1, n], repeat=2)), list(itertools.permutations(items, 2))]
    out += [list(itertools.combinations(items, 2)), list(itertools.repeat(n, 2)),
            list(itertools.pairwise(items))]
    out += [list(itertools.zip_longest(items, [1], fillvalue=0)),
            list(itertools.starmap(pow, [(n, 2), (2, n)]))]
    out += [list(itertools.takewhile(lambda k: k < 3, items)),
            list(itertools.dropwhile(lambda k: k < 2, items))]
    out += [[(k, list(g)) for k, g in itertools.groupby([1, 1, n, 3], lambda k: k % 2)]]
    out += [list(itertools.compress(items, [1, 0, 1])),
            list(itertools.filterfalse(lambda k: k % 2, items))]
    a, b = itertools.tee(items)
    return out, list(a), list(b), [k for k, _ in zip(itertools.cycle(items), range(5))], x + n
""",
    "operator": """
def main(x, n, items, table, thing):
    first, both = operator.itemgetter(0), operator.itemgetter("a", "a")
    by_name = operator.attrgetter("a")
    call = operator.methodcaller("method", n)
    return (first(items), both({"a": n}), by_name(thing), call(thing), operator.add(x, n),
            operator.neg(n),
            operator.contains(items, 2), operator.getitem(items, 0), operator.truth(items),
            operator.index(n),
            operator.concat(items, items), operator.not_(n), operator.is_(n, n),
            operator.length_hint(items))
""",
    "math": """
def main(x, n, items, table, thing):
    return (math.sqrt(n), math.floor(2.5), math.ceil(n / 4), math.prod(items), math.log2(8),
            math.isclose(0.1, 0.1),
            math.inf, math.pi * n, math.gcd(n, 12), math.comb(5, n), math.hypot(3, 4),
            x * math.exp(n), math.fsum(items))
""",
    "copy": """
import copy
def main(x, n, items, table, thing):
    a, b = copy.copy(items), copy.copy(table)
    a.append(n)
    b["z"] = n
    return a, b, copy.deepcopy([n, [2, {"k": n}]]), copy.copy((1, n)), x + 1
""",
    "collections": """
def main(x, n, items, table, thing):
    d = collections.defaultdict(list)
    for i in items:
        d[i % 2].append(x * i)
    c = collections.Counter("abca")
    c.update("a")
    o = collections.OrderedDict(b=n, a=1)
    o.move_to_end("b")
    q = collections.deque(items, maxlen=2)
    q.append(n)
    q.rotate()
    p = Pair(n)._asdict(), Pair(1, n)._replace(left=5), Pair._make([1, 2]), Pair(1).right
    m = collections.ChainMap({"a": n}, table)
    return d, c.most_common(1), o, list(q), p, m["c"], isinstance(items, collections.abc.Sequence)
""",
    "contextlib": """
def main(x, n, items, table, thing):
    with contextlib.suppress(KeyError), managed(n) as k:
        x = x * k
        table["none"]
    with contextlib.nullcontext(n) as m, contextlib.closing(Closing()) as c:
        x = x + m
    @managed(1)
    def decorated(k):
        return k + 1
    return x, decorated(n), c.closed

class Closing:
    closed = False
    def close(self):
        self.closed = True
""",
    "ExitStack": """
def main(x, n, items, table, thing):
    with contextlib.ExitStack() as stack:
        stack.enter_context(Manager("a", ValueError))
        stack.callback(notes.append, n)
        for i in items:
            stack.enter_context(managed(i))
        x = x * 2
    return x
""",
    "inspect": """
import inspect
def main(x, n, items, table, thing):
    names = list(inspect.signature(apply).parameters)
    return names, inspect.isfunction(apply), inspect.isclass(Base), callable(apply), x + len(names)
""",
    "enum": """
class Size(enum.IntEnum):
    SMALL = 1
    LARGE = 2

class Flags(enum.Flag):
    A = enum.auto()
    B = enum.auto()

def main(x, n, items, table, thing):
    f = Flags.A | Flags.B
    return (Color.RED, Color(2).name, Color["RED"].value, [c.name for c in Color], Size.SMALL + n,
            Size(1) is Size.SMALL,
            Color.RED == Color.BLUE, Flags.A in f, f.value, x * Size.LARGE, len(Color),
            isinstance(Color.RED, Color))
""",
    "dataclasses": """
@dataclasses.dataclass(slots=True)
class Small:
    a: int
    b: list = dataclasses.field(default_factory=list)

@dataclasses.dataclass(order=True)
class Ordered:
    a: int
    b: int = 2
    def __post_init__(self):
        self.c = self.a + self.b

def main(x, n, items, table, thing):
    s, f, o = Small(n), Frozen(n, 3), Ordered(n)
    s.b.append(x)
    try:
        f.a = 2
    except dataclasses.FrozenInstanceError as e:
        message = str(e)
    r = dataclasses.replace(o, a=5)
    names = [k.name for k in dataclasses.fields(o)]
    return (s, f, o, r.c, o < r, o == Ordered(n), message, names, dataclasses.asdict(o),
            dataclasses.is_dataclass(o))
""",
    "named tuples": """
import typing
class Named(typing.NamedTuple):
    first: int
    second: str = "two"
    def both(self):
        return self.first, self.second

def main(x, n, items, table, thing):
    a = Named(n)
    first, second = a
    return (a, a.both(), a._replace(second="x"), first, a[1], a == (n, "two"), len(a),
            Named(x).first, a._fields)
""",
    "super and properties": """
class A:
    def __init__(self, k):
        self.k = k
    @property
    def twice(self):
        return self.k * 2
    @classmethod
    def of(cls, k):
        return cls(k)
    @staticmethod
    def plus(a, b):
        return a + b
    def run(self, x):
        return x * self.k

class B(A):
    def __init__(self, k):
        super().__init__(k + 1)
    def run(self, x):
        return super().run(x) + super(B, self).twice
    @property
    def twice(self):
        return super().twice + 1

def main(x, n, items, table, thing):
    b = B.of(n)
    return (b.run(x), b.twice, B.plus(1, n), b.plus(n, n), isinstance(b, A),
            type(b).__mro__[1].__name__)
""",
    "attribute protocol": """
class Open:
    def __init__(self):
        self.seen = []
    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)
        self.seen.append(name)
        return len(name)
    def __setattr__(self, name, value):
        object.__setattr__(self, name, value)
    def __delattr__(self, name):
        self.seen.append("del " + name)
        object.__delattr__(self, name)
    def __call__(self, k):
        return k * 2
    def __getitem__(self, k):
        return k

def main(x, n, items, table, thing):
    o = Open()
    o.a = n
    found = o.a, o.other, getattr(o, "_none", 5), hasattr(o, "_x"), o(x), o[n], vars(o)["a"]
    del o.a
    return found, o.seen, thing.double
""",
    "operators of classes": """
class V:
    def __init__(self, k): self.k = k
    def __add__(self, o): return V(self.k + getattr(o, "k", o))
    def __radd__(self, o): return V(o + self.k)
    def __iadd__(self, o): self.k = self.k + o; return self
    def __lt__(self, o): return self.k < o.k
    def __eq__(self, o): return isinstance(o, V) and self.k == o.k
    def __hash__(self): return hash(self.k)
    def __neg__(self): return V(-self.k)
    def __index__(self): return self.k
    def __bool__(self): return self.k > 1
    def __contains__(self, o): return o == self.k
    def __matmul__(self, o): return o @ o
    def __repr__(self): return f"V({self.k})"
    def __format__(self, spec): return f"<{self.k}{spec}>"

def main(x, n, items, table, thing):
    a, b = V(n), V(3)
    c = a + b + 1
    c += 2
    return (c.k, (1 + a).k, a < b, a == V(n), a != b, (-a).k, bool(a), n in a, a @ x, repr(a),
            f"{a:x}", {a: 1}[V(n)],
            sorted([b, a])[0].k, max(a, b).k, items[V(1)], sum([a, b], V(0)).k)
""",
    "weakref": """
import weakref
def main(x, n, items, table, thing):
    r = weakref.ref(thing)
    return r() is thing, x + r().a
""",
    "context variables that are read": """
import contextvars
level = contextvars.ContextVar("level", default=1)
bare = contextvars.ContextVar("bare")
def main(x, n, items, table, thing):
    try:
        bare.get()
    except LookupError as e:
        found = e.args[0] is bare
    return x * level.get(), level.get(5), bare.get(n), found, level.name
""",
    "contexts": """
import contextvars
level = contextvars.ContextVar("level", default=1)
def main(x, n, items, table, thing):
    context = contextvars.copy_context()
    def inside():
        level.set(n)
        return x * level.get()
    return context.run(inside), level.get(), level in context, context[level]
""",
    "calls of parametrized types": """
import collections
Sizes = list[int]
def main(x, n, items, table, thing):
    counts = collections.defaultdict[str, int](int, a=n)
    counts["b"] += 2
    queue = collections.deque[object](items, maxlen=3)
    return dict[str, int](counts), Sizes(range(3)), set[int]((1, 2)), list(queue), x * len(queue)
""",
    "parts of types": """
import typing
union, alias, optional = int | str, list[int], typing.Optional[int]
nested = dict[str, list[int]]
def parts(t):
    return typing.get_origin(t), typing.get_args(t)
def main(x, n, items, table, thing):
    def inner(t=alias):
        return parts(t), parts(union)[1][1] is str
    out = [parts(t) for t in (union, alias, optional, nested, int)]
    return out, inner(), inner(nested), int in typing.get_args(optional), x * len(parts(union)[1])
""",
    "contextvars": """
import contextvars
level = contextvars.ContextVar("level", default=1)
def main(x, n, items, table, thing):
    token = level.set(n)
    y = x * level.get()
    level.reset(token)
    return y, level.get()
""",
    "metaclass": """
class Meta(type):
    def __call__(cls, *args):
        o = super().__call__(*args)
        o.tag = cls.__name__
        return o
    def __len__(cls):
        return 3
    @property
    def size(cls):
        return 4

class Made(metaclass=Meta):
    def __init__(self, k):
        self.k = k

def main(x, n, items, table, thing):
    o = Made(n)
    return o.tag, o.k, len(Made), x * o.k, Made.size
""",
    "warnings and logging": """
import logging, warnings
log = logging.getLogger("program")
log.addHandler(logging.NullHandler())
log.propagate = False
def main(x, n, items, table, thing):
    log.debug("n is %d", n)
    log.warning("careful")
    warnings.warn("odd")
    return x + n
""",
    "random and time": """
import random, time
def main(x, n, items, table, thing):
    random.seed(n)
    k = random.randint(0, 100)
    return k, x + k, time.time() > 0
""",
}
