"""What stands between CPython's frames and ours: the evaluator of frames, and exceptions of C++
below C."""

import os
import sys
import threading
import warnings

import pytest
import torch
from other_processes import in_a_fork

import oxyfuel

pytestmark = [pytest.mark.usefixtures("strict_without_grad")]


class Key:
    """Functions written in C call its methods where they find one in a tuple or take it as a
    number."""

    def __init__(self, log):
        self.log = log

    def __hash__(self):
        self.log.append("hash")
        return 1

    def __eq__(self, other):
        self.log.append("equal")
        return True

    def __index__(self):
        self.log.append("index")
        return 2


def hashed(x, log):
    return x + len({(1, Key(log)): 1})


def counted(x, log):
    return x + [(1, Key(log))].count((1, 2))


def sliced(x, log):
    return x + len([1, 2, 3, 4][Key(log) :])


def called(f, compiler):
    """What two calls give: the capture, and what it has captured."""
    log, run = [], compiler(f)
    return [run(torch.ones(2), log).tolist() for _ in range(2)], log


def deep(n, then):
    """Calls `then` below `n` broken frames."""
    oxyfuel.graph_break()
    return deep(n - 1, then) if n else then()


FUNCTIONS = (hashed, counted, sliced)


@pytest.fixture
def room_for_frames():
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(20_000)
    yield
    sys.setrecursionlimit(limit)


@pytest.mark.parametrize("f", FUNCTIONS)
@pytest.mark.parametrize("depth", [1, 190, 210, 400])
def test_a_capture_below_many_broken_frames(f, depth, room_for_frames):
    expected = called(f, lambda f: f)
    run = oxyfuel.compile(deep, backend="eager")
    assert run(depth, lambda: called(f, lambda f: oxyfuel.compile(f, backend="eager"))) == expected


@pytest.mark.parametrize("f", FUNCTIONS)
@pytest.mark.parametrize("depth", [210, 400])
def test_a_capture_while_another_thread_is_below_many_broken_frames(f, depth, room_for_frames):
    expected = called(f, lambda f: f)
    there, done = threading.Event(), threading.Event()

    def wait():
        there.set()
        done.wait()
        return "the end"

    results = []
    run = oxyfuel.compile(deep, backend="eager")
    other = threading.Thread(target=lambda: results.append(run(depth, wait)))
    other.start()
    try:
        assert there.wait(60)
        assert called(f, lambda f: oxyfuel.compile(f, backend="eager")) == expected
    finally:
        done.set()
        other.join()
    assert results == ["the end"]


def test_a_thread_that_goes_deeper_while_another_captures(room_for_frames):
    """Beyond its C stack it waits for the capture."""
    results = []

    def plain(n):
        return plain(n - 1) + 1 if n else 0

    def backend(gm, inputs):
        other = threading.Thread(target=lambda: results.append(run(3, lambda: plain(12_000))))
        other.start()
        other.join(2)
        return gm.forward

    run = oxyfuel.compile(deep, backend="eager")
    assert oxyfuel.compile(lambda x: x + 1, backend=backend)(torch.ones(1)).item() == 2
    for _ in range(600):
        if results:
            break
        threading.Event().wait(0.1)
    assert results == [12_000]


def test_a_thread_that_is_deep_for_long_while_another_captures(room_for_frames):
    """It waits once, not at each of its calls."""
    results = []

    def leaf():
        return 1

    def plain(n):
        below = plain(n - 1) if n else 0
        return below + leaf() + leaf() + leaf()  # in the place where the frame below was

    @torch.compiler.assume_constant_result
    def inside():
        other = threading.Thread(target=lambda: results.append(plain(2_500)))
        other.start()
        other.join(30)
        waited.append(other.is_alive())
        return 1

    waited = []
    run = oxyfuel.compile(lambda x: x + inside(), backend="eager")
    assert run(torch.ones(1)).item() == 2
    assert waited == [False] and results == [3 * 2_501]


def unencodable(function, **names):
    """A copy whose names UTF-8 has no bytes for."""
    code = function.__code__.replace(**names)
    made = type(function)(code, function.__globals__, function.__name__, None, function.__closure__)
    made.__qualname__ = "of\udc80"
    return made


FILES = ["plain.py", "of\udc80.py"]


@pytest.mark.parametrize("file", FILES)
def test_a_refused_frame_whose_names_are_no_utf8(file):
    class Key:
        pass

    def equal(self, other):
        log.append("equal")
        return True

    def f(x):
        return x + [(1, Key())].count((1, 2))

    def check():
        Key.__eq__ = unencodable(equal, co_filename=file)
        run = oxyfuel.compile(f, backend="eager")
        assert [run(torch.ones(1)).item() for _ in range(2)] == [2, 2]
        assert log == ["equal", "equal"]

    log = []
    in_a_fork(check)


@pytest.mark.parametrize("file", FILES)
def test_an_inner_frame_whose_names_are_no_utf8(file):
    def helper(x):
        log.append("called")
        return x + 1

    def f(x):
        oxyfuel.graph_break()
        return next(map(helper, [x])) * 2

    def check():
        warnings.simplefilter("ignore")
        os.environ["OXYFUEL_STRICT"] = "0"  # there is no capture of such code
        run = oxyfuel.compile(f, backend="eager")
        assert [run(torch.ones(1)).item() for _ in range(2)] == [4, 4]
        assert log == ["called", "called"]

    log = []
    helper = unencodable(helper, co_filename=file)
    in_a_fork(check)
