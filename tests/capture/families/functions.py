"""Functions as values: nested functions, lambdas, decorators, generators; module globals."""

# Clumsy ways to write a thing are meant.
# ruff: noqa: B006, B009, B010, C405, C406, C408, C409, C417, E711, UP028, UP031, UP032
from __future__ import annotations

import functools

import torch
from families.entry import Family

functions = Family("functions")
module_globals = Family("globals")
FAMILIES = [functions, module_globals]


def _weighted(x, y, *, a=1.0, b=1.0):
    return x * a + y * b


@functions.case
def nested(x):
    def f(y):
        def g(z):
            return z + 1

        return g(y) * 2

    return f(x)


@functions.case
def lambda_called(x):
    return (lambda a, b=2: a * b)(x) + (lambda *r: r[0])(x)


@functions.case
def function_argument(x):
    def apply(f, *args):
        return f(*args)

    return apply(torch.add, x, 1) + apply(lambda y: y * 2, x)


def _doubled(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        return function(*args, **kwargs) * 2

    return wrapper


def _scaled(factor):
    def decorate(function):
        def wrapper(x):
            return function(x) * factor

        return wrapper

    return decorate


@_doubled
def _shifted(x, by=1):
    return x + by


@functions.case
def decorated(x):
    return _shifted(x, by=3)


@functions.made
def decorated_itself():
    return _doubled(lambda x: x.sin()), (torch.randn(3),)


@functions.case
def decorated_inside(x):
    @_scaled(3)
    def f(y):
        return y + 1

    return f(x)


@functions.case
def partial(x):
    f = functools.partial(_weighted, x, b=2.0)
    return f(x + 1, a=0.5)


@functions.made
def partial_itself():
    return functools.partial(_weighted, a=3.0), (torch.randn(3), torch.randn(3))


@functions.case
def reduced(x):
    return functools.reduce(lambda a, b: a + b, [x, x * 2, x * 3])


@functions.case
def mapped(x):
    return sum(map(lambda y: y * 2, [x, x + 1])), list(filter(lambda n: n > 1, [1, 2, 3]))


@functions.case
def function_table(x):
    table = {"sin": torch.sin, "double": lambda y: y * 2}
    for name in ("sin", "double"):
        x = table[name](x)
    return x


@functions.case
def returns_many(x):
    def f(y):
        return y, y + 1, {"z": y + 2}

    a, b, c = f(x)
    return a + b + c["z"]


@functions.case
def early_return(x):
    def f(y, n):
        for i in range(10):
            if i == n:
                return y
            y = y + i
        return None

    return f(x, 3)


@functions.case
def callable_test(x):
    return x + 1 if callable(torch.sin) and not callable(3) else x


@functions.case
def default_evaluated(x):
    def f(y, w=x * 2):
        return y + w

    return f(x)


@functions.case
def function_attribute(x):
    return x * _weighted.__kwdefaults__["a"] + len(_weighted.__name__)


def _count_up(n):
    for i in range(n):
        yield i


@functions.case
def generator(x):
    for i in _count_up(3):
        x = x + i
    return x


@functions.case
def generator_of_tensors(x):
    def parts(y):
        yield y
        yield y * 2
        yield from (y * 3, y * 4)

    return sum(parts(x))


SCALE = 3
TABLE = torch.arange(4.0)
SETTINGS = {"mode": "sin", "factor": 2}
HISTORY: list = []
COUNTER = 0
STATE = torch.zeros(4)


@module_globals.case
def constant(x):
    return x * SCALE


@module_globals.case
def tensor(x):
    return x + TABLE


@module_globals.case
def dictionary(x):
    return getattr(x, SETTINGS["mode"])() * SETTINGS["factor"]


@module_globals.made
def written_number():
    global COUNTER
    COUNTER = 0

    def f(x):
        global COUNTER
        COUNTER = COUNTER + 1
        return x + COUNTER

    return f, (torch.randn(3),)


@module_globals.made
def written_list():
    HISTORY.clear()

    def f(x):
        HISTORY.append(x + 1)
        return x * 2

    return f, (torch.randn(3),)


@module_globals.made
def written_tensor_global():
    global STATE
    STATE = torch.zeros(4)

    def f(x):
        STATE.add_(x)
        return STATE + 1

    return f, (torch.randn(4),)


@module_globals.made
def replaced_tensor():
    global STATE
    STATE = torch.zeros(4)

    def f(x):
        global STATE
        STATE = STATE + x
        return STATE.sum()

    return f, (torch.randn(4),)


@module_globals.case
def shadowed(x):
    SCALE = 5
    return x * SCALE
