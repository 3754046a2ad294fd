"""What calls leave behind: results with shared parts, closures and iterators, writes to what was
there before."""

# Clumsy ways to write a thing are meant.
# ruff: noqa: B009, B010, C408, C416, C417, RET504
from __future__ import annotations

import collections
import dataclasses
import functools
import types

import torch
from families.entry import Family

shared = Family("shared")
made = Family("made")
written = Family("written")
attributes_written = Family("attributes_written")
FAMILIES = [shared, made, written, attributes_written]


def tensor():
    return torch.randn(3, 4)


def and_tensor(*makers):
    return lambda: (tensor(), *(m() for m in makers))


alone = and_tensor()


class Thing:
    total = 0

    def __init__(self, value=None):
        self.value = value


class Slotted:
    __slots__ = ("a", "b")

    def __init__(self, a):
        self.a = a


class Fixed(Slotted):
    __slots__ = ()
    a = 7  # hides the slot

    def __init__(self, b):
        self.b = b


@dataclasses.dataclass
class Record:
    first: torch.Tensor
    rest: list = dataclasses.field(default_factory=list)


Pair = collections.namedtuple("Pair", "left right")


# ------------------------------------------------------------------------------------- shared parts


@shared.case
def list_twice(x):
    rows = [x + 1]
    return rows, rows


@shared.case
def list_in_dict_and_alone(x):
    rows = [x + 1, x]
    return {"rows": rows, "again": rows}, rows


@shared.case
def tensor_in_many_places(x):
    y = x * 2
    return [y, (y, {"y": y})]


@shared.on(alone, beyond_dynamo=True)
def list_in_itself(x):
    rows = [x.sin()]
    rows.append(rows)
    return rows


@shared.on(alone, beyond_dynamo=True)
def dict_in_itself(x):
    d = {"x": x.cos()}
    d["d"] = d
    return d


@shared.on(alone, beyond_dynamo=True)
def objects_in_a_ring(x):
    a, b = Thing(x + 1), Thing(x)
    a.other, b.other = b, a
    return a


@shared.on(and_tensor(list))
def argument_in_result(x, rows):
    return {"rows": rows, "y": x + 1}, rows


@shared.on(and_tensor(Thing))
def result_kept_by_argument(x, thing):
    rows = [x + 1, x * 2]
    thing.rows = rows
    return rows


@shared.case
def namedtuple_of_lists(x):
    rows = [x - 1]
    return Pair(rows, (rows, x + 1))


@shared.on(alone, beyond_dynamo=True)
def record_with_itself(x):
    r = Record(x + 1)
    r.rest.append(r)
    return r


# -------------------------------------------------------------------------------------- made inside


@made.case
def deque_with_limit(x):
    d = collections.deque(maxlen=2)
    d.append(x)
    d.append(x + 1)
    d.append(x + 2)
    return d[0] + d[1], len(d)


@made.case
def ordered_moved(x):
    d = collections.OrderedDict(a=x + 1, b=x)
    d.move_to_end("a")
    return d


@made.case
def default_dict_grouped(x):
    d = collections.defaultdict(list)
    for i, row in enumerate(x.unbind(0)):
        d[i % 2].append(row + i)
    return torch.stack(d[0]), len(d[1])


@made.case
def counted_letters(x):
    c = collections.Counter("abca")
    return x * c["a"], c["b"]


@made.on(alone, beyond_dynamo=True)
def slots_made(x):
    s = Slotted(x + 1)
    s.b = [s]
    return s


@made.on(alone, beyond_dynamo=True)
def a_hidden_slot_made(x):
    f = Fixed(x + 1)
    return f, f.a


@made.case
def partial_called(x):
    f = functools.partial(torch.add, x)
    return f(x, alpha=2)


@made.case
def closure_counts(x):
    n = 0

    def bump(y):
        nonlocal n
        n += 1
        return y * n

    return bump(x) + bump(x), n


@made.case
def set_of_names(x):
    names = {"a"} | {"b", "a"}
    names.discard("b")
    return x * len(names), names


@made.on(alone, beyond_dynamo=True)
def namespace(x):
    n = types.SimpleNamespace(y=x + 1)
    return n.y * 2


@made.case
def exception_carries(x):
    try:
        raise KeyError("k", 2)
    except KeyError as e:
        return x * e.args[1]


@made.case
def sorted_by_key(x):
    order = sorted([(2, "b"), (1, "c")], key=lambda p: p[0])
    return [x * n for n, _ in order]


@made.case
def list_sorted_in_place(x):
    rows = [3, 1, 2]
    rows.sort(reverse=True)
    return [x + n for n in rows]


# ---------------------------------------------------------- written: what was there before the call


@written.on(and_tensor(lambda: [1, 2]))
def list_appended(x, rows):
    rows.append(x + 1)
    return x * len(rows)


@written.on(and_tensor(lambda: [3, 1, 2]))
def list_edited(x, rows):
    rows[0] = 7
    rows.insert(1, 9)
    del rows[2]
    return x * rows.pop()


@written.on(and_tensor(lambda: [3, 1, 2]))
def list_slice_replaced(x, rows):
    rows[1:] = [5, 6]
    return x * rows[2]


@written.on(and_tensor(lambda: [1]))
def list_added_in_place(x, rows):
    rows += [x + 1, 2]
    return x * len(rows)


@written.on(and_tensor(lambda: [[1], [2]]))
def inner_list(x, rows):
    rows[1].append(3)
    return x * len(rows[1])


@written.on(and_tensor(lambda: [[1]] * 2))
def inner_list_twice(x, rows):
    rows[0].append(x + 1)
    return x * len(rows[1])


@written.on(and_tensor(lambda: {"a": 1}))
def dict_items(x, d):
    d["y"] = x + 1
    d["a"] = d["a"] + 1
    return d["y"] * d["a"]


@written.on(and_tensor(lambda: {"a": 1, "b": 2}))
def dict_popped_and_put_back(x, d):
    b = d.pop("b")
    d["c"] = x + b
    d["b"] = 2
    return list(d), d["c"] * 2


@written.on(and_tensor(lambda: {"a": 1}))
def dict_updated(x, d):
    d.update({"b": 2}, c=x + 1)
    return d.setdefault("b", 5) * d.setdefault("e", x)


@written.on(and_tensor(lambda: {"a": 1}))
def dict_cleared(x, d):
    d.clear()
    d["z"] = x * 2
    return len(d), d["z"] + 1


@written.on(and_tensor(lambda: {1, 2}))
def set_changed(x, s):
    s.add(3)
    s.discard(1)
    return x * len(s)


@written.on(and_tensor(lambda: collections.deque([1], maxlen=2)))
def deque_pushed(x, d):
    d.append(x + 1)
    return d[-1] * 2


@written.on(and_tensor(lambda: collections.OrderedDict(a=1, b=2)))
def ordered_dict_written(x, d):
    d["c"] = x + 1
    return x * len(d)


@written.on(and_tensor(lambda: collections.defaultdict(list)))
def default_dict_filled(x, d):
    d["k"].append(x + 1)
    return d["k"][0] * 2


@written.made
def closure_list():
    seen = []

    def f(x):
        seen.append(x.sum())
        return x + len(seen)

    return f, (tensor(),)


@written.made
def closure_number():
    n = 1

    def f(x):
        nonlocal n
        n = n + 1
        return x * n

    return f, (tensor(),)


@written.made
def closure_through_a_call():
    n, last = 0, None

    def note(y):
        nonlocal n, last
        n, last = n + 1, y
        return n

    def f(x):
        return note(x + 1) * last

    return f, (tensor(),)


# ------------------------------------------------------------------------------- attributes written


@attributes_written.on(and_tensor(Thing))
def attribute_then_read(x, thing):
    thing.value = x + 1
    thing.value = thing.value * 2
    return thing.value - 1


@attributes_written.on(and_tensor(lambda: Thing(3)))
def attribute_deleted(x, thing):
    n = thing.value
    del thing.value
    thing.other = n
    return x * n, hasattr(thing, "value")


@attributes_written.on(and_tensor(lambda: Thing(Thing(1))))
def attribute_of_attribute(x, thing):
    thing.value.value += 1
    return x * thing.value.value


@attributes_written.on(and_tensor(lambda: Slotted(2)))
def slots(x, s):
    s.b = x + s.a
    s.a = 5
    return s.b * s.a


@attributes_written.on(and_tensor(Thing), beyond_dynamo=True)
def through_setattr(x, thing):
    for i, name in enumerate(("p", "q")):
        setattr(thing, name, x + i)
    return getattr(thing, "p") + thing.q


@attributes_written.made
def two_names_of_one_object():
    def f(x, a, b):
        a.value = x + 1
        b.value = b.value * 2
        return a.value

    thing = Thing()
    return f, (tensor(), thing, thing)


@attributes_written.made(beyond_dynamo=True)
def class_attribute():
    class Own(Thing):
        pass

    def f(x, thing, Own=Own):
        Own.total = Own.total + 2
        return x * thing.total

    return f, (tensor(), Own())


@attributes_written.made(beyond_dynamo=True)
def function_attribute():
    def f(x):
        f.calls = f.calls + 1
        return x * f.calls

    f.calls = 0
    return f, (tensor(),)


@attributes_written.made
def module_state():
    class Counter(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.steps, self.history = 0, []

        def forward(self, x):
            self.steps += 1
            self.history.append(x.mean())
            self.last = x * self.steps
            return self.last + 1

    return Counter(), (tensor(),)
