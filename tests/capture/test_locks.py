"""Captures and compilations of several threads, and of a process that is forked meanwhile."""

import functools
import gc
import importlib
import queue
import signal
import sys
import textwrap
import threading
import warnings

import pytest
import torch
from other_processes import in_a_fork

import oxyfuel

pytestmark = [pytest.mark.usefixtures("strict_without_grad")]
SECONDS = 60  # for what hangs for good


class Work(threading.Thread):
    """A thread whose end is waited for, and whose result is asked for."""

    def __init__(self, function, *args):
        super().__init__(daemon=True)
        self._call = lambda: function(*args)
        self.start()

    def run(self):
        with torch.no_grad():
            try:
                self._result = self._call()
            except BaseException as e:
                self._result = e

    def result(self):
        self.join(SECONDS)
        assert not self.is_alive(), "two threads wait for each other"
        if isinstance(self._result, BaseException):
            raise self._result
        return self._result


@pytest.fixture
def importable(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    names = []

    def write(name, text):
        file = tmp_path / f"{name}.py"
        file.parent.mkdir(exist_ok=True)
        file.write_text(textwrap.dedent(text))
        importlib.invalidate_caches()
        names.append(name.replace("/", ".").removesuffix(".__init__"))

    yield write
    for name in names:
        sys.modules.pop(name, None)


def test_a_captured_import_and_a_module_whose_body_calls_compiled_code(importable):
    importable(
        "calls_compiled_code",
        """
        import time, torch, oxyfuel
        import signals_of_the_test as signals

        signals.inside.set()
        signals.waiting.wait(10)
        time.sleep(0.3)
        value = oxyfuel.compile(lambda x: x + 1, backend="eager")(torch.ones(1)).item()
        """,
    )
    importable(
        "signals_of_the_test",
        "import threading\ninside, waiting = threading.Event(), threading.Event()",
    )
    signals = importlib.import_module("signals_of_the_test")

    def f(x):
        import calls_compiled_code

        return x * calls_compiled_code.value

    importing = Work(importlib.import_module, "calls_compiled_code")
    assert signals.inside.wait(SECONDS)
    capturing = Work(oxyfuel.compile(f, backend="eager"), torch.ones(1))
    signals.waiting.set()
    assert importing.result().value == 2
    assert capturing.result().item() == 2


def test_a_captured_import_of_a_module_whose_body_waits_for_a_compilation(importable):
    """A graph of torch.fx waits for the lock, which the capture has, for as long as it takes."""
    importable(
        "compiles_a_graph",
        """
        import torch, oxyfuel
        import signals_of_the_test as signals

        signals.inside.set()
        signals.waiting.wait(10)
        compiled = oxyfuel.compile_fx(torch.fx.symbolic_trace(lambda x: x + 1))
        value = compiled(torch.ones(1)).item()
        """,
    )
    importable("package_of_the_test/__init__", "")
    importable("package_of_the_test/part", "from compiles_a_graph import value")
    importable(
        "signals_of_the_test",
        "import threading\ninside, waiting = threading.Event(), threading.Event()",
    )

    def outright(x):
        signals.waiting.set()
        import compiles_a_graph

        return x * compiles_a_graph.value

    def as_a_part(x):
        signals.waiting.set()
        from package_of_the_test import part

        return x * part.value

    for f, module in ((outright, "compiles_a_graph"), (as_a_part, "package_of_the_test.part")):
        for name in ("compiles_a_graph", "package_of_the_test.part", "signals_of_the_test"):
            sys.modules.pop(name, None)
        signals = importlib.import_module("signals_of_the_test")
        importing = Work(importlib.import_module, module)
        assert signals.inside.wait(SECONDS)
        capturing = Work(oxyfuel.compile(f, backend="eager"), torch.ones(1))
        assert importing.result().value == 2
        assert capturing.result().item() == 2


def test_a_backend_that_wants_what_a_waiting_thread_holds():
    lock, held, asked = threading.Lock(), threading.Event(), threading.Event()

    def backend(gm, inputs):
        asked.set()
        with lock:
            return gm.forward

    def holder():
        with lock:
            held.set()
            assert asked.wait(SECONDS)
            return oxyfuel.compile(lambda x: x * 3, backend="eager")(torch.ones(1)).item()

    other = Work(holder)
    assert held.wait(SECONDS)
    capturing = Work(oxyfuel.compile(lambda x: x + 1, backend=backend), torch.ones(1))
    assert other.result() == 3
    assert capturing.result().item() == 2


def test_a_backend_that_compiles_and_a_compilation_that_captures():
    """The one thread holds what belongs to captures and wants to compile, the other one the other
    way round."""
    in_backend, in_fake = threading.Event(), threading.Event()

    @torch.library.custom_op("oxyfuel_test_locks::twice", mutates_args=())
    def twice(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    inner = oxyfuel.compile(lambda n: torch.ones(n), backend="eager")

    @twice.register_fake
    def _(x):
        in_fake.set()
        in_backend.wait(1)
        inner(3)
        return torch.empty_like(x)

    def backend(gm, inputs):
        in_backend.set()
        in_fake.wait(1)
        compiled = oxyfuel.compile_fx(gm)
        compiled(*inputs)
        return compiled

    class Module(torch.nn.Module):
        def forward(self, x):
            return twice(x) + 1

    compiling = Work(oxyfuel.compile_fx(torch.fx.symbolic_trace(Module())), torch.ones(3))
    capturing = Work(oxyfuel.compile(lambda x: x * 5, backend=backend), torch.ones(1))
    assert compiling.result().tolist() == [3, 3, 3]
    assert capturing.result().item() == 5


def test_garbage_is_not_collected_until_the_last_capture_ends():
    """Two captures at once: code of the user's runs inside of the first one."""
    first_is_in, second_is_in, first_is_done = (threading.Event() for _ in range(3))

    @torch.compiler.assume_constant_result
    def in_the_first():
        first_is_in.set()
        assert second_is_in.wait(SECONDS)
        return 1

    @torch.compiler.assume_constant_result
    def in_the_second():
        second_is_in.set()
        assert first_is_done.wait(SECONDS)
        return int(gc.isenabled())

    run_first = oxyfuel.compile(lambda x: x + in_the_first(), backend="eager")
    run_second = oxyfuel.compile(lambda x: x + in_the_second(), backend="eager")
    first = Work(run_first, torch.zeros(1))
    assert first_is_in.wait(SECONDS)
    second = Work(run_second, torch.zeros(1))
    assert first.result().item() == 1
    first_is_done.set()
    assert second.result().item() == 0
    assert gc.isenabled()


def check_that_a_process_captures():
    def f(x, n):
        oxyfuel.graph_break()
        return (x * n).sin() + sum(map(float, range(n)))

    for backend in ("eager", "native"):
        run = oxyfuel.compile(f, backend=backend)
        for n in (1, 2, 1):
            assert torch.allclose(run(torch.ones(3), n), f(torch.ones(3), n))


def meanwhile(check, capture, ready, done):
    """Checks in a fork, while another thread captures."""
    other = Work(capture)
    assert ready.wait(SECONDS)
    try:
        in_a_fork(check)
    finally:
        done.set()
    return other.result()


def test_a_fork_while_another_thread_captures():
    ready, done = threading.Event(), threading.Event()

    def backend(gm, inputs):
        ready.set()
        assert done.wait(SECONDS)
        return gm.forward

    run = oxyfuel.compile(lambda x: x + 1, backend=backend)
    assert meanwhile(check_that_a_process_captures, lambda: run(torch.ones(1)), ready, done) == 2


def test_cached_functions_that_call_each_other_in_turns():
    plus = functools.cache(lambda n: n + 1)
    times = functools.cache(lambda n: n * 10)

    def inner(n):
        return plus(n)

    def f(x):
        return x + sum(map(times, map(inner, (1, 2)))), list(map(times, (plus(n) for n in (3, 4))))

    def fresh():
        plus.cache_clear()
        times.cache_clear()
        return torch.zeros(1)

    expected = f(fresh())
    assert oxyfuel.compile(f)(fresh()) == expected


def test_a_fork_while_another_thread_compiles():
    ready, done = threading.Event(), threading.Event()

    @torch.library.custom_op("oxyfuel_test_locks::thrice", mutates_args=())
    def thrice(x: torch.Tensor) -> torch.Tensor:
        return x * 3

    @thrice.register_fake
    def _(x):
        ready.set()
        assert done.wait(SECONDS)
        return torch.empty_like(x)

    def check():
        assert gc.isenabled()
        check_that_a_process_captures()
        in_a_fork(check_that_a_process_captures)
        check_that_a_process_captures()
        assert gc.isenabled()

    run = oxyfuel.compile(lambda x: thrice(x) + 1)
    assert meanwhile(check, lambda: run(torch.ones(1)), ready, done) == 4


def test_forks_while_other_threads_compile_and_call():
    """A lock that one of them holds, however briefly, is free in the child."""
    calls = oxyfuel.compile(lambda x: x.sin() + 1)
    large = torch.ones(1 << 18)
    calls(large)
    done = threading.Event()

    def compiled_anew():
        return oxyfuel.compile(lambda x: (x * 5).cos().softmax(-1).sum(0) + x)(torch.ones(8, 8))

    def call_on():
        while not done.is_set():
            results = [calls(large) for _ in range(3)]
        return results[0].sum().item()

    def compile_on():
        while not done.is_set():
            compiled_anew()

    def check():
        signal.alarm(SECONDS)
        assert torch.allclose(calls(large), large.sin() + 1)
        expected = (torch.ones(8, 8) * 5).cos().softmax(-1).sum(0) + 1
        assert torch.allclose(compiled_anew(), expected)

    others = [Work(call_on), Work(call_on), Work(compile_on)]
    try:
        for _ in range(60):
            in_a_fork(check)
    finally:
        done.set()
    for other in others:
        other.result()


def test_forks_while_other_threads_compile_a_backward():
    """Nor does a fork wait for a thread that waits for the fork."""

    def train():
        x = torch.ones(8, 8, requires_grad=True)
        with torch.enable_grad():
            oxyfuel.compile(lambda x: (x * x.sin()).softmax(-1).square().sum())(x).backward()

    def check():
        signal.alarm(SECONDS)
        done = threading.Event()

        def train_on():
            while not done.is_set():
                train()

        others = [Work(train_on), Work(train_on)]
        for _ in range(12):
            done.wait(0.02)
            in_a_fork(lambda: None)
        done.set()
        for other in others:
            other.result()

    train()
    in_a_fork(check)


def test_threads_that_compile_at_once():
    def f(x, n):
        return [(x * i).relu() for i in range(n)]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the limit of captures
        run = oxyfuel.compile(f)
        for work in [Work(run, torch.ones(4), n % 3 + 1) for n in range(8)]:
            assert all(t.shape == (4,) for t in work.result())


def counted(cache, method):
    """A function that counts its calls, with a cache, and the list of what it was called with."""
    calls = []

    class Holder:
        @cache
        def method(self, n):
            calls.append(n)
            return 3 * n

    @cache
    def function(n):
        calls.append(n)
        return 3 * n

    return (Holder().method, Holder.method) if method else (function, function), calls


@pytest.mark.parametrize("method", [False, True])
@pytest.mark.parametrize("cache", [functools.cache, functools.lru_cache(maxsize=2)])
def test_a_capture_and_the_one_in_front_of_a_break_call_a_cached_function_once(cache, method):
    def f(x, n):
        y = x * call(n) + call(n + 1)
        oxyfuel.graph_break()
        return y + call(n)

    seen = []
    for run in (f, oxyfuel.compile(f, backend="eager")):
        (call, cached), calls = counted(cache, method)
        seen.append([run(torch.ones(2), 2).tolist(), calls, cached.cache_info().misses])
    assert seen[0] == seen[1]


@pytest.mark.parametrize("rounds", [1, 7])
@pytest.mark.parametrize("backend", ["eager", "native"])
def test_threads_that_meet_in_a_cached_function(backend, rounds):
    """As CPython's test_lru_cache_threaded2: nobody finds the result of another one."""
    threads = 4
    start, pause, stop = (threading.Barrier(threads + 1, timeout=SECONDS / 3) for _ in range(3))

    @functools.lru_cache(maxsize=threads * rounds)
    def meet(n):
        pause.wait()
        return 3 * n

    def work(x):
        out = []
        for n in range(rounds):
            start.wait()
            out.append((x + meet(n)).tolist())
            stop.wait()
        return out

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the limit of captures
        works = [
            Work(oxyfuel.compile(work, backend=backend), torch.zeros(1)) for _ in range(threads)
        ]
        for n in range(rounds):
            for barrier in (start, pause, stop):
                barrier.wait()
            assert meet.cache_info()[:2] == (0, (n + 1) * threads)
        for w in works:
            assert w.result() == [[3.0 * n] for n in range(rounds)]


def waits_for_an_event(x, shared):
    shared["event"].wait(SECONDS)
    return x + 1


def takes_a_lock(x, shared):
    with shared["lock"]:
        return x * shared["count"]


def takes_a_lock_twice(x, shared):
    with shared["rlock"], shared["rlock"]:
        return x + 2


def gets_from_a_queue(x, shared):
    return x + shared["queue"].get(timeout=SECONDS)


def meets_the_others(x, shared):
    shared["barrier"].wait(SECONDS)
    return x + 3


def waits_for_a_condition(x, shared):
    with shared["condition"]:
        shared["condition"].wait_for(lambda: shared["ready"], SECONDS)
    return x + 4


def uses_thread_locals(x, shared):
    shared["local"].value = x.shape[0]
    return x + shared["local"].value


def starts_a_thread(x, shared):
    out = []
    thread = threading.Thread(target=lambda: out.append(x + 5))
    thread.start()
    thread.join()
    return out[0]


@pytest.mark.parametrize(
    "f",
    [
        waits_for_an_event,
        takes_a_lock,
        takes_a_lock_twice,
        gets_from_a_queue,
        meets_the_others,
        waits_for_a_condition,
        uses_thread_locals,
        starts_a_thread,
    ],
    ids=lambda f: f.__name__,
)
def test_captured_code_that_waits_for_another_thread_which_captures(f):
    count = 3

    def make_shared():
        return {
            "event": threading.Event(),
            "lock": threading.Lock(),
            "rlock": threading.RLock(),
            "queue": queue.Queue(),
            "barrier": threading.Barrier(count),
            "condition": threading.Condition(),
            "local": threading.local(),
            "ready": False,
            "count": 7,
        }

    def let_go(x, shared):
        shared["event"].set()
        for _ in range(count):
            shared["queue"].put(1)
        with shared["condition"]:
            shared["ready"] = True
            shared["condition"].notify_all()
        return x

    shared = make_shared()
    works = [Work(oxyfuel.compile(f, backend="eager"), torch.ones(2), shared) for _ in range(count)]
    Work(oxyfuel.compile(let_go, backend="eager"), torch.ones(2), shared).result()
    found = [w.result().tolist() for w in works]
    shared = make_shared()
    others = [Work(f, torch.ones(2), shared) for _ in range(count)]
    let_go(torch.ones(2), shared)
    assert found == [w.result().tolist() for w in others]


def test_reset_in_compiled_code():
    def f(x):
        y = x + 1
        oxyfuel.reset()
        return y * 2

    run = oxyfuel.compile(f, backend="eager")
    for _ in range(3):
        assert Work(run, torch.ones(2)).result().tolist() == [4, 4]
