"""Ordinary Python around tensors that is one graph, against eager: results, what is changed,
several calls with another state in between."""

import collections
import copy
import dataclasses
import enum
import fractions
import heapq
import re
import sys
import threading
import typing

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

import oxyfuel

pytestmark = pytest.mark.usefixtures("strict")

X = torch.randn(2, 3)
Q = torch.randn(1, 2, 4, 8)


def breaks_of(f, *args):
    before = oxyfuel.stats()["graph_breaks"]
    f(*args)
    return oxyfuel.stats()["graph_breaks"] - before


def same(a, b):
    assert type(a) is type(b)
    if isinstance(a, torch.Tensor):
        torch.testing.assert_close(a, b)
    elif isinstance(a, (list, tuple)):
        assert len(a) == len(b)
        for p, q in zip(a, b):
            same(p, q)
    elif isinstance(a, dict):
        same(list(a.items()), list(b.items()))
    else:
        assert a == b or type(a).__eq__ is object.__eq__


def agree(f, make, calls=4, breaks=0, between=lambda thing, i: None):
    """`make` gives what `f` gets behind the tensor; `between` changes it in front of each call."""
    compiled, mine, theirs = oxyfuel.compile(f), make(), make()
    met = 0
    for i in range(calls):
        between(mine, i)
        got = []
        met += breaks_of(lambda: got.append(compiled(X.clone(), mine)))
        between(theirs, i)
        same(got[0], f(X.clone(), theirs))
        yield got[0], mine, theirs
    assert (met > 0) == (breaks > 0), met


class Holder:
    def __init__(self, **members):
        self.__dict__.update(members)


# ---- modes of attention ----


def flags():
    names = ("cudnn", "flash", "mem_efficient", "math", "overrideable")
    return [getattr(torch._C, f"_get_{name}_sdp_enabled")() for name in names]


def attention(q):
    return F.scaled_dot_product_attention(q, q, q)


def in_context(q):
    with sdpa_kernel([SDPBackend.MATH]):
        a, inside = attention(q), torch.backends.cuda.flash_sdp_enabled()
    return a + attention(q), inside, torch.backends.cuda.flash_sdp_enabled()


def leaves_it(q):
    torch.backends.cuda.enable_flash_sdp(False)
    return attention(q)


def raises_inside(q):
    try:
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            raise ValueError
    except ValueError:
        return attention(q)


def breaks_inside(q):
    with sdpa_kernel(SDPBackend.MATH):
        a = attention(q)
        oxyfuel.graph_break()
        return a + attention(q * 2), torch.backends.cuda.flash_sdp_enabled()


@pytest.mark.parametrize("backend", [None, "eager"])
@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("f", [in_context, leaves_it, raises_inside, breaks_inside])
def test_kernels_of_attention(f, grad, backend):
    compiled = oxyfuel.compile(f, **({"backend": backend} if backend else {}))
    q, before = Q.clone().requires_grad_(grad), flags()
    try:
        for _ in range(3):
            got, after = compiled(q), flags()
            torch.backends.cuda.enable_flash_sdp(True)
            torch.testing.assert_close(got, f(q))
            assert flags() == after
            torch.backends.cuda.enable_flash_sdp(True)
            with sdpa_kernel(SDPBackend.MATH):  # of the caller
                torch.testing.assert_close(compiled(q), f(q))
            torch.backends.cuda.enable_flash_sdp(True)
    finally:
        torch.backends.cuda.enable_flash_sdp(True)
    assert flags() == before
    assert breaks_of(oxyfuel.compile(in_context), Q) == 0


# ---- copies of tensors ----


def deep(x, h):
    made = copy.deepcopy(h)
    made.t += 1
    return x + made.t, made.t, made.n, made is h, copy.deepcopy([h.t, x])


def test_deep_copies():
    make = lambda: Holder(t=torch.arange(3.0), n=[1, {"k": 2}])  # noqa: E731
    for got, mine, _ in agree(deep, make, between=lambda h, i: h.t.add_(i)):
        assert got[1].data_ptr() != mine.t.data_ptr()


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.arange(6.0).reshape(2, 3).t(),
        lambda: torch.arange(6.0)[1:4],
        lambda: torch.arange(6.0)[::2],
        lambda: torch.arange(3.0, requires_grad=True),
        lambda: nn.Parameter(torch.arange(3.0)),
        lambda: torch.empty(0),
    ],
)
def test_deep_copies_of_all_kinds(make):
    def f(x, t):
        return copy.deepcopy(t), x * 2

    t = make()
    got, wanted = oxyfuel.compile(f)(X, t)[0], f(X, t)[0]
    torch.testing.assert_close(got, wanted)
    assert type(got) is type(wanted)
    assert got.stride() == wanted.stride()
    assert got.storage_offset() == wanted.storage_offset()
    assert got.requires_grad == wanted.requires_grad


def test_deep_copies_that_share_memory():
    def f(x, t):
        a, b = copy.deepcopy((t, t.view(-1)))
        a.add_(1)
        return a + x, b

    t = torch.zeros(2, 3)
    torch.testing.assert_close(oxyfuel.compile(f)(X, t), f(X, t))


def test_a_tensor_gets_a_gradient_or_an_attribute():
    def f(x, t):
        made = copy.deepcopy(t)
        return made, made.grad, hasattr(made, "tag")

    compiled, t = oxyfuel.compile(f), torch.arange(3.0)
    compiled(X, t)
    t.tag = 1
    assert compiled(X, t)[2]
    del t.tag
    assert not compiled(X, t)[2]
    t.grad = torch.ones(3)
    torch.testing.assert_close(compiled(X, t)[1], torch.ones(3))


# ---- assignments to data ----


def module():
    m = nn.Linear(3, 3)
    with torch.no_grad():
        m.weight.fill_(0.5)
        m.bias.fill_(0.25)
    m.average = torch.zeros(3, 3)
    return m


def averages(x, m):
    m.average.data = 0.9 * m.average.data + 0.1 * m.weight.data
    return x @ m.average


def scales(x, m):
    m.weight.data = m.weight.data * 2
    return m(x).sum()


def steps(x, m):
    loss = m(x).pow(2).sum()
    gradients = torch.autograd.grad(loss, list(m.parameters()))
    with torch.no_grad():
        for p, g in zip(m.parameters(), gradients):
            p.data = p.data - 0.1 * g
    return loss.detach()


def twice(x, m):
    m.average.data = m.average + 1
    m.average.data = m.average.data * 2
    return x @ m.average


def keeps_the_old(x, m):
    old = m.average.data
    m.average.data = old + 1
    return old + 0, m.average - old


def returns_the_old(x, m):
    old = m.average.view(-1)
    m.average.data = m.average + 1
    return old


def value_lives_on(x, m):
    value = m.average * 2 + 1
    m.average.data = value
    return value


def value_is_written(x, m):
    value = m.average * 2
    m.average.data = value
    value.add_(1)
    return m.average + 0


def used_before(x, m):
    y = m(x).sum()
    m.weight.data = m.weight.data * 2
    return y


def another_shape(x, m):
    m.average.data = torch.cat([m.average, m.average])
    return m.average * 1


DATA = {averages: 0, scales: 0, steps: 0, twice: 0, keeps_the_old: 0, returns_the_old: 0,
        value_lives_on: 0, value_is_written: 0, used_before: 0, another_shape: 1}  # fmt: skip


@pytest.mark.parametrize("f", DATA)
def test_assignments_to_data(f):
    snapshots = []

    def between(m, i):
        if i == 2:  # another one has the memory: it keeps what it has
            snapshots.append((m.average.detach(), m.weight.detach()))

    calls = 3 if f is another_shape else 4
    for got, mine, theirs in agree(f, module, calls, DATA[f], between):
        for name in ("average", "weight", "bias"):
            p, q = getattr(mine, name), getattr(theirs, name)
            torch.testing.assert_close(p, q)
            assert (p.requires_grad, p.is_leaf, p.stride()) == (
                q.requires_grad,
                q.is_leaf,
                q.stride(),
            )
        if f is value_lives_on:
            got.add_(1)
            theirs.average.data.add_(1)
            same(mine.average, theirs.average)
    for held in zip(*snapshots):
        torch.testing.assert_close(*held)


@pytest.mark.parametrize("f", [averages, scales, steps, twice])
def test_assignments_to_data_are_one_graph(f):
    assert breaks_of(oxyfuel.compile(f), X, module()) == 0


def test_gradients_behind_an_assignment():
    found = []
    for run in (scales, oxyfuel.compile(scales)):
        m, x = module(), X.clone().requires_grad_()
        run(x, m).backward()
        found.append([x.grad, m.weight.grad, m.bias.grad])
    same(*found)


# ---- other code ----


def texts(x, words):
    found = re.match(r"(?P<word>\w+)\.(\d+)", words[0])
    n = int(found.group(2)) if found else 0
    ends = [m.end() for m in re.finditer(r"[a-z]", words[0])]
    upper = re.sub(r"[a-z]", lambda m: m[0].upper(), words[0])
    some = re.compile(r"\d").subn(lambda m: f"<{m.group()}>", words[0], count=1)
    return x + n, found and found.groupdict(), ends, upper, some


def a_match_behind_a_break(x, words):
    found, pattern = re.search(r"\d+", words[0]), re.compile("[a-z]")
    oxyfuel.graph_break()
    return x + int(found[0] if found else 0), pattern.findall(words[0])


@pytest.mark.parametrize("f", [texts, a_match_behind_a_break])
def test_regular_expressions(f):
    def between(words, i):
        words[0] = ("ab.12", "ab.12", "c.3", "none")[i]

    for _ in agree(f, lambda: ["x"], between=between, breaks=int(f is not texts)):
        pass


def test_attributes_of_threads():
    """Of each thread its own."""

    def f(x, local):
        local.calls = getattr(local, "calls", 0) + 1
        missing = not hasattr(local, "scale")
        return x * (1 if missing else local.scale), local.calls

    def between(local, i):
        if i == 1:
            local.scale = 2
        if i == 2:
            local.scale = 3.0

    for _, mine, theirs in agree(f, threading.local, between=between):
        assert vars(mine) == vars(theirs)
    compiled, local, seen = oxyfuel.compile(f), threading.local(), []
    compiled(X, local)
    thread = threading.Thread(target=lambda: seen.append(compiled(X, local)[1]))
    thread.start()
    thread.join()
    assert (seen, compiled(X, local)[1]) == ([1], 2)


class State(threading.local):
    kind = "plain"
    made = 0

    def __init__(self):
        State.made += 1
        self.depth = 0
        self.seen = []

    @property
    def twice(self):
        return self.depth * 2

    @twice.setter
    def twice(self, value):
        self.depth = value // 2

    def deeper(self, by=1):
        self.depth += by
        return self.depth

    def __getattr__(self, name):
        if name.startswith("no"):
            raise AttributeError(name)
        return name


def state_of_a_thread(x, state):
    was = state.kind, state.twice, state.other, hasattr(state, "nothing"), sorted(vars(state))
    state.__dict__["depth"] += 1
    state.deeper()
    state.twice = state.twice + 4
    state.seen.append(state.depth)
    state.kind = "own"
    if hasattr(state, "nobody"):
        del state.nobody
    return x * state.depth, was, state.seen, state.kind


def test_attributes_of_threads_of_a_class():
    def between(state, i):
        if i == 2:
            state.nobody, state.depth = 1, 7
            del state.kind

    for _, mine, theirs in agree(state_of_a_thread, State, between=between):
        assert vars(mine) == vars(theirs)

    def in_threads(f):
        state, seen, before = State(), [], State.made

        def call():
            for _ in range(2):
                y, *found = f(X, state)
                seen.append((y.sum().item(), copy.deepcopy(found)))

        call()
        for _ in range(2):
            thread = threading.Thread(target=call)
            thread.start()
            thread.join()
        return seen, State.made - before

    assert in_threads(oxyfuel.compile(state_of_a_thread)) == in_threads(state_of_a_thread)


def numpy_numbers(x, shape):
    n = int(np.prod(shape)) + int(np.max([1, 2]))
    return x * n + float(np.mean([1.0, 2.0]))


def numpy_slices(x, slices):
    return x[slices[0]] * 2, [s.stop for s in slices]


def test_numpy_of_numbers():
    for _ in agree(numpy_numbers, lambda: [2, 3], between=lambda s, i: s.append(i + 1)):
        pass

    def between(slices, i):
        slices[0] = slice(np.int64(0), np.int64(1 + i % 2))

    for _ in agree(numpy_slices, lambda: [None], between=between):
        pass


def test_slices_are_known_by_their_parts():
    compiled = oxyfuel.compile(lambda x, s: x[:, s] + 1)
    compiled(X, slice(0, 2))
    before = oxyfuel.stats()["recompiles"]
    for _ in range(3):
        torch.testing.assert_close(compiled(X, slice(0, 2)), X[:, 0:2] + 1)
    assert oxyfuel.stats()["recompiles"] == before
    given = slice(0, 2)
    assert oxyfuel.compile(lambda x, s: (x + 1, s))(X, given)[1] is given


class Dots(dict):
    __getattr__ = dict.get
    __setattr__ = dict.__setitem__
    __delattr__ = dict.__delitem__


def dots(x, d):
    made = Dots(k=2)
    made.more = 3
    d.calls = d.calls + 1
    d.old = d.inner.k
    del d.gone
    return x * made.more * d.calls, dict(made), vars(made), made.nothing


def test_attributes_that_are_items():
    make = lambda: Dots(calls=0, inner=Dots(k=1))  # noqa: E731
    for _, mine, theirs in agree(dots, make, between=lambda d, i: d.update(gone=i)):
        assert list(mine.items()) == list(theirs.items())
        assert vars(mine) == vars(theirs) == {}


def others(x, order):
    order.move_to_end("a")
    merged = list(heapq.merge([1, 3], [2]))
    following = iter(merged).__next__
    return x * order["a"] + following() + following(), list(order)


def test_other_functions():
    make = lambda: collections.OrderedDict(a=1, b=2)  # noqa: E731
    for _, mine, theirs in agree(others, make, between=lambda o, i: o.update({str(i): i})):
        assert list(mine) == list(theirs)


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 5


def plain_values(x, words):
    table = str.maketrans("ab", "xy", "-")
    levels = sorted([Level.HIGH, Level.LOW, len(words)])
    return x * levels[0], [w.translate(table) for w in words], levels


def test_functions_of_plain_values():
    for _ in agree(plain_values, lambda: ["a-b"], between=lambda w, i: w.append("ba" * i)):
        pass


# ---- what code written in C calls ----


class Items:
    """Goes through its items by their places."""

    def __init__(self, *items):
        self.items = list(items)
        self.asked = 0

    def __len__(self):
        return len(self.items)

    def __getitem__(self, at):
        self.asked += 1
        return self.items[at]


def by_places(x, given):
    a, b = Items(x, x + 1)
    rest = iter(given)
    first = next(rest)
    try:
        [v for v in Items(1, 2) if Items()[v]]
    except IndexError as e:
        message = str(e)
    parts = [x * v for v in given], list(rest), 3 in given, sum(given), tuple(zip(given, "ab"))
    return a + b, first, parts, torch.stack(list(Items(x, x))), message


class Measured(Items):
    def __len__(self):
        self.asked += 10
        return len(self.items)


def measured(x, given):
    items = Measured(1, 2)
    return x + 1, list(items), [*items], tuple(items), items.asked


def raising_once(errors):
    def ask(at=None):
        if errors:
            raise errors.pop()
        return 1 if at is None or at < 3 else ends(at)

    return ask


def ends(at):
    raise IndexError(at)


class Raising:
    def __init__(self):
        self.ask = raising_once([ValueError("once")])

    def __getitem__(self, at):
        return self.ask(at) + at


def after_errors(x, given):
    out = []
    for iterator in (iter(Raising()), iter(raising_once([KeyError("once")]), 2)):
        for _ in range(3):
            try:
                out.append(next(iterator))
            except (ValueError, KeyError) as e:
                out.append(str(e))
    try:
        iter(5, 1)
    except TypeError as e:
        out.append(str(e))
    return x + 1, out


def test_iterators_go_on_after_errors():
    for _ in agree(after_errors, lambda: 1):
        pass


def test_lengths_that_are_counted():
    compiled = oxyfuel.compile(measured)
    for _ in range(2):
        same(compiled(X.clone(), 1), measured(X.clone(), 1))


def test_iteration_by_places():
    make = lambda: Items(1, 2, 3)  # noqa: E731
    for _, mine, theirs in agree(by_places, make, between=lambda o, i: o.items.append(i)):
        assert mine.asked == theirs.asked


def until(x, log):
    left = iter([1, 2, 0, 5])
    out = [x * k for k in iter(lambda: next(left), 0)]
    log.append(list(left))
    return out, list(iter(iter("ab").__next__, "z"))


def made_when_missing(x, log):
    table = collections.defaultdict(lambda: log.append(len(log)) or x * 2)
    nested = collections.defaultdict(lambda: collections.defaultdict(list))
    nested["a"][1].append(2)
    first = table["k"]
    table["k"] += 1
    try:
        collections.defaultdict(None)["gone"]
    except KeyError as e:
        message = str(e)
    return first, table["k"], dict(nested["a"]), message, "other" in table, table.get("other")


def noted(x, log):
    try:
        try:
            raise ValueError("one")
        except ValueError as e:
            e.add_note(f"of {x.shape[0]}")
            raise
    except ValueError as e:
        log.append(list(e.__notes__))
    kept = KeyError("two")
    kept.add_note("kept")
    try:
        kept.add_note(3)
    except TypeError as e:
        return x + 1, kept.__notes__, str(e)


@pytest.mark.parametrize("program", (until, made_when_missing, noted))
def test_called_by_code_in_c(program):
    if program is noted and sys.version_info < (3, 11):
        pytest.skip("exceptions have no notes")
    for _, mine, theirs in agree(program, list):
        assert mine == theirs


class Name(str):
    def shout(self):
        return self.upper() + "!"


class Count(int):
    def __add__(self, other):
        return Count(int(self) + other + 100)


class Double(float):
    pass


def derived(x, given):
    name, n = given.name, given.n
    texts = name.shout(), name.replace("a", "b"), name.split("b"), "x" + name, name[0], f"{name}"
    return x * len(name) + n.bit_length(), texts, n + 1, n * 2, Name("q"), given.d * 2, "a" in name


def test_values_of_derived_classes():
    def between(given, i):
        given.name, given.n, given.d = Name("ab" if i < 2 else "cd"), Count(3 + i), Double(i)

    for got, _, _ in agree(derived, Holder, between=between):
        assert type(got[2]) is Count
        assert type(got[4]) is Name


class WithoutFactory(collections.defaultdict):
    default_factory = None


def made_by_the_field(x, given):
    made, plain = WithoutFactory(int), collections.defaultdict(list)
    made["q"] += 2
    plain["a"].append(1)
    return x + made["q"], made["r"], dict(plain), given["s"]


def test_factories_under_another_attribute():
    program = oxyfuel.compile(made_by_the_field)
    for _ in range(2):
        same(program(X.clone(), WithoutFactory(list)), made_by_the_field(X, WithoutFactory(list)))


class Slotted(float):
    __slots__ = ("pair", "unit")


def slotted(x, given):
    r = Slotted(2.5)
    r.unit, r.pair = 7, (x, given)
    return x * r, r


def test_slots_of_values_of_derived_classes():
    for (_, mine), _, _ in agree(slotted, lambda: 3):
        assert (type(mine), mine, mine.unit, mine.pair[1]) == (Slotted, 2.5, 7, 3)
        assert torch.equal(mine.pair[0], X)


T = typing.TypeVar("T")


class Box(typing.Generic[T]):
    def __init__(self, value: T):
        self.value = value


class Pair(Box[T], typing.Generic[T]):
    __slots__ = ("other",)


BoxOfInt = Box[int]


def generic(x, given):
    made, inner = Pair(x * given.value), BoxOfInt(given.value)
    made.other = inner
    return x + inner.value, made, copy.deepcopy(given), isinstance(given, Box)


def test_generic_classes():
    def between(given, i):
        given.value = i

    for (_, made, copied, _), mine, _ in agree(generic, lambda: Box(1), between=between):
        assert (type(made), type(made.other), type(copied)) == (Pair, Box, Box)
        assert (made.other.value, copied.value) == (mine.value, mine.value)
        assert torch.equal(made.value, X * mine.value)


class Half:
    def __init__(self, v):
        self.v = v

    def __float__(self):
        return self.v / 2


def as_floats(x, given):
    try:
        float(Half("a"))
    except TypeError as e:
        message = str(e)
    third = fractions.Fraction(1, given.n + 3)
    return x * float(given.half) + float(third), float(fractions.Fraction(given.n, 2)), message


def test_objects_as_floats():
    def between(given, i):
        given.half, given.n = Half(i + 1.0), i // 2

    for _ in agree(as_floats, Holder, between=between):
        pass


def test_exported_modules():
    layers = nn.Sequential(nn.Linear(3, 8), nn.GELU()).eval()
    module = torch.export.export(layers, (X,)).module()
    with torch.no_grad():
        for _ in agree(lambda x, m: m(x), lambda: module):
            pass


def test_inference_tensors_in_inference_mode():
    weight = torch.randn(2, 2)

    def function(x, w):
        made = x + 1
        tensors = x, made, made[0], x[0], x.view(-1), torch.ones(2), w, w.mT, x.contiguous()
        return made * 2 if made.is_inference() else made, [t.is_inference() for t in tensors]

    with torch.inference_mode():
        for _ in agree(function, lambda: weight):
            pass
        for _ in agree(function, lambda: weight + 1):
            pass


class Place:
    """An int where one is asked for, and a sequence besides."""

    def __init__(self, place):
        self.place = place

    def __index__(self):
        return self.place

    def __getitem__(self, place):
        return place

    def __len__(self):
        return 2


def test_places_that_are_sequences_too():
    def f(x, place):
        items = [x, x + 1, x + 2]
        items[place] = x * 5
        return (
            items[place],
            (1, 2, 3)[Place(2)],
            "abc"[place],
            items[place:],
            range(9)[place],
            x * 2,
        )

    compiled = oxyfuel.compile(f, fullgraph=True)
    for place in Place(1), Place(0), Place(-1):
        assert str(compiled(torch.ones(2), place)) == str(f(torch.ones(2), place))


class Named:
    def __init__(self, name):
        self.name = name

    def __repr__(self):
        return f"<{self.name}>"


@dataclasses.dataclass
class ShownByItsFields:
    one: int
    other: object = None


NAMED = Named("before")


@pytest.mark.parametrize(
    "text",
    (
        lambda v: str([v, 1, "a"]),
        lambda v: repr((v,)),
        lambda v: f"{[v]} {(v, NAMED)!r} {[[v], {'k': v}]}",
        lambda v: "%s|%r" % ([v], (NAMED, v)),  # noqa: UP031
        lambda v: str(
            {1: v, ShownByItsFields(1, v).one + 1: (ShownByItsFields(1, [v]), None, 2.5)}
        ),
        lambda v: str([NAMED]) + str([ShownByItsFields(1)]),
    ),
)
def test_texts_of_containers_of_objects(text):
    def f(x):
        return x + 1, text(Named("made"))

    assert breaks_of(lambda: same(oxyfuel.compile(f)(X), f(X))) == 0
