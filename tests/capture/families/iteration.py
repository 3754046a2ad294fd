"""Generators and other iterators: what they run, and when."""

# Clumsy ways to write a thing are meant.
# ruff: noqa: C402, C417, UP034
from __future__ import annotations

import itertools

import torch
from families.entry import Family

# Many of them leave a log of who did what when, and run code when they are dropped: TorchDynamo has
# no graph for some.
generators = Family("generators", beyond_dynamo=True)
iterators = Family("iterators", beyond_dynamo=True)
FAMILIES = [generators, iterators]


def _noted(log, n, name="g"):
    try:
        for i in range(n):
            log.append((name, "gives", i))
            got = yield i
            if got is not None:
                log.append((name, "gets", got))
    except KeyError as e:
        log.append((name, "catches", str(e)))
        yield "after"
    finally:
        log.append((name, "ends"))
    return n * 10


@generators.case
def interleaved(x):
    log = []
    for i in _noted(log, 3):
        log.append(("loop", i))
        x = x + i
    return x, log


@generators.case
def left_early(x):
    log = []
    for i in _noted(log, 5):
        if i == 2:
            break
        x = x + i
    log.append("behind")
    return x, log


@generators.case
def left_by_return(x):
    log = []

    def first():
        for i in _noted(log, 5):
            return i

    n = first()
    log.append("behind")
    return x + n, log


@generators.case
def never_started(x):
    log = []
    _noted(log, 3)
    return x + 1, log


@generators.case
def closed(x):
    log = []
    g = _noted(log, 5)
    x = x + next(g) + next(g)
    g.close()
    log.append("closed")
    g.close()
    return x + next(g, 7), log


@generators.case
def dropped_with_its_holder(x):
    log = []
    held = [_noted(log, 5)]
    x = x + next(held[0])
    held.clear()
    log.append("behind")
    return x, log


@generators.case
def overwritten(x):
    log = []
    g = _noted(log, 5, "a")
    next(g)
    g = _noted(log, 5, "b")
    next(g)
    del g
    log.append("behind")
    return x * 2, log


@generators.case
def sent(x):
    log = []
    g = _noted(log, 3)
    first = next(g)
    second = g.send("hello")
    return x + first + second, log


@generators.case
def sent_tensors(x):
    def total():
        sum_of_all = 0
        while True:
            got = yield sum_of_all
            if got is None:
                return
            sum_of_all = sum_of_all + got

    g = total()
    next(g)
    g.send(x)
    return g.send(x * 2)


@generators.case
def sent_too_early(x):
    try:
        _noted([], 3).send(1)
    except TypeError as e:
        return x, str(e)


@generators.case
def thrown(x):
    log = []
    g = _noted(log, 3)
    next(g)
    after = g.throw(KeyError("k"))
    try:
        next(g)
    except StopIteration as e:
        log.append(e.value)
    return x + 1, after, log


@generators.case
def thrown_and_not_caught(x):
    log = []
    g = _noted(log, 3)
    next(g)
    try:
        g.throw(ValueError, "v")
    except ValueError as e:
        log.append(str(e))
    return x + next(g, 4), log


@generators.case
def returned_value(x):
    log = []

    def outer():
        n = yield from _noted(log, 2, "in")
        log.append(n)
        yield x * n

    return list(outer())[2:], log


@generators.case
def thrown_through_yield_from(x):
    log = []

    def outer():
        try:
            yield from _noted(log, 3, "in")
        finally:
            log.append("outer ends")

    g = outer()
    next(g)
    after = g.throw(KeyError("k"))
    g.close()
    return x + 1, after, log


@generators.case
def sent_through_yield_from(x):
    log = []

    def outer():
        return (yield from _noted(log, 2, "in"))

    g = outer()
    next(g)
    g.send(5)
    try:
        g.send(6)
    except StopIteration as e:
        log.append(e.value)
    return x - 1, log


@generators.case
def stop_iteration_inside(x):
    def g():
        yield next(iter([]))

    try:
        list(g())
    except RuntimeError as e:
        return x, str(e), type(e.__cause__).__name__


@generators.case
def raises_inside(x):
    log = []

    def g():
        yield 1
        raise KeyError("k")

    try:
        for i in g():
            log.append(i)
    except KeyError:
        log.append("caught")
    return x + 1, log


@generators.case
def consumed_by_builtins(x):
    log = []

    def g(name, n):
        for i in range(n):
            log.append((name, i))
            yield i

    out = [
        sum(g("sum", 3)),
        any(i == 1 for i in g("any", 3)),
        all(i == 0 for i in g("all", 3)),
        max(g("max", 3)),
        min(g("min", 3), key=lambda i: -i),
        ",".join(str(i) for i in g("join", 3)),
        sorted(g("sorted", 3), reverse=True),
        list(g("list", 2)),
        tuple(g("tuple", 2)),
        dict((i, i) for i in g("dict", 2)),
        1 in g("in", 3),
        [*g("star", 2)],
    ]
    return x + out[0], out, log


@generators.case
def unpacked(x):
    log = []
    a, b, c = _noted(log, 3)
    try:
        a, b = _noted(log, 5)
    except ValueError as e:
        log.append(str(e))
    first, *rest = _noted(log, 3)
    return x + a + b + c + first, rest, log


@generators.case
def of_tensors(x):
    return sum(y * i for i, y in enumerate(x)), torch.stack([y + 1 for y in x])


@generators.case
def as_an_argument(x):
    class Holder:
        def __init__(self, items):
            self.items = items

    log = []
    holder = Holder(_noted(log, 2))
    log.append("made")
    return x + sum(holder.items), log


@generators.case
def kind_of_object(x):
    import types

    g = (i for i in range(3))
    return (
        x,
        isinstance(g, types.GeneratorType),
        iter(g) is g,
        bool(g),
        callable(g),
        type(g).__name__,
    )


@generators.case
def two_at_a_time(x):
    log = []
    for a, b in zip(_noted(log, 3, "a"), _noted(log, 2, "b"), strict=False):
        log.append((a, b))
        x = x + a * b
    return x, log


@generators.case
def itself(x):
    def g():
        next(holder[0])
        yield 1

    holder = []
    holder.append(g())
    try:
        next(holder[0])
    except ValueError as e:
        return x, str(e)


@generators.case
def endless(x):
    def count():
        n = 0
        while True:
            yield n
            n += 1

    for i in itertools.islice(count(), 2, 9, 3):
        x = x + i
    for i, y in zip(count(), x, strict=False):
        x = x + y * i
    return x, list(itertools.islice(count(), 3))


# --------------------------------------------------------------------------------- map and its kind


def _told(log, what, value):
    log.append((what, value))
    return value


@iterators.case
def lazy_map(x):
    log = []
    for i in map(lambda n: _told(log, "map", n), [1, 2, 3]):
        log.append(("loop", i))
        x = x * i
        if i == 2:
            break
    return x, log


@iterators.case
def lazy_filter(x):
    log = []
    kept = filter(lambda n: _told(log, "filter", n) % 2, range(6))
    log.append(next(kept))
    return x + sum(kept), log, list(filter(None, [0, 1, 2]))


@iterators.case
def map_of_several(x):
    return list(map(lambda a, b: a * b, [x, x + 1], (2, 3, 4)))


@iterators.case
def map_of_a_generator(x):
    log = []
    doubled = map(lambda n: _told(log, "map", n * 2), (_told(log, "item", n) for n in range(3)))
    log.append("made")
    return [x * n for n in doubled], log


@iterators.case
def enumerated_generator(x):
    log = []
    for i, n in enumerate((_told(log, "item", n) for n in (5, 6)), 3):
        log.append((i, n))
    return x, log


@iterators.case
def strict_zip(x):
    found = []
    for a, b in ((2, 3), (3, 2), (2, 2)):
        try:
            pairs = zip((i for i in range(a)), (i for i in range(b)), strict=True)
            found.append(list(pairs))
        except ValueError as e:
            found.append(str(e))
    return x, found


@iterators.case
def chained(x):
    log = []
    parts = itertools.chain([1], (_told(log, "item", n) for n in (2, 3)), "ab")
    log.append(next(parts))
    log.append(next(parts))
    nested = itertools.chain.from_iterable((_told(log, "list", [n]) for n in (4, 5)))
    return x, list(parts), list(nested), log


@iterators.case
def what_it_took_is_gone(x):
    items = iter([1, 2, 3, 4])
    pairs = zip(items, items, strict=False)
    first = next(pairs)
    return x, first, list(items), list(pairs)


@iterators.case
def map_kept_for_later(x):
    class Scaled:
        def __init__(self):
            self.parts = map(lambda n: x * n, [1, 2, 3])

    scaled = Scaled()
    return next(scaled.parts), [*scaled.parts]


class _Countdown:
    def __init__(self, n, log):
        self.n = n
        self.log = log

    def __iter__(self):
        self.log.append("iter")
        return self

    def __next__(self):
        if self.n == 0:
            raise StopIteration
        self.n -= 1
        self.log.append(self.n)
        return self.n


@iterators.case
def of_the_user_s(x):
    log = []
    for a, b in zip(_Countdown(3, log), "ab", strict=False):
        log.append((a, b))
    return x + sum(_Countdown(3, log)), 1 in _Countdown(3, log), log


@iterators.case
def next_of_no_iterator(x):
    try:
        next([1])
    except TypeError as e:
        return x, str(e)


@iterators.case
def least_and_greatest(x):
    words = ["ccc", "a", "bb"]
    return (
        x,
        min(words, key=len),
        max(words, key=len),
        max([], default=3),
        min(3, 1, 2),
        max((n for n in range(4)), key=lambda n: -n),
    )
