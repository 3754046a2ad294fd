"""Context managers, and what breaks a graph."""

from __future__ import annotations

import contextlib

import torch
from families.entry import Family

contexts = Family("contexts", grad=True)
breaks = Family("breaks", breaks=True)
FAMILIES = [contexts, breaks]


@contexts.case
def no_grad(x):
    with torch.no_grad():
        y = x * 2
    return y + torch.is_grad_enabled()


@contexts.case
def enable_grad_inside(x):
    with torch.no_grad():
        with torch.enable_grad():
            y = x * 2
        z = y + 1
    return z


@contexts.case
def set_grad_enabled(x):
    with torch.set_grad_enabled(False):
        return x.sin() + 1


@contexts.case
def no_grad_decorator(x):
    @torch.no_grad()
    def f(y):
        return y * 3

    return f(x) + 1


@contexts.case
def autocast(x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return x @ x.t()


@contexts.case
def autocast_off_inside(x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = x @ x.t()
        with torch.autocast("cpu", enabled=False):
            z = x @ x.t()
        w = y @ y
    return w, z, y @ y, torch.is_autocast_enabled("cpu")


@contexts.case
def autocast_decorator(x):
    @torch.autocast("cpu", dtype=torch.bfloat16)
    def f(y):
        return y @ y.t()

    return f(x), x @ x.t()


@contexts.case
def autocast_around_nothing(x):
    with torch.autocast("cpu", dtype=torch.bfloat16), torch.no_grad():
        n = torch.is_grad_enabled() + torch.is_autocast_enabled("cpu")
    return x @ x.t() + n


@contexts.case
def set_grad_as_a_function(x):
    before = torch.is_grad_enabled()
    torch.set_grad_enabled(False)
    y = x * 2
    torch.set_grad_enabled(before)
    return y + 1


@contexts.made
def set_grad_and_left():
    def f(x):
        torch._C._set_grad_enabled(False)
        return x * 2, torch.is_grad_enabled()

    def run(x):
        with torch.enable_grad():
            return f(x), torch.is_grad_enabled()

    return run, (torch.randn(3),)


@contexts.case
def raised_in_a_context(x):
    try:
        with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
            y = x @ x.t()
            raise KeyError("k")
    except KeyError:
        return y, x @ x.t(), torch.is_grad_enabled(), torch.is_autocast_enabled("cpu")


@contexts.case
def null(x):
    with contextlib.nullcontext(3) as n:
        return x * n


class _Scale:
    def __init__(self, log):
        self.log = log

    def __enter__(self):
        self.log.append("in")
        return 2

    def __exit__(self, *what):
        self.log.append("out")
        return False


@contexts.case
def own_class_manager(x):
    log = []
    with _Scale(log) as n, _Scale(log):
        x = x * n
    return x, log


@contextlib.contextmanager
def _noted(log):
    log.append("before")
    try:
        yield 4
    finally:
        log.append("after")


@contexts.case
def generator_manager(x):
    log = []
    with _noted(log) as n:
        x = x + n
    return x, log


class _Swallow:
    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        return kind is ValueError


@contexts.case
def swallowed(x):
    with _Swallow():
        x = x + 1
        raise ValueError
    return x * 2


@breaks.case
def printed(x):
    y = x + 1
    print("the shape is", y.shape[0])
    return y * 2


@breaks.on(lambda: (torch.tensor([2.0, 3.0]),))
def item(x):
    n = x.sum().item()
    return x * n


@breaks.on(lambda: (torch.tensor([2.0, 3.0]),))
def branch_on_data(x):
    y = x * 2
    if y.sum() > 0:
        return y + 1
    return y - 1


@breaks.on(lambda: (torch.tensor([2.0, 3.0]),))
def to_list(x):
    return sum((x + 1).tolist()) * x


@breaks.on(lambda: (torch.tensor(3.0),))
def float_of(x):
    return float(x) + 1, int(x * 2), bool(x)


@breaks.case
def break_in_loop(x):
    for i in range(3):
        x = x + i
        print(i)
    return x


@breaks.on(lambda: (torch.tensor(3.0),))
def while_on_data(x):
    n = 0
    while x > 1:
        x = x / 2
        n += 1
    return x, n


def _prints(x):
    y = x * 3
    print("inner")
    return y + 1


@breaks.case
def in_callee(x):
    y = x + 1
    z = _prints(y)
    return z * y


@breaks.case
def with_live_state(x):
    d = {"a": x + 1}
    items = [x, d]
    print(len(items))
    d["b"] = d["a"] * 2
    return items


@breaks.on(lambda: (torch.randn(3, 3),), grad=True)
def inside_autocast(x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = x @ x
        print("break")
        z = x @ x
    return y, z, x @ x, torch.is_autocast_enabled("cpu")


@breaks.on(lambda: (torch.randn(3, 3),), grad=True)
def inside_nested_contexts(x):
    with torch.no_grad():
        with torch.enable_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
            y = x @ x
            with torch.autocast("cpu", enabled=False), torch.set_grad_enabled(False):
                print("break")
                z = x @ x, torch.is_grad_enabled()
            w = x @ x, torch.is_grad_enabled()
        v = x @ x, torch.is_grad_enabled()
    return y, z, w, v, torch.is_grad_enabled(), torch.is_autocast_enabled("cpu")


@breaks.on(lambda: (torch.randn(3, 3),), grad=True)
def in_an_inlined_context(x):
    @torch.autocast("cpu", dtype=torch.bfloat16)
    def f(y):
        print("break")
        return y @ y

    with torch.no_grad():
        y = f(x)
    return y, x @ x, torch.is_grad_enabled()


@breaks.case
def inside_no_grad(x):
    with torch.no_grad():
        y = x + 1
        print("held")
        z = y * 2
    return z + y


@breaks.on(lambda: ([], torch.randn(3)))
def after_mutation(log, x):
    log.append(x + 1)
    print(len(log))
    log.append(x * 2)
    return log[0]


@breaks.on(lambda: (torch.tensor([0.0, 2.0, 0.0, 3.0]),))
def data_dependent_shape(x):
    return x.nonzero() + 1, x[x > 0] * 2


@breaks.case
def disabled_function(x):
    return torch.compiler.disable(lambda y: y * 2)(x + 1) + 1


@breaks.case
def explicit(x):
    x = x + 1
    torch._dynamo.graph_break()
    return x * 2


@breaks.case
def to_numpy(x):
    values = (x + 1).numpy().tolist()
    return x * len(values)


@breaks.case
def in_try(x):
    try:
        y = x + 1
        print("tried")
        y = y * 2
    except ValueError:
        y = x
    return y
