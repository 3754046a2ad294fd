"""A thousand compilations leave nothing behind: functions, code, modules, tensors and compiled
callables die."""

import gc
import resource
import weakref

import pytest
import torch

import oxyfuel

COUNT = 1000


pytestmark = pytest.mark.usefixtures("strict_without_grad")


def fresh_function(number):
    """A function with a code object of its own, and of its inner function."""
    scope = {"torch": torch}
    exec(
        f"""
def function(x):
    def inner(y):
        return [y * {number}, {{"a": y + {number}}}]
    first, second = inner(torch.relu(x))
    return first + second["a"]
""",
        scope,
    )
    return scope["function"]


def captured_function(number):
    function = fresh_function(number)
    x = torch.ones(2)
    compiled = oxyfuel.compile(function, backend="eager")
    assert compiled(x).tolist() == [2.0 * number + 1] * 2
    return function, function.__code__, compiled, x


def function_that_breaks(number):
    function = fresh_function(number)

    def broken(x):
        y = function(x)
        if y.sum() > 0:
            y = y + 1
        return y

    compiled = oxyfuel.compile(broken, backend="eager")
    x = torch.ones(2)
    assert compiled(x).tolist() == [2.0 * number + 2] * 2
    return function, function.__code__, broken, compiled, x


def module(number):
    class Module(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.full((2,), float(number)))

        def forward(self, x):
            self.last = x * self.weight
            return self.last

    made, x = Module(), torch.ones(2)
    compiled = oxyfuel.compile(made, backend="eager")
    assert compiled(x).tolist() == [float(number)] * 2
    return Module, made, made.weight, compiled, type(compiled), compiled._oxyfuel_compiled, x


def recursive(number):
    """Reachable from its own closure, which its guards hold as well."""

    def count(x, n):
        return x if n == 0 else compiled(x + number, n - 1)

    compiled = oxyfuel.compile(count, backend="eager")
    x = torch.zeros(2)
    assert compiled(x, 3).tolist() == [3.0 * number] * 2
    return count, compiled, x


def global_of_itself(number):
    """In the globals of its own function, which its guards hold as well."""
    function = fresh_function(number)
    scope = function.__globals__
    scope["number"], scope["compiled"] = number, oxyfuel.compile(function, backend="eager")
    x = torch.ones(2)
    scope["compiled"](x)
    return function, scope["compiled"], x


def failing(number):
    def raises(x):
        y = x + number
        raise ValueError(y)

    compiled = oxyfuel.compile(raises, backend="eager")
    with pytest.raises(ValueError):
        compiled(torch.ones(2))
    return raises, compiled


def watch(objects):
    return [weakref.ref(o) for o in objects]


def memory():
    """The largest resident size so far, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


@pytest.mark.parametrize(
    "make",
    [captured_function, function_that_breaks, module, recursive, global_of_itself, failing],
    ids=lambda f: f.__name__,
)
def test_a_thousand_captures_leave_nothing(make):
    for number in range(20):
        make(number)
    gc.collect()
    objects, size, watched = len(gc.get_objects()), memory(), []
    for number in range(COUNT):
        watched += watch(make(number + 100))
    gc.collect()
    alive = [w for w in watched if w() is not None]
    watched.clear()
    assert not alive and len(gc.get_objects()) - objects < COUNT / 10
    assert memory() - size < 100e6


def test_compiled_plans_die_with_their_function():
    def once(number):
        function = fresh_function(number)
        x = torch.ones(2)
        compiled = oxyfuel.compile(function)
        assert compiled(x).tolist() == [2.0 * number + 1] * 2
        return function, function.__code__, compiled, x

    once(1)
    gc.collect()
    objects, watched = len(gc.get_objects()), []
    for number in range(20):
        watched += watch(once(2 + number % 2))
    gc.collect()
    alive = [w for w in watched if w() is not None]
    watched.clear()
    assert not alive and len(gc.get_objects()) - objects < 20


def test_results_do_not_keep_a_capture():
    def f(x):
        return [x + 1, {"y": x * 2}]

    compiled = oxyfuel.compile(f)
    x = torch.ones(2)
    result = compiled(x)
    watched = watch([f, compiled, x])
    del f, compiled, x
    gc.collect()
    assert not [w for w in watched if w() is not None] and result[0].tolist() == [2, 2]


def test_a_cycle_through_a_function_that_was_called_inside():
    class Held:
        pass

    def make():
        def function(x, called):
            return list(map(called, [x]))

        scope = {"oxyfuel": oxyfuel, "held": Held(), "compiled": oxyfuel.compile(function)}
        code = "def called(x):\n    oxyfuel.graph_break()\n    return x + 1"
        exec(compile(code, __file__, "exec"), scope)
        scope["held"].cycle = scope["compiled"]
        assert scope["compiled"](torch.ones(1), scope["called"]) == [2]
        assert scope["compiled"].resumed()
        return weakref.ref(scope["held"])

    held = make()
    for _ in range(2):
        gc.collect()
    assert held() is None


def test_guards_that_python_holds_live_on():
    class Key:
        pass

    def make():
        key = Key()
        compiled = oxyfuel.compile(lambda x, k=key: x + (1 if k is key else 2), backend="eager")
        key.cycle = compiled
        compiled(torch.ones(1))
        return compiled.guards(), weakref.ref(compiled)

    guards, compiled = make()
    gc.collect()
    assert str(guards[0])
    del guards
    gc.collect()
    assert compiled() is None
