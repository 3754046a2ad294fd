"""Functions with generators in every state, each of (x, log): what they do in which order is in the
log."""

# Clumsy ways to write a thing are meant.
# ruff: noqa: C402, C416, C417, UP034
from __future__ import annotations

import contextlib
import inspect
import itertools

import torch

PROGRAMS = []


def program(function):
    PROGRAMS.append(function)
    return function


def noted(log, n, name="g"):
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


def scaled(x, *factors, by=1, **named):
    total = x * 0
    for f in factors:
        total = total + x * f * by
        yield total
    yield total + len(named)


@contextlib.contextmanager
def managed(log, name):
    log.append((name, "enters"))
    try:
        yield name
    except ValueError as e:
        log.append((name, "swallows", str(e)))
    finally:
        log.append((name, "leaves"))


def states(*generators):
    return [inspect.getgeneratorstate(g) for g in generators]


@program
def in_every_state(x, log):
    new, begun, done = noted(log, 2, "new"), noted(log, 3, "begun"), noted(log, 1, "done")
    next(begun)
    list(done)
    y = x + 1
    log.append("between")
    found = list(begun), list(new), list(done)
    return found, y * 2


@program
def loop_with_work_inside(x, log):
    for i in noted(log, 3):
        x = x * 2 + i
        log.append(("loop", i))
    return x


@program
def loop_that_is_left(x, log):
    for i in noted(log, 4):
        x = x + i
        if i == 1:
            log.append("leaves")
            break
    log.append("behind")
    return x - 1


@program
def loop_that_is_left_by_return(x, log):
    def first(log):
        for i in noted(log, 4):
            if i == 1:
                return i

    y = first(log)
    log.append("behind")
    return x + y


@program
def loop_that_is_left_by_an_exception(x, log):
    try:
        for i in noted(log, 4):
            x = x + i
            if i == 1:
                raise ValueError("v")
    except ValueError as e:
        log.append(str(e))
    return x * 3


@program
def overwritten_and_deleted(x, log):
    g = noted(log, 5, "a")
    next(g)
    g = noted(log, 5, "b")
    log.append("overwritten")
    next(g)
    del g
    log.append("deleted")
    g = noted(log, 5, "c")
    next(g)
    g = None
    log.append("none")
    return x + 1


@program
def ends_with_the_frame(x, log):
    def inner(log, x):
        g = noted(log, 3)
        next(g)
        y = x * 2
        log.append("last")
        return y

    y = inner(log, x)
    log.append("behind")
    return y


@program
def sent_thrown_closed(x, log):
    g = noted(log, 5)
    first = next(g)
    second = g.send("hello")
    third = g.throw(KeyError("k"))
    g.close()
    log.append("closed")
    return x + first + second, third, next(g, "end")


@program
def sent_to_one_that_has_not_begun(x, log):
    g = noted(log, 5)
    try:
        g.send(1)
    except TypeError as e:
        log.append(str(e))
    return next(g), g.send(2), x + 1


@program
def closed_before_it_begins(x, log):
    g = noted(log, 5)
    g.close()
    log.append("closed")
    return list(g), x * 2


@program
def returned_value(x, log):
    def outer():
        n = yield from noted(log, 2, "in")
        log.append(n)
        m = yield from [7, 8]
        log.append(m)
        return n + 1

    g = outer()
    found = [next(g), g.send("s")]
    found.append(next(g))
    try:
        while True:
            found.append(next(g))
    except StopIteration as e:
        log.append(("returns", e.value))
    return found, x + 1


@program
def stopped_from_outside(x, log):
    for g in (noted(log, 2), (i for i in ())):
        try:
            g.throw(StopIteration(3))  # from 3.12 on it is the caller's before the first next()
        except (RuntimeError, StopIteration) as e:
            log.append((str(e), repr(e.__cause__), repr(e.__context__)))
        try:
            g.throw(StopIteration(4))
        except StopIteration as e:
            log.append(e.value)
    return next(g, "end"), x + 1


@program
def returned_when_it_is_closed(x, log):
    def numbers():
        try:
            yield x + 1
        except GeneratorExit:
            return "returned"

    g = numbers()
    y = next(g)
    log.append((g.close(), g.close()))
    return y


@program
def closed_while_an_exception_is_handled(x, log):
    def fails():
        try:
            yield x + 1
        finally:
            raise ValueError("closed")

    g = fails()
    y = next(g)
    try:
        try:
            raise KeyError("handled")
        except KeyError:
            g.close()
    except ValueError as e:
        log.append((repr(e.__context__), repr(e.__context__.__context__)))
    return y


@program
def thrown_through_yield_from(x, log):
    def outer():
        try:
            got = yield from noted(log, 3, "in")
            log.append(("got", got))
        except ValueError as e:
            log.append(("outer", str(e)))
            yield "caught"
        finally:
            log.append("outer ends")

    g, h = outer(), outer()
    next(g), next(h)
    found = [g.throw(KeyError("k")), next(g, "end"), h.throw(ValueError("v"))]
    h.close()
    return found, x * 2


@program
def asked_while_an_error_passes_through(x, log):
    def outer():
        yield from inner()
        yield 3

    def inner():
        for number in (1, 2):
            try:
                yield number
            except KeyError:
                log.append(("caught", number))
            try:
                yield from around
            except ValueError as e:
                log.append(str(e))

    around = outer()
    return [next(around), around.throw(KeyError), around.throw(KeyError)], x + 1


@program
def ended_through_yield_from(x, log):
    def inner(number):
        try:
            yield number
        except KeyError as e:
            return str(e)

    def outer():
        for number in (1, 2):
            log.append((number, (yield from inner(number))))
        yield 3

    g = outer()
    return [next(g), g.throw(KeyError("a")), g.throw(KeyError("b")), next(g, "end")], x + 1


@program
def closed_through_yield_from(x, log):
    def outer(name):
        with managed(log, name):
            yield from noted(log, 3, name)

    g, h = outer("g"), outer("h")
    x = x + next(g) + next(h)
    g.close()
    log.append("closed")
    del h
    log.append("deleted")
    return x


@program
def three_deep(x, log):
    def one(y):
        for i in noted(log, 3, "one"):
            yield y * i

    def two(y):
        for z in one(y):
            log.append("two")
            yield z + 1

    def three(y):
        yield from (z * 2 for z in two(y))

    total = x
    for z in three(x):
        total = total + z
        log.append("round")
    return total


@program
def tensors_inside(x, log):
    g = scaled(x + 1, 2, 3, 4, by=2, more=1)
    first = next(g)
    y = first + x
    second = next(g)
    log.append("two")
    return y, second, list(g), x * 2


@program
def sent_tensors(x, log):
    def total():
        all_of = []
        while True:
            got = yield sum(all_of)
            if got is None:
                return
            all_of.append(got)

    g = total()
    next(g)
    y = g.send(x)
    z = g.send(x * 2)
    log.append(next(g, "end"))
    return y, z


@program
def two_that_share(x, log):
    shared = [x]

    def grow():
        while len(shared) < 6:
            shared.append(shared[-1] * 2)
            yield len(shared)

    a, b = grow(), grow()
    log.append((next(a), next(b)))
    kept = [a, b, a]
    log.append(kept[0] is kept[2])
    log.append((next(kept[2]), next(b)))
    return shared, len(kept), kept[0] is a


@program
def cells_inside_and_outside(x, log):
    n = 1

    def count():
        nonlocal n
        inner = 10

        def both():
            return n + inner

        while n < 5:
            n += 1
            inner += 1
            yield both()

    g = count()
    log.append(next(g))
    n += 1
    log.append(n)
    log.append(next(g))
    n = 4
    y = x * n
    log.append(list(g))
    return y + n


@program
def expressions_over_expressions(x, log):
    def say(i):
        log.append(i)
        return i

    a = (say(i) for i in range(4))
    b = (i * 2 for i in a if i != 1)
    first = next(b)
    y = x + first
    second = next(b)
    return y + second, list(b), list(a)


@program
def lazy_iterators_over_generators(x, log):
    a = map(lambda i: i + 1, noted(log, 3, "map"))
    b = filter(None, noted(log, 3, "filter"))
    c = enumerate(noted(log, 3, "enumerate"))
    d = zip(noted(log, 3, "left"), noted(log, 2, "right"), strict=False)
    found = [next(a), next(b), next(c), next(d)]
    y = x + 1
    log.append("between")
    found += [list(a), list(b), list(c), list(d)]
    return found, y


@program
def chained_and_sliced(x, log):
    a = itertools.chain(noted(log, 2, "one"), noted(log, 2, "two"))
    b = itertools.islice(noted(log, 9, "slice"), 1, 8, 3)
    c = itertools.chain.from_iterable(noted(log, 1, str(i)) for i in range(3))
    found = [next(a), next(b), next(c)]
    y = x + 1
    log.append("between")
    found += [next(b), list(a), list(c), list(b)]
    return found, y


@program
def zip_of_unequal_generators(x, log):
    for i, j in zip(noted(log, 2, "short"), noted(log, 5, "long"), strict=False):
        x = x + i * j
        log.append("round")
    log.append("behind")
    return x


@program
def held_by_an_object(x, log):
    class Holder:
        pass

    held = [noted(log, 5, "list")]
    table = {"g": noted(log, 5, "dict")}
    x = x + next(held[0]) + next(table["g"])
    log.append("between")
    held.clear()
    log.append("cleared")
    del table["g"]
    log.append("deleted")
    return x


@program
def in_a_handler(x, log):
    def handles():
        try:
            yield 1
            raise KeyError("k")
        except KeyError as e:
            log.append(str(e))
            got = yield 2
            log.append(got)
            try:
                yield 3
                raise
            except KeyError as again:
                log.append(again is e)
                yield 4

    g = handles()
    found = [next(g), next(g)]
    y = x + found[1]
    found.append(g.send("s"))
    y = y * 2
    found.append(next(g))
    return y, found, next(g, "end")


@program
def context_of_what_it_raises(x, log):
    def raises():
        try:
            yield 1
        finally:
            raise ValueError("v")

    g = raises()
    next(g)
    y = x + 1
    try:
        try:
            raise KeyError("k")
        except KeyError:
            g.close()
    except ValueError as e:
        log.append((str(e), type(e.__context__).__name__))
    return y


@program
def stop_iteration_inside(x, log):
    def g():
        yield 0
        yield next(iter([]))

    made = g()
    next(made)
    y = x + 1
    try:
        next(made)
    except RuntimeError as e:
        log.append((str(e), type(e.__cause__).__name__))
    return y


@program
def context_managers_of_generators(x, log):
    with managed(log, "a") as a, managed(log, "b"):
        x = x + 1
        log.append(a)
        with managed(log, "c"):
            x = x * 2
            raise ValueError("inside")
    with contextlib.ExitStack() as stack:
        stack.enter_context(managed(log, "d"))
        x = x - 1
    return x


@program
def modes_inside(x, log):
    def without():
        with torch.no_grad():
            yield torch.is_grad_enabled()
            yield torch.is_grad_enabled()

    with torch.enable_grad():
        g = without()
        log.append((next(g), torch.is_grad_enabled()))
        y = x.detach() + 1
        log.append((next(g), torch.is_grad_enabled()))
        g.close()
        log.append(torch.is_grad_enabled())
    return y


class Tree:
    def __init__(self, value, *children):
        self.value, self.children = value, children

    def walk(self, log):
        log.append(self.value)
        yield self.value
        for child in self.children:
            yield from child.walk(log)

    def __iter__(self):
        return (c.value for c in self.children)


class Loud(Tree):
    def walk(self, log):
        log.append("loud")
        for value in super().walk(log):
            yield value * 10


@program
def methods_and_super(x, log):
    tree = Tree(1, Loud(2, Tree(3)), Tree(4))
    for value in tree.walk(log):
        x = x + value
    a, *rest = tree
    return x, a, rest


@program
def unpacked(x, log):
    a, b, c = noted(log, 3)
    try:
        a, b = noted(log, 5)
    except ValueError as e:
        log.append(str(e))
    first, *rest = noted(log, 3)
    found = [*noted(log, 2), *(i for i in rest)]
    return x + a + b + c + first, found, 1 in noted(log, 4, "in")


@program
def consumed_by_builtins(x, log):
    g = noted(log, 8)
    found = [next(g), 2 in g, any(i == 4 for i in g), sum(g)]
    log.append("all")
    return found, max(i for i in range(3)), ",".join(str(i) for i in range(3)), x + 1


@program
def driven_while_it_drives(x, log):
    def outer(inner):
        for i in inner:
            log.append(("outer", i))
            yield i, next(inner, None)

    inner = noted(log, 5)
    y = x
    for pair in outer(inner):
        y = y + pair[0]
        log.append(pair)
    return y


@program
def itself(x, log):
    def g():
        try:
            next(holder[0])
        except ValueError as e:
            log.append(str(e))
        yield 1

    holder = []
    holder.append(g())
    log.append(next(holder[0]))
    return x + 1


@program
def a_break_inside_of_it(x, log):
    def reads(y):
        for i in range(3):
            y = y + i
            log.append(float(y.sum()) > 1e9)
            yield y * 2

    return [z + 1 for z in reads(x)], sum(float(z.sum()) > 1e9 for z in reads(x))


@program
def returned_itself(x, log):
    g = noted(log, 4)
    log.append(next(g))
    h = (i for i in range(3))
    return g, h, x + 1


@program
def names(x, log):
    def made():
        yield 1
        yield 2

    g, e = made(), (i for i in range(2))
    log.append(next(g))
    y = x + 1
    next(e)
    return y, g, e


@program
def alive_in_three_frames(x, log):
    def inner(y, g):
        h = noted(log, 2, "inner")
        y = y + next(h) + next(g, 0)
        log.append("deep")
        return y + next(h)

    def middle(y, g):
        for i in noted(log, 2, "middle"):
            y = inner(y, g) * (i + 1)
        return y

    g = noted(log, 9, "outer")
    for i in noted(log, 2, "loop"):
        x = middle(x, g) + i
    log.append(next(g))
    return x


class Holder:
    def __init__(self, held):
        self.held = held

    def take(self):
        return next(self.held)


@program
def dropped_with_its_holder(x, log):
    holder, pair = Holder(noted(log, 3, "object")), (noted(log, 3, "tuple"), 1)
    x = x + holder.take() + next(pair[0])
    holder = None
    log.append("object")
    del pair
    log.append("tuple")
    table = {"a": [noted(log, 3, "deep")]}
    x = x * 2 + next(table["a"][0])
    table = {}
    log.append("dict")
    return x


@program
def replaced_in_its_holder(x, log):
    holder = Holder(noted(log, 3, "first"))
    x = x + holder.take()
    log.append("taken")
    holder.held = noted(log, 3, "second")
    log.append("replaced")
    x = x * 2 + holder.take()
    del holder.held
    log.append("deleted")
    return x


@program
def replaced_in_a_cell(x, log):
    def read():
        return next(g)

    g = noted(log, 3, "first")
    x = x + read()
    log.append("read")
    g = noted(log, 3, "second")
    log.append("replaced")
    x = x * 2 + read()
    g = None
    log.append("none")
    return x


@program
def popped(x, log):
    held = [noted(log, 3, "a"), noted(log, 3, "b")]
    x = x + sum(next(g) for g in held)
    log.append("begun")
    held.pop()
    log.append("popped")
    held[0] = x
    log.append("assigned")
    return x, len(held)


@program
def left_by_an_exception_of_a_call(x, log):
    def fails(g):
        y = x + next(g)
        for i in noted(log, 3, "inner"):
            y = y + i
            raise ValueError(str(i))
        return y

    g = noted(log, 3, "outer")
    try:
        x = fails(g)
    except ValueError as e:
        log.append(str(e))
    log.append("behind")
    return x, next(g)


@program
def ends_in_the_middle_of_an_expression(x, log):
    def one(g):
        return next(g)

    total = one(noted(log, 2, "a")) + one(noted(log, 2, "b")) + next(iter(noted(log, 2, "c")))
    log.append("behind")
    return x + total
