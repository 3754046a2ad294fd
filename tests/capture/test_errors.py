"""Bad input, errors, interrupts and threads: a compiled function does what Python does."""

import contextlib
import functools
import itertools
import operator
import signal
import sys
import threading
import traceback
from random import Random

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import oxyfuel

X = torch.ones(2, 3)


pytestmark = pytest.mark.usefixtures("strict_without_grad")


def raised_by(call):
    """(class, message, the lines of the function in the traceback) of what a call raises."""
    with pytest.raises(BaseException) as caught:
        call()
    frames = traceback.extract_tb(caught.value.__traceback__)
    of_caller = ("raised_by", "<lambda>")
    return (
        type(caught.value),
        str(caught.value),
        [f.line for f in frames if f.filename == __file__ and f.name not in of_caller],
    )


def state_of_torch():
    return (
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.is_autocast_enabled("cpu"),
        torch.get_autocast_dtype("cpu"),
        torch.is_autocast_cache_enabled(),
        torch.get_default_dtype(),
        torch.get_num_threads(),
        torch.get_rng_state().tolist(),
        torch._C._len_torch_dispatch_stack(),
        torch._C._len_torch_function_stack(),
        torch.is_anomaly_enabled(),
    )


# ------------------------------------------------------------------------------ compile's arguments


@pytest.mark.parametrize("model", [3, "text", [], torch.ones(2)], ids=lambda m: type(m).__name__)
def test_not_callable(model):
    with pytest.raises(
        TypeError, match=f"takes a function or a module, not a {type(model).__name__}"
    ):
        oxyfuel.compile(model)


@pytest.mark.parametrize(
    "arguments, error, names",
    [
        ({"backend": "inductor"}, ValueError, "aot_eager, eager, native"),
        ({"backend": 3}, ValueError, "aot_eager, eager, native"),
        ({"mode": "fast"}, ValueError, "default, reduce-overhead, max-autotune"),
        ({"options": {"no_such": 1}}, ValueError, "threads"),
        ({"options": {"threads": "many"}}, ValueError, "threads"),
        ({"options": 3}, TypeError, "options"),
        ({"dynamic": 3}, TypeError, "None, True or False"),
        ({"mode": "default", "options": {"strict": True}}, ValueError, "mode and options"),
        ({"no_such": 3}, TypeError, "no_such"),
    ],
    ids=str,
)
def test_bad_arguments_name_the_good_ones(arguments, error, names):
    with pytest.raises(error, match=names):
        oxyfuel.compile(len, **arguments)


def test_a_backend_that_fails_says_so():
    def broken(gm, inputs):
        raise ZeroDivisionError("the backend's own")

    with pytest.raises(ZeroDivisionError, match="the backend's own"):
        oxyfuel.compile(lambda x: x + 1, backend=broken)(X)
    with pytest.raises(TypeError, match="backend returned a int, not a callable"):
        oxyfuel.compile(lambda x: x + 1, backend=lambda gm, inputs: 3)(X)
    for given, count in (((), 0), ((X,), 1)):
        compiled = oxyfuel.compile(
            lambda x: (x + 1, x * 2), backend=lambda gm, inputs, given=given: lambda *_: given
        )
        with pytest.raises(TypeError, match=f"returned {count} of the graph's 2 outputs"):
            compiled(X)


def test_fullgraph_says_reason_place_and_hint():
    def inner(x):
        return x + 1 if x.sum() > 0 else x

    def f(x):
        return inner(x * 2)

    with pytest.raises(oxyfuel.GraphBreak) as e:
        oxyfuel.compile(f, fullgraph=True)(X)
    assert isinstance(e.value, torch._dynamo.exc.Unsupported)
    text = str(e.value)
    assert text == e.value.msg
    assert "the truth of a tensor" in text and "hint: " in text
    line = inner.__code__.co_firstlineno + 1
    assert f'File "{__file__}", line {line}, in inner' in text and "in f\n" in text


# -------------------------------------------------------------------------------- the user's errors


def wrong_shapes(x):
    y = x + 1
    return y @ x


def wrong_dtypes(x):
    return torch.bitwise_and(x, x)


def wrong_devices(x):
    return x + torch.ones(2, 3, device="meta")


def wrong_attribute(x):
    return x.no_such_attribute


def wrong_argument(x):
    return torch.softmax(x, dim=7)


def wrong_index(x):
    return x[5]


def wrong_unpacking(x):
    a, b, c, d = x.unbind(1)
    return a, b, c, d


def unknown_name(x):
    return x + no_such_name  # noqa: F821


def unbound(x):
    if x.dim() == 7:
        y = x
    return y


def fails_in_except(x):
    try:
        return x @ x
    except RuntimeError as e:
        raise ValueError("from the handler") from e


def fails_in_with(x):
    with torch.no_grad(), contextlib.suppress(KeyError):
        y = x.view(7)
    return y


def fails_in_finally(x):
    try:
        y = x + 1
    finally:
        x.view(7)
    return y


def fails_after_a_break(x):
    if x.sum() > 100:
        return x
    return x.view(7)


def leaves(x):
    raise SystemExit(3)


def asserts(x):
    assert x.dim() == 3, f"dimension {x.dim()}"
    return x


@pytest.mark.parametrize(
    "function",
    [
        wrong_shapes,
        wrong_dtypes,
        wrong_devices,
        wrong_attribute,
        wrong_argument,
        wrong_index,
        wrong_unpacking,
        unknown_name,
        unbound,
        fails_in_except,
        fails_in_with,
        fails_in_finally,
        fails_after_a_break,
        leaves,
        asserts,
    ],
    ids=lambda f: f.__name__,
)
def test_the_user_s_error_is_eager_s(function):
    before = state_of_torch()
    compiled = oxyfuel.compile(function)
    expected = raised_by(lambda: function(X))
    for _ in range(2):
        assert raised_by(lambda: compiled(X)) == expected
        assert state_of_torch() == before
    assert oxyfuel.stats()["fallbacks"] == 0


def test_wrong_arguments_are_the_function_s_own_error():
    def f(a, b, *, c=1):
        return a

    compiled = oxyfuel.compile(f)
    for args, kwargs in [((X,), {}), ((X, X, X), {}), ((X, X), {"d": 1}), ((X,), {"a": X})]:
        assert (
            raised_by(lambda: compiled(*args, **kwargs))[:2]
            == raised_by(lambda: f(*args, **kwargs))[:2]
        )


@pytest.mark.parametrize(
    "function",
    [
        isinstance,
        issubclass,
        type,
        len,
        getattr,
        hasattr,
        setattr,
        delattr,
        hash,
        sorted,
        iter,
        next,
    ]
    + [any, all, sum, abs, min, max, bool, int, float, str, repr, callable, super, sys.exc_info]
    + [functools.reduce, functools.cmp_to_key, operator.is_, operator.is_not],
    ids=lambda f: f.__name__,
)
def test_how_many_arguments_functions_take(function):
    def called(args, kwargs):
        try:
            result = function(*args, **kwargs)
        except Exception as e:
            return type(e).__name__, str(e)
        return repr(result).partition(" at 0x")[0]

    choices = [5, "a", [3, 1, 2], max, type]
    given = [args for n in range(4) for args in itertools.product(choices, repeat=n)]
    given += [([1, 2], 3, 4, 5), (max, [], 3, 4, 5)]
    random = Random(function.__name__)
    for args in given[:6] + random.sample(given[6:-2], 12) + given[-2:]:
        for kwargs in ({}, {"start": 1}, {"key": None}, {"wrong": 1}):
            compiled = oxyfuel.compile(called, backend="eager")
            assert compiled(args, kwargs) == called(args, kwargs), (args, kwargs)


def test_caught_errors():
    def f(x, n):
        try:
            y = x.view(n)
        except RuntimeError as e:
            y = x * 0
            said = str(e)
        else:
            said = "fine"
        finally:
            y = y + 1
        return y, said

    compiled = oxyfuel.compile(f)
    for n in (7, 6, 7):
        (y, said), (expected, text) = compiled(X, n), f(X, n)
        assert torch.equal(y, expected) and said == text


# ---------------------------------------------------------------------------------------- recursion


def depth_of(x, n):
    return x if n == 0 else depth_of(x, n - 1) + 1


def for_ever(x):
    return for_ever(x + 1)


def test_a_deep_chain_works():
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(3000)
    try:
        compiled = oxyfuel.compile(depth_of)
        for _ in range(2):
            assert torch.equal(compiled(X, 1000), X + 1000)
    finally:
        sys.setrecursionlimit(limit)


def test_endless_recursion_raises_as_in_eager():
    compiled = oxyfuel.compile(for_ever)
    for _ in range(2):
        with pytest.raises(RecursionError):
            compiled(X)
    calls_itself = oxyfuel.compile(lambda x: calls_itself(x + 1))
    with pytest.raises(RecursionError):
        calls_itself(X)
    assert torch.equal(oxyfuel.compile(lambda x: x + 1)(X), X + 1)


# --------------------------------------------------------------------------------------- interrupts


class Interrupted(Exception):
    pass


@pytest.mark.parametrize("raises", [False, True])
def test_a_signal_handler_calls_functions_whenever_it_comes(raises):
    noted = []

    def note():
        noted.append(1)
        if raises:
            raise Interrupted

    def f(x):
        for i in range(200):
            x = torch.sin(x) + i
        return x

    previous = signal.signal(signal.SIGALRM, lambda *_: note())
    try:
        for delay in range(2, 42, 4):
            oxyfuel.reset()
            compiled = oxyfuel.compile(f)
            signal.setitimer(signal.ITIMER_REAL, delay / 1000)
            try:
                compiled(X)
            except Interrupted:
                assert raises
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
    finally:
        signal.signal(signal.SIGALRM, previous)
    assert noted


@pytest.mark.parametrize("error", [KeyboardInterrupt, Interrupted])
def test_an_interrupt_ends_a_capture_and_changes_nothing(error):
    class Counted(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.calls = 0

        def forward(self, x, n):
            self.calls += 1
            with torch.enable_grad():
                try:
                    while n > 0:
                        n = n - 1
                except (KeyboardInterrupt, Interrupted):
                    n = -1
            return x + n

    def interrupt(*_):
        raise error

    module = Counted()
    compiled = oxyfuel.compile(module)
    before = state_of_torch()
    previous = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        with pytest.raises(error):
            compiled(X, 1_000_000)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
    assert module.calls == 0 and state_of_torch() == before
    assert torch.equal(compiled(X, 3), X) and module.calls == 1


def test_the_user_s_own_keyboard_interrupt():
    def f(x):
        try:
            raise KeyboardInterrupt
        except KeyboardInterrupt:
            return x + 1

    assert torch.equal(oxyfuel.compile(f)(X), X + 1)


# ------------------------------------------------------------------------------------------ threads


def test_threads_capture_and_call_one_function():
    def f(x, scale):
        y = x
        for _ in range(20):
            y = torch.nn.functional.gelu(y * scale) + x
        return {"y": y, "n": x.shape[0]}

    sizes = (2, 3, 4, 5)
    inputs = {n: torch.randn(n, 8) for n in sizes}
    expected = {n: f(inputs[n], 0.5)["y"] for n in sizes}
    for _ in range(3):
        compiled = oxyfuel.compile(f)
        oxyfuel.reset()
        start, errors = threading.Barrier(16), []

        def work(k):
            try:
                with torch.no_grad():
                    start.wait()
                    for i in range(40):
                        n = sizes[(i + k) % 4]
                        out = compiled(inputs[n], 0.5)
                        assert out["n"] == n
                        torch.testing.assert_close(out["y"], expected[n])
            except BaseException as e:
                errors.append(e)

        threads = [threading.Thread(target=work, args=(k,)) for k in range(16)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert not errors, errors[0]
        assert oxyfuel.stats()["graphs"] == 2  # one size, then all of them


def test_reset_while_others_call():
    compiled = oxyfuel.compile(lambda x: torch.relu(x) + 1)
    stop, errors = threading.Event(), []

    def work():
        try:
            with torch.no_grad():
                while not stop.is_set():
                    assert torch.equal(compiled(X), X + 1)
        except BaseException as e:
            errors.append(e)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for _ in range(50):
        compiled.reset()
    stop.set()
    for t in threads:
        t.join()
    assert not errors, errors[0]


# ---------------------------------------------------------------- errors of graphs that are running


def row(x, index):
    return x[index]


def wrong_row(x, index):
    y = x + 1
    return row(y, index)


def wrong_row_in_no_grad(x, index):
    with torch.enable_grad(), torch.autocast("cpu"):
        return row(x, index)


def wrong_row_after_a_write(x, index):
    x.add_(1)
    y = row(x, index)
    return y


def wrong_row_after_effects(x, index, log=[]):  # noqa: B006
    log.append(len(log))
    noise = torch.rand(3)
    z = row(x, index)
    return z + noise


def run_by_torch(gm, example_inputs):
    return gm.forward


@pytest.mark.parametrize(
    "backend",
    ["native", "eager", "aot_eager", run_by_torch],
    ids=lambda b: b if isinstance(b, str) else b.__name__,
)
@pytest.mark.parametrize(
    "function",
    [wrong_row, wrong_row_in_no_grad, wrong_row_after_a_write, wrong_row_after_effects],
    ids=lambda f: f.__name__,
)
def test_a_graph_that_raises(function, backend):
    good, bad = torch.tensor([0, 1]), torch.tensor([0, 7])
    compiled = oxyfuel.compile(function, backend=backend)
    found = []
    for run in (function, compiled):
        x = X.clone()
        torch.manual_seed(3)
        run(x, good)
        error, message, lines = raised_by(lambda run=run, x=x: run(x, bad))
        found.append((error, message, lines, x.tolist(), state_of_torch()))
        if function is wrong_row_after_effects:
            log = function.__defaults__[0]
            found[-1] = (*found[-1][:4], None if backend is run_by_torch else list(log))
            log.clear()
    assert found[0] == found[1]


# ------------------------------------------------------------------------------- the state of torch


def breaks_in_no_grad(x):
    with torch.enable_grad():
        with torch.no_grad():
            y = x + 1
            if y.sum() > 0:
                y = y * 2
    return y


def breaks_in_autocast(x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = x @ x.T
        y.tolist()
        z = y @ y
    return z


def autocast_without_a_break(x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = x @ x.T
    return y, x @ x.T


def changes_threads(x):
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    y = x + torch.get_num_threads()
    torch.set_num_threads(before)
    return y


def changes_default_dtype(x):
    torch.set_default_dtype(torch.float64)
    try:
        return torch.ones(2, 3) + x
    finally:
        torch.set_default_dtype(torch.float32)


def seeds(x):
    noise = torch.rand(2, 3)
    torch.manual_seed(5)
    return x + noise + torch.rand(2, 3)


def in_inference_mode(x):
    with torch.inference_mode():
        y = x + 1
    return y.is_inference(), y


@pytest.mark.parametrize(
    "function",
    [
        breaks_in_no_grad,
        breaks_in_autocast,
        autocast_without_a_break,
        changes_threads,
        changes_default_dtype,
        seeds,
        in_inference_mode,
    ],
    ids=lambda f: f.__name__,
)
def test_the_state_of_torch_is_as_after_eager(function):
    compiled = oxyfuel.compile(function)
    for _ in range(2):
        torch.manual_seed(1)
        expected = function(X)
        after = state_of_torch()
        torch.manual_seed(1)
        result = compiled(X)
        assert state_of_torch() == after
        torch.testing.assert_close(result, expected, rtol=0, atol=0)


def test_a_tracer_or_profiler_sees_eager():
    def f(x):
        y = x + 1
        return y

    compiled = oxyfuel.compile(f)
    compiled(X)
    for install in (sys.settrace, sys.setprofile):
        seen = []

        def watch(frame, event, argument):
            seen.append(frame.f_code)
            return watch

        install(watch)
        try:
            result = compiled(X)
        finally:
            install(None)
        assert torch.equal(result, X + 1) and f.__code__ in seen
    assert oxyfuel.stats()["graphs"] == 1


def test_a_mode_sees_every_op():
    class Functions(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            seen.append(func)
            return func(*args, **(kwargs or {}))

    class Ops(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            seen.append(func)
            return func(*args, **(kwargs or {}))

    compiled = oxyfuel.compile(lambda x: (x + 1).sin())
    for first in (True, False):
        for mode in (Functions, Ops):
            seen = []
            with mode():
                assert torch.equal(compiled(X), (X + 1).sin())
            assert len(seen) >= 2
        if first:
            assert oxyfuel.stats()["graphs"] == 0
        compiled(X)
    with torch.device("meta"):
        assert oxyfuel.compile(lambda: torch.ones(2))().device.type == "meta"


def test_what_an_op_says_is_what_its_kernel_says():
    def caught(x):
        y = x + 1
        try:
            y = y @ x.new_ones(7, 7)
        except RuntimeError as e:
            return y, type(e), str(e)
        return y, None, ""

    def passed_on(x):
        try:
            return x.view(5, -1)
        except RuntimeError as e:
            raise ValueError(str(e)) from e

    x = torch.randn(3, 4)
    compiled = oxyfuel.compile(caught)
    for _ in range(2):
        (y, *said), (expected, *says) = compiled(x), caught(x)
        assert said == says
        torch.testing.assert_close(y, expected)
    with pytest.raises(ValueError) as wanted:
        passed_on(x)
    with pytest.raises(ValueError) as got:
        oxyfuel.compile(passed_on)(x)
    assert str(got.value) == str(wanted.value)


def test_contexts_of_before_the_call():
    def chain_of(e):
        names = []
        while e is not None:
            names.append(repr(e))
            e = e.__context__
        return names

    def twice(x):
        try:
            try:
                raise ValueError(1)
            except ValueError as e:
                inner = chain_of(e)
                raise KeyError(2) from None
        except KeyError as e:
            return x + 1, inner, chain_of(e)

    def with_a_break(x):
        try:
            raise IndexError("around")
        except IndexError:
            oxyfuel.graph_break()
            return twice(x)

    def while_handling(function):
        try:
            raise RuntimeError("outer")
        except RuntimeError:
            return function(X)

    for function in (twice, with_a_break):
        for calls in ((function, while_handling), (while_handling, function)):
            compiled = oxyfuel.compile(function)
            for call in calls:
                got, wanted = (
                    call(f) if call is while_handling else f(X) for f in (compiled, function)
                )
                assert got[1:] == wanted[1:]
                assert torch.equal(got[0], wanted[0])


def test_what_names_and_super_say():
    def without_arguments():
        super()

    def deleted(x):
        del x
        super()

    class Emptied:
        def run(self):
            nonlocal __class__
            del __class__
            super()

        def other(self):
            nonlocal __class__
            __class__ = 413
            super()

    class Named:
        __class__ = 413

    def run():
        found = [Named().__class__]
        for call in (without_arguments, lambda: deleted(1), Emptied().run, Emptied().other):
            try:
                call()
            except RuntimeError as e:
                found.append(str(e))
        try:
            return found, some_name_that_is_not_there  # noqa: F821
        except NameError as e:
            found += [e.name, str(e)]
        get = operator.methodcaller("format", name=1)
        oxyfuel.graph_break()
        return found, get("{name}")

    assert oxyfuel.compile(run, backend="eager")() == run()


@pytest.mark.parametrize("depth", [5, 31, 32, 33, 34, 300, 3_000, 12_000])
@pytest.mark.parametrize("asks", [isinstance, issubclass])
def test_classes_in_tuples_of_any_depth(asks, depth):
    """How deep CPython follows them depends on its version, its limit and the caller's depth."""

    def made(x, o):
        classes = (int,)
        for _ in range(depth):
            classes = (classes,)
        return x + 1, asks(o, classes)

    def caught(x, o):
        try:
            return made(x, o)
        except RecursionError as e:
            return x - 1, str(e)

    def outcome(f, *args):
        try:
            y, answer = f(X, *args)
            return y.tolist(), answer
        except RecursionError as e:
            return str(e)

    nested = (int,)
    for _ in range(depth):
        nested = (nested,)
    given = lambda x, o: (x + 1, asks(o, nested))  # noqa: E731
    for f in (made, caught, given):
        compiled = oxyfuel.compile(f)
        for o in (True, "a", 3) if asks is isinstance else (bool, str, int):
            assert outcome(compiled, o) == outcome(f, o)


def test_tuples_that_lie_in_each_other_too_deeply():
    nested = (int,)
    for _ in range(100_000):
        nested = (nested,)
    compiled = oxyfuel.compile(lambda x, t: x + len(t))
    assert torch.equal(compiled(X, nested), X + 1)


@pytest.mark.parametrize("name", ["tag", "real"])
@pytest.mark.parametrize("first", [3, 0.5])
def test_attributes_of_numbers_that_vary_cannot_be_assigned(first, name):
    def derived(x, n):
        setattr(n + 1, name, x)
        return x

    def given(x, n):
        delattr(n, name)
        return x

    for f in (derived, given):
        compiled = oxyfuel.compile(f)
        for i in range(3):
            said = []
            for run in (f, compiled):
                with pytest.raises(AttributeError) as e:
                    run(X, first + i)
                said.append(str(e.value))
            assert said[0] == said[1]
