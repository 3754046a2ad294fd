"""Comprehensions, loops, and containers of the caller that are changed."""

# Clumsy ways to write a thing are meant.
# ruff: noqa: B006, B009, B010, C405, C406, C408, C409, C417, E711, UP028, UP031, UP032
from __future__ import annotations

import itertools

import torch
from families.entry import Family

comprehensions = Family("comprehensions")
loops = Family("loops")
mutation = Family("mutation")
FAMILIES = [comprehensions, loops, mutation]


def _pair():
    return [torch.randn(3), torch.randn(3)]


def _named():
    return {"a": torch.randn(3), "b": torch.randn(3)}


@comprehensions.case
def of_list(x):
    return [x + i for i in range(3)]


@comprehensions.case
def with_condition(x):
    return [x * i for i in range(6) if i % 2 if i > 1]


@comprehensions.case
def nested_loops(x):
    return [x[i, j] for i in range(2) for j in range(i, 2)]


@comprehensions.case
def of_dict(x):
    return {k: x * v for k, v in {"a": 1, "b": 2}.items()}


@comprehensions.case
def of_set(x):
    return x * sum({i % 2 for i in range(5)})


@comprehensions.case
def generator_sum(x):
    return sum(x * i for i in range(3))


@comprehensions.case
def generator_tuple(x):
    return tuple(y + 1 for y in (x, x * 2))


@comprehensions.case
def all_any(x):
    sizes = [3, 4]
    return x + 1 if all(s > 2 for s in sizes) and any(s == 4 for s in x.shape) else x


@comprehensions.case
def in_call(x):
    return torch.cat([row * i for i, row in enumerate(x)])


@comprehensions.case
def inside_comprehension(x):
    return [[x + i * j for j in range(2)] for i in range(2)]


@loops.case
def over_range(x):
    for i in range(1, 10, 3):
        x = x * 2 + i
    return x


@loops.on(lambda: (_pair(),))
def over_list(items):
    total = 0
    for y in items:
        total = total + y
    return total


@loops.on(lambda: (_pair(), _pair()))
def over_zip(xs, ys):
    return [x * y for x, y in zip(xs, ys)]


@loops.on(lambda: (_pair(),))
def over_enumerate(items):
    out = 0
    for i, y in enumerate(items, start=1):
        out = out + y * i
    return out


@loops.on(lambda: (_named(),))
def over_items(d):
    out = {}
    for k, v in d.items():
        out[k + "!"] = v + 1
    return out


@loops.on(lambda: (_named(),))
def over_values(d):
    return sum(v for v in d.values()), list(d.keys())


@loops.case
def break_continue_else(x):
    for i in range(10):
        if i == 2:
            continue
        if i == 4:
            break
        x = x + i
    else:
        x = x * 100
    for _ in range(2):
        x = x + 1
    else:
        x = x * 2
    return x


@loops.case
def while_loop(x):
    n = 0
    while n < 3:
        x = x + n
        n += 1
    return x, n


@loops.case
def nested_loop(x):
    for i in range(2):
        for j in range(3):
            x = x + i * j
    return x


@loops.case
def reversed_sorted(x):
    for n in reversed([1, 2]):
        x = x * n + n
    for key in sorted({"b": 1, "a": 2}):
        x = x + len(key)
    return x


@loops.case
def explicit_iterator(x):
    it = iter([x, x + 1, x + 2])
    a = next(it)
    b = next(it)
    return a * b, next(it), next(it, None)


@loops.case
def tools(x):
    for a, b in itertools.product([1, 2], [3]):
        x = x + a * b
    for n in itertools.chain([1], (2, 3)):
        x = x * n
    return x, list(itertools.islice(itertools.count(), 3)), list(itertools.repeat(2, 2))


@loops.case
def accumulated(x):
    return list(itertools.accumulate([x, x + 1, x + 2]))


@mutation.on(lambda: ([torch.randn(3)], torch.randn(3)))
def list_append(items, x):
    items.append(x + 1)
    return len(items)


@mutation.on(lambda: (_pair(),))
def list_item(items):
    items[0] = items[0] + items[1]


@mutation.on(lambda: (_pair(), torch.randn(3)))
def list_many(items, x):
    items.extend([x, x * 2])
    first = items.pop(0)
    items.insert(1, first * 2)
    items.reverse()
    return items[0]


@mutation.on(lambda: (_named(), torch.randn(3)))
def dict_item(d, x):
    d["c"] = d["a"] + x
    d["a"] = x
    del d["b"]
    return x


@mutation.on(lambda: (_named(),))
def dict_update(d):
    d.update(a=d["b"], n=3)
    return d.pop("b")


@mutation.on(lambda: ({"list": [torch.randn(3)]},))
def nested_list(d):
    d["list"].append(d["list"][0] * 2)
    d["new"] = d["list"]


@mutation.on(lambda: (lambda a: (a, a))([torch.randn(3)]))
def one_list_twice(a, b):
    a.append(b[0] + 1)
    return len(b)


@mutation.on(lambda: ([3, 1, 2], torch.randn(3)))
def list_sorted(numbers, x):
    numbers.sort()
    numbers[0] += 10
    return x * numbers[0]


@mutation.on(lambda: ([], torch.randn(3)))
def list_self_made(out, x):
    made = [x, x + 1]
    out.append(made)
    made.append(x + 2)
    return made


@mutation.on(lambda: (_pair(),))
def list_cleared(items):
    total = items[0] + items[1]
    items.clear()
    return total
