"""Calls: ways to pass arguments, closures and cells."""

# Clumsy ways to write a thing are meant.
# ruff: noqa: B006, B009, B010, C405, C406, C408, C409, C417, E711, UP028, UP031, UP032
from __future__ import annotations

import torch
from families.entry import Family

arguments = Family("arguments")
closures = Family("closures")
FAMILIES = [arguments, closures]


@arguments.case
def default(x, scale=2):
    return x * scale


@arguments.on(lambda: (torch.randn(3),), lambda: {"scale": 3, "shift": torch.ones(3)})
def keywords(x, *, scale, shift=None):
    return x * scale + shift


@arguments.on(lambda: (torch.randn(3), torch.randn(3), torch.randn(3)))
def star(x, *rest):
    for y in rest:
        x = x + y
    return x, len(rest)


@arguments.on(lambda: (torch.randn(3),), lambda: {"a": torch.ones(3), "b": 2})
def double_star(x, **options):
    return x * options["a"] + options.get("b", 1) + options.get("c", 5)


@arguments.on(lambda: (1, torch.randn(3), 2), lambda: {"k": torch.ones(3), "z": 4})
def everything(a, b, /, c=3, *rest, k, **others):
    return a * b + c + k, rest, others


@arguments.on(lambda: (torch.randn(3),))
def empty_star(x, *rest, **others):
    return x + 1 if not rest and not others else x


def _weighted(x, y, *, a=1.0, b=1.0):
    return x * a + y * b


@arguments.case
def call_with_star(x, y):
    pair = (x, y)
    options = {"a": 2.0}
    return _weighted(*pair, **options, b=3.0)


@arguments.case
def forwarded(x, y):
    def pass_on(*args, **kwargs):
        return _weighted(*args, **kwargs)

    return pass_on(x, y, b=2.0)


@arguments.case
def default_mutable(x, memo=[1, 2]):
    return x + sum(memo)


@arguments.on(lambda: (torch.randn(3), None))
def none_argument(x, bias):
    return x if bias is None else x + bias


@arguments.on(lambda: (torch.randn(3),), lambda: {"y": torch.ones(3)})
def tensor_by_keyword(x, y):
    return x - y


@arguments.on(lambda: ((torch.randn(3), {"k": [torch.randn(3), 4]}),))
def nested_structure(tree):
    x, rest = tree
    return x + rest["k"][0] * rest["k"][1]


@arguments.on(lambda: (torch.randn(3), "mean", True, 1.5, torch.float64))
def constants(x, how, double, factor, dtype):
    y = getattr(x, how)() * factor
    return y.to(dtype) if double else y


@closures.made
def over_tensor():
    w = torch.randn(3)
    return (lambda x: x * w), (torch.randn(3),)


@closures.made
def over_constants():
    n, name = 3, "sin"
    return (lambda x: getattr(x, name)() * n), (torch.randn(3),)


@closures.made
def over_function():
    def square(x):
        return x * x

    return (lambda x: square(square(x))), (torch.randn(3),)


@closures.made
def over_list():
    weights = [torch.randn(3), torch.randn(3)]
    return (lambda x: x * weights[0] + weights[1]), (torch.randn(3),)


@closures.made
def written_tensor():
    state = torch.zeros(3)

    def f(x):
        state.add_(x)
        return state * 2

    return f, (torch.randn(3),)


@closures.made
def nonlocal_counter():
    count = 0

    def f(x):
        nonlocal count
        count += 1
        return x + count

    return f, (torch.randn(3),)


@closures.made
def nonlocal_tensor():
    last = None

    def f(x):
        nonlocal last
        last = x * 2
        return last + 1

    return f, (torch.randn(3),)


@closures.case
def inner_nonlocal(x):
    total = x

    def more(y):
        nonlocal total
        total = total + y

    more(x * 2)
    more(1)
    return total


@closures.case
def late_binding(x):
    scale = 2
    f = lambda y: y * scale
    scale = 5
    return f(x)


@closures.case
def loop_closures(x):
    made = [lambda y: y * i for i in range(3)]
    bound = [lambda y, i=i: y + i for i in range(3)]
    return made[0](x), bound[1](x)


@closures.case
def returned_function_used(x):
    def adder(n):
        def add(y):
            return y + n

        return add

    return adder(2)(x) * adder(x)(x)


@closures.case
def recursion(x):
    def power(y, n):
        return y if n == 0 else power(y * x, n - 1)

    return power(x, 3)


@closures.case
def cell_of_argument(x, y):
    def scaled():
        return x * 2

    x = y
    return scaled()
