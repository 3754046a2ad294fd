"""Captures and compilations of several threads, and of a process that is forked meanwhile."""

import importlib
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
        (tmp_path / f"{name}.py").write_text(textwrap.dedent(text))
        importlib.invalidate_caches()
        names.append(name)

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
    """The one thread holds what belongs to captures and wants to compile, the other one the other way round."""
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
        import gc

        assert gc.isenabled()
        check_that_a_process_captures()

    run = oxyfuel.compile(lambda x: thrice(x) + 1)
    assert meanwhile(check, lambda: run(torch.ones(1)), ready, done) == 4


def test_threads_that_compile_at_once():
    def f(x, n):
        return [(x * i).relu() for i in range(n)]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the limit of captures
        run = oxyfuel.compile(f)
        for work in [Work(run, torch.ones(4), n % 3 + 1) for n in range(8)]:
            assert all(t.shape == (4,) for t in work.result())
