"""Containers: lists, tuples, dicts, sets, slices, unpacking."""

# Clumsy ways to write a thing are meant.
# ruff: noqa: B006, B009, B010, C405, C406, C408, C409, C417, E711, UP028, UP031, UP032
from __future__ import annotations

import collections

import torch
from families.entry import Family

containers = Family("containers")
unpacking = Family("unpacking")
FAMILIES = [containers, unpacking]


def _pair():
    return [torch.randn(3), torch.randn(3)]


def _named():
    return {"a": torch.randn(3), "b": torch.randn(3)}


@containers.case
def list_methods(x):
    items = [x]
    items.append(x + 1)
    items.extend([x + 2, x + 3])
    items.insert(0, x + 4)
    last = items.pop()
    first = items.pop(0)
    items.reverse()
    return items, last - first, len(items)


@containers.case
def list_operators(x):
    items = [x, x + 1] + [x * 2]
    items += [x * 3]
    return items * 2, items[-1], items[1:3], items[::-1]


@containers.case
def list_setitem(x):
    items = [x, x, x]
    items[1] = x + 1
    items[-1:] = [x + 2, x + 3]
    del items[0]
    return items


@containers.case
def list_of_numbers(x):
    sizes = sorted([3, 1, 2], reverse=True)
    sizes.sort()
    return x * sum(sizes) + max(sizes) - min(sizes) + sizes.index(2) + sizes.count(1)


@containers.case
def tuple_operators(x):
    t = (x,) + (x + 1, 2)
    return t, t[1:], len(t), t * 2


@containers.case
def tuple_compare(x):
    return x + 1 if x.shape == (3, 4) and (1, 2) < (1, 3) else x


@containers.case
def dict_methods(x):
    d = {"a": x, "b": x + 1}
    d["c"] = x + 2
    d.update({"d": x + 3}, e=x + 4)
    d.setdefault("a", None)
    gone = d.pop("b")
    return d, gone, d.get("zz"), d.get("zz", 3), "a" in d, len(d)


@containers.case
def dict_views(x):
    d = {"a": x, 2: x + 1}
    return list(d), list(d.values()), [k for k, _ in d.items()], list(d.keys())


@containers.case
def dict_merge(x):
    a = {"x": x, "y": 1}
    b = dict(y=x + 1, z=2)
    return {**a, **b}, a | b


@containers.case
def dict_keys(x):
    d = {(1, 2): x, None: x + 1, torch.float32: x + 2, 1.5: x + 3}
    return d[(1, 2)] + d[None] + d[x.dtype] + d[1.5]


@containers.case
def dict_deleted(x):
    d = dict(a=x, b=x + 1)
    del d["a"]
    d["a"] = x + 2
    return d


@containers.case
def sets(x):
    s = {1, 2} | {3}
    s.add(4)
    s.discard(1)
    return x * len(s), 3 in s, s & {3, 4}, s - {2}, frozenset([1, 2])


@containers.case
def nested(x):
    tree = {"a": [x, (x + 1, {"b": x + 2})]}
    return tree["a"][1][1]["b"] + tree["a"][0], tree


@containers.case
def slices(x):
    part = slice(1, 3)
    return x[part], [1, 2, 3, 4][part], x[(part, slice(None, None, 2))]


@containers.case
def ordered_dict(x):
    d = collections.OrderedDict(a=x)
    d["b"] = x + 1
    d.move_to_end("a")
    return d


@containers.case
def default_dict(x):
    d = collections.defaultdict(list)
    d["a"].append(x)
    d["a"].append(x + 1)
    return d["a"], len(d["b"])


@containers.case
def deque(x):
    d = collections.deque([x, x + 1], maxlen=2)
    d.append(x + 2)
    return list(d), d.popleft()


@containers.case
def identity(x):
    items = [x, x]
    return items[0] is items[1], items[0] is not x, x is x


@containers.case
def shared_list(x):
    a = [x]
    b = a
    b.append(x + 1)
    return a, b


@containers.case
def same_tensor_in_result(x):
    y = x + 1
    return [y, y], {"k": y}


@containers.case
def conversions(x):
    t = tuple([x, x + 1])
    return list(t), tuple(range(3)), dict([("a", x)]), set([1, 1]), list("abc")


@containers.on(lambda: (_pair(),))
def list_argument(items):
    return items[0] + items[-1] * len(items)


@containers.on(lambda: (_named(),))
def dict_argument(d):
    return d["a"] - d["b"]


@containers.on(lambda: (_pair(),))
def list_returned(items):
    return items


@unpacking.on(lambda: (_pair(),))
def basic(items):
    a, b = items
    return a - b


@unpacking.case
def starred(x):
    first, *middle, last = [x, x + 1, x + 2, x + 3]
    return first + last, middle


@unpacking.case
def nested_targets(x):
    (a, [b, *c]), d = (x, [x + 1, x + 2]), 3
    return a + b + c[0] + d


@unpacking.case
def swap(x, y):
    x, y = y, x
    a, b, c = 1, 2, 3
    a, b, c = c, a, b
    return x - y, (a, b, c)


@unpacking.case
def in_display(x):
    items = [x, x + 1]
    return [*items, x + 2], (*items,), {**{"a": x}, "b": x}


@unpacking.case
def walrus(x):
    if (n := x.shape[0]) > 2:
        return x * n
    return x


@unpacking.case
def deleted_local(x):
    y = x + 1
    z = y * 2
    del y
    return z
