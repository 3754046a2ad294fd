"""Control flow: conditionals, strings, exceptions."""

# Clumsy ways to write a thing are meant.
# ruff: noqa: B006, B009, B010, C405, C406, C408, C409, C417, E711, UP028, UP031, UP032
from __future__ import annotations

import math

import torch
from families.entry import Family

conditions = Family("conditions")
strings = Family("strings")
exceptions = Family("exceptions")
FAMILIES = [conditions, strings, exceptions]


@conditions.on(lambda: (torch.randn(3), True))
def constant(x, flag):
    if flag:
        return x + 1
    else:
        return x - 1


@conditions.on(lambda: (torch.randn(3), None, 3))
def none_tests(x, y, z):
    if y is None and z is not None:
        x = x * z
    return x if y == None else y


@conditions.on(lambda: (torch.randn(3), 2))
def elif_chain(x, n):
    if n == 1:
        x = x + 1
    elif n == 2:
        x = x + 20
    else:
        x = x + 300
    return x


@conditions.on(lambda: (torch.randn(3), [torch.randn(3)]))
def isinstance_tests(x, y):
    if isinstance(y, (list, tuple)):
        x = x + y[0]
    if isinstance(x, torch.Tensor) and not isinstance(3, str):
        x = x * 2
    return x if type(y) is list and issubclass(bool, int) else y


@conditions.on(lambda: (torch.randn(3), 0, "", []))
def truth(x, n, text, items):
    if n or text or items or not x.shape:
        return x
    return x * (n or 4) + (len(text) and 5)


@conditions.case
def chained_comparison(x):
    return x + 1 if 0 < x.shape[0] <= 3 != 4 else x


@conditions.case
def conditional_expression(x):
    n = 3 if x.ndim == 2 else 4
    return x * n + (1 if not n else 2)


@conditions.on(lambda: (torch.randn(3), "b"))
def membership(x, key):
    return x + 1 if key in ("a", "b") and key not in {"c": 1} else x


@conditions.on(lambda: (torch.randn(3), ("scale", 3)))
def match_statement(x, command):
    match command:
        case ("scale", n):
            return x * n
        case {"add": n}:
            return x + n
        case _:
            return x


@conditions.case
def asserted(x):
    assert x.shape[0] == 3, "three rows"
    assert isinstance(x, torch.Tensor)
    return x + 1


@conditions.on(lambda: (torch.randn(3), float("inf")))
def float_tests(x, limit):
    return x * 2 if math.isinf(limit) and math.sqrt(4) == 2.0 else x * math.pi


@conditions.case
def number_functions(x):
    n = int(2.7) + round(1.5) + bool([]) + float("2") + pow(2, 3) + int("11", 2) + ord("a")
    return x * n + math.floor(2.5) + math.prod([2, 3])


@strings.on(lambda: (torch.randn(3), "sin"))
def comparison(x, name):
    return x.sin() if name == "sin" and name != "cos" and name < "t" else x.cos()


@strings.case
def formatted(x):
    d = {f"layer{i}": x + i for i in range(2)}
    return d[f"layer{1}"], f"{x.shape[0]}x{x.shape[1]:03d} {'a'!r:>4}"


@strings.case
def methods(x):
    name = "Some.Name".lower().split(".")[-1].replace("n", "N").strip()
    if name.startswith("N") and name.endswith("e"):
        x = x + len(name)
    return x, "-".join(["a", "b"]), "abc".upper()[::-1], name.find("a")


@strings.case
def percent_and_format(x):
    return x + 1, "%s %d" % ("a", 3), "{} {k}".format(1, k=2), "a" + "b" * 2, str(3), repr("q")


@strings.on(lambda: (torch.randn(3), "a,b,c"))
def split_loop(x, text):
    for part in text.split(","):
        x = x + ord(part)
    return x


@exceptions.case
def caught(x):
    try:
        raise ValueError("no")
    except ValueError as e:
        x = x + len(e.args[0])
    return x


@exceptions.case
def key_error(x):
    try:
        n = {"a": 1}["b"]
    except KeyError:
        n = 5
    return x * n


@exceptions.case
def attribute_error(x):
    try:
        return x.nothing
    except AttributeError:
        return x + 1


@exceptions.case
def finally_clause(x):
    try:
        x = x + 1
    finally:
        x = x * 2
    return x


@exceptions.case
def else_clause(x):
    try:
        n = int("3")
    except (ValueError, TypeError):
        n = 0
    else:
        n += 1
    finally:
        n += 10
    return x * n


@exceptions.case
def nested(x):
    try:
        try:
            raise KeyError("inner")
        except KeyError as e:
            raise RuntimeError("outer") from e
    except RuntimeError:
        x = x + 2
    return x


@exceptions.case
def from_callee(x):
    def fail(y):
        if y.ndim == 2:
            raise NotImplementedError
        return y

    try:
        return fail(x)
    except NotImplementedError:
        return x * 2


@exceptions.case
def stop_iteration(x):
    it = iter([1])
    next(it)
    try:
        next(it)
    except StopIteration:
        x = x + 3
    return x


class _Own(Exception):
    def __init__(self, value):
        super().__init__(value)
        self.value = value


@exceptions.on(lambda: (torch.randn(3),), beyond_dynamo=True)
def own_class(x):
    try:
        raise _Own(7)
    except _Own as e:
        return x + e.value


@exceptions.on(lambda: (torch.randn(3),), breaks=True)
def raised_to_caller(x):
    y = x + 1
    raise ValueError(f"bad {y.shape[0]}")


@exceptions.on(lambda: (torch.randn(3), torch.randn(4)), breaks=True, beyond_dynamo=True)
def shape_error(x, y):
    return x * 2 + y


@exceptions.on(lambda: ({"a": torch.randn(3)},), breaks=True)
def key_missing(d):
    d["b"] = d["a"] + 1
    return d["c"]


@exceptions.on(lambda: (torch.randn(3),), breaks=True)
def assertion_fails(x):
    assert x.ndim == 2, "two dimensions"
    return x
