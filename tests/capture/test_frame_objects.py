"""Captured code that looks at frames: sys._getframe, inspect.currentframe."""

import functools
import inspect
import sys
import traceback

import pytest
import torch

import oxyfuel

X = torch.arange(6.0)


def assert_as_eager(function, compiled):
    """Compiled and eager results, a tensor or one and what was found out."""
    for x in (X, X + 1):
        results = [r if isinstance(r, tuple) else (r,) for r in (compiled(x), function(x))]
        (y, *found), (expected, *others) = results
        assert torch.equal(y, expected) and found == others


def line_of_caller():
    return sys._getframe(1).f_lineno


def name_of_caller():
    frame = inspect.currentframe().f_back
    return frame.f_code.co_name


def names_around(depth=3):
    frame = sys._getframe()
    names = [frame.f_code.co_name]
    while len(names) < depth:
        frame = frame.f_back
        names.append(frame.f_code.co_name)
    return names


def lines(x):
    first = line_of_caller()
    second = (
        x,
        line_of_caller(),
    )[1]
    return x * (second - first)


def names(x):
    def inner(y):
        return y + 1, name_of_caller()

    y, name = inner(x)
    return y, name, name_of_caller()


def chain(x):
    def inner(y):
        return y + 1, names_around()

    return inner(x)


def through_functions_in_c(x):
    found = list(map(names_around, [1, 2]))
    total = functools.reduce(lambda a, b: (a + b, found.append(names_around(2)))[0], [x, x, x])
    return total, found, sorted([3, 1, 2], key=lambda i: (found.append(names_around(2)), i)[1])


def globals_of_caller(x):
    def inner():
        return sys._getframe(1).f_globals

    return x + 1, inner()["X"] is X, inner() is globals()


def locals_of_caller(x):
    def inner():
        return sorted(sys._getframe(1).f_locals)

    y = x + 1
    return y, inner()


def one_object(x):
    def inner():
        return sys._getframe(1)

    a, b = inner(), sys._getframe(0)
    return x + (a is b) + (a is sys._getframe()), isinstance(a, type(sys._getframe()))


def line_goes_on(x):
    frame = sys._getframe()
    first = frame.f_lineno
    y = x + 1
    return y, frame.f_lineno - first


def of_generator(x):
    def items():
        yield names_around(2)
        yield names_around(2)

    return x + 1, list(items()), [name for name, _ in items()]


class Layer(torch.nn.Module):
    def forward(self, x):
        return x + 1, names_around(1), name_of_caller()


PARTS_OF_GRAPHS = [
    lines,
    names,
    chain,
    through_functions_in_c,
    globals_of_caller,
    one_object,
    line_goes_on,
    of_generator,
    Layer(),
]


@pytest.mark.parametrize("function", PARTS_OF_GRAPHS, ids=lambda f: getattr(f, "__name__", "Layer"))
def test_frames_of_captured_functions(function):
    assert_as_eager(function, oxyfuel.compile(function, fullgraph=True))


def test_locals_of_a_captured_function():
    compiled = oxyfuel.compile(locals_of_caller, fullgraph=sys.version_info < (3, 13))
    assert_as_eager(locals_of_caller, compiled)


def of_the_caller(x):
    return x + 1, name_of_caller(), sys._getframe(1).f_code.co_name


def kept(x):
    return x + 1, sys._getframe()


def trace(x):
    return x + 1, traceback.extract_stack(limit=1)[0].name


def after_the_frame(x):
    def inner():
        return sys._getframe()

    frame = inner()
    return x + 1, frame.f_code.co_name, frame.f_back is None


def info(x):
    return x + 1, inspect.getframeinfo(inspect.currentframe()).function


def setting(x):
    sys._getframe().f_trace_lines = True
    return x + 1


@pytest.mark.parametrize("function", [of_the_caller, trace, after_the_frame, info, setting])
def test_what_a_graph_cannot_have_runs_in_eager(function):
    assert_as_eager(function, oxyfuel.compile(function))


def test_a_frame_that_is_kept_is_a_real_one():
    y, frame = oxyfuel.compile(kept)(X)
    assert torch.equal(y, X + 1) and frame.f_code is kept.__code__
    assert torch.equal(frame.f_locals["x"], X)


def test_a_break_while_a_frame_is_held():
    def f(x):
        y = x.sin()
        frame = sys._getframe()
        oxyfuel.graph_break()
        return y + 1, frame.f_code.co_name, frame.f_lineno

    y, name, line = oxyfuel.compile(f)(X)
    torch.testing.assert_close(y, X.sin() + 1)
    assert (name, line) == f(X)[1:]
