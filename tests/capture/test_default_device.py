"""A default device that is the CPU: it changes nothing, and code under it is captured, too."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import oxyfuel

X = torch.linspace(-1, 1, 12).view(3, 4)


@pytest.fixture(params=("set", "with"))
def default(request, strict):
    if request.param == "set":
        torch.set_default_device("cpu")
        yield
        torch.set_default_device(None)
    else:
        with torch.device("cpu"):
            yield


def new(x):
    return x + torch.ones(4) + torch.arange(4.0) + torch.tensor([1.0, 2, 3, 4]) + torch.zeros(3, 1)


def broken(x):
    y = x.sin() + torch.full((4,), 2.0)
    oxyfuel.graph_break()
    return y * torch.ones(4), torch.get_default_device()


def random(x):
    return F.dropout(x, 0.5) + torch.rand(4) + torch.randn(3, 4)


def branching(x):
    return x + 1 if torch.get_default_device() == torch.device("cpu") else x - 1


def in_place(x):
    y = torch.empty(3, 4)
    y.copy_(x)
    y[0] = torch.eye(4)[1]
    return y.relu_(), torch.nn.Linear(4, 2).weight.device


def check(compiled, program, grad=False):
    for _ in range(3):
        results = []
        for f in (compiled, program):
            torch.manual_seed(0)
            x = X.clone().requires_grad_(grad)
            out = f(x)
            if grad:
                out.square().sum().backward()
            results.append((out, x.grad))
        torch.testing.assert_close(*[r[1] for r in results])
        actual, expected = (r[0] if isinstance(r[0], tuple) else (r[0],) for r in results)
        for a, e in zip(actual, expected, strict=True):
            torch.testing.assert_close(a, e) if isinstance(e, torch.Tensor) else None
            assert isinstance(e, torch.Tensor) or a == e


@pytest.mark.parametrize("program", (new, broken, random, branching, in_place))
def test_programs(program, default):
    check(oxyfuel.compile(program), program)
    stats = oxyfuel.stats()
    assert stats["graphs"] > 0 and stats["fallbacks"] == stats["recompiles"] == 0, stats
    assert stats["graph_breaks"] == (program is broken), stats


@pytest.mark.parametrize("program", (new, random))
def test_gradients(program, default):
    check(oxyfuel.compile(program), program, grad=True)
    assert oxyfuel.stats()["plans"] > 0


@pytest.mark.parametrize("grad", (False, True))
def test_as_a_backend(default, grad):
    torch._dynamo.reset()
    check(torch.compile(new, backend="oxyfuel"), new, grad)
    assert oxyfuel.stats()["plans"] > 0


def test_set_between_calls(strict):
    compiled = oxyfuel.compile(branching)
    for device in (None, "cpu", None, "cpu"):
        torch.set_default_device(device)
        torch.testing.assert_close(compiled(X), branching(X))
        assert torch.get_default_device() == torch.device("cpu")
    torch.set_default_device(None)


def test_captures_of_each(strict):
    compiled = oxyfuel.compile(new)
    for device in (None, "cpu", None, "cpu"):
        torch.set_default_device(device)
        torch.testing.assert_close(compiled(X), new(X))
    torch.set_default_device(None)
    assert oxyfuel.stats()["recompiles"] == 1


def test_another_device(strict):
    compiled = oxyfuel.compile(lambda: torch.ones(3) + 1)
    assert compiled().device.type == "cpu"
    with torch.device("meta"):
        assert compiled().device.type == "meta"
    with torch.device("cpu"), torch.device("meta"):
        assert compiled().device.type == "meta"
    with torch.device("meta"), torch.device("cpu"):
        assert compiled().device.type == "cpu"


class Count(torch.overrides.TorchFunctionMode):
    calls = 0

    def __torch_function__(self, function, types, args=(), kwargs=None):
        Count.calls += 1
        return function(*args, **(kwargs or {}))


def test_other_modes_see_every_function(default):
    compiled = oxyfuel.compile(new)
    compiled(X)
    Count.calls = 0
    with Count():
        compiled(X)
    seen, Count.calls = Count.calls, 0
    with Count():
        new(X)
    assert seen == Count.calls > 0


def set_inside(x, device):
    torch.set_default_device(device)
    return x + torch.ones(4)


@pytest.mark.parametrize("before", (None, "cpu"))
def test_set_inside(strict, before):
    for device in ("cpu", None, "cpu"):
        left = []
        for f in (oxyfuel.compile(set_inside), set_inside):
            torch.set_default_device(before)
            torch.testing.assert_close(f(X, device), X + 1)
            left.append(torch._C._len_torch_function_stack())
            torch.set_default_device(None)
        assert left[0] == left[1]


def block(x):
    with torch.device("cpu"):
        y = torch.ones(4)
        oxyfuel.graph_break()
        y = y + torch.ones(4)
    return (x + y).sin()


def test_a_block_inside(strict):
    before = torch._C._len_torch_function_stack()
    check(oxyfuel.compile(block), block)
    assert torch._C._len_torch_function_stack() == before


def inside(x):
    with torch.device("cpu"):
        y = torch.ones(4) + torch.arange(4.0)
    return (x + y).sin()


def nested(x):
    with torch.device("cpu"), torch.no_grad():
        y = torch.ones(4)
        with torch.device("cpu"):
            y = y + torch.ones(4)
            if torch.get_default_device().type == "cpu":
                return x + y


def raising(x):
    try:
        with torch.device("cpu"):
            y = torch.ones(4)
            raise ValueError("no")
    except ValueError:
        return x + y


@pytest.mark.parametrize("program", (inside, nested, raising))
@pytest.mark.parametrize("around", (None, "cpu"))
def test_blocks(program, around, strict):
    torch.set_default_device(around)
    try:
        check(oxyfuel.compile(program), program)
    finally:
        torch.set_default_device(None)
    assert torch._C._len_torch_function_stack() == 0
    stats = oxyfuel.stats()
    assert stats["graph_breaks"] == stats["fallbacks"] == stats["recompiles"] == 0, stats


@oxyfuel.disable
def depth():
    modes = torch.overrides._get_current_function_mode_stack()
    return [(mode.device.type, mode.prev_mode is not None) for mode in modes]


def around_breaks(x):
    seen = [depth()]
    with torch.device("cpu"):
        y = torch.ones(4)
        seen.append(depth())
        with torch.device("cpu"):
            y = y + torch.ones(4)
            seen.append(depth())
        seen.append(depth())
    return x + y, *seen, depth()


def raises_behind_a_break(x):
    with torch.device("cpu"):
        y = x + torch.ones(4)
        seen = depth()
        if seen:
            raise ValueError(str(y.sum() > 0))


def stays(x):
    torch.device("cpu").__enter__()
    return x + torch.ones(4)


def another(x):
    with torch.device("meta"):
        y = torch.ones(4)
    with torch.device("cpu", 0):
        z = torch.ones(4)
    return x + z, y.device


@pytest.mark.parametrize("around", (None, "cpu"))
@pytest.mark.parametrize("program", (around_breaks, raises_behind_a_break, stays, another))
def test_blocks_around_breaks(program, around, strict):
    compiled, found = oxyfuel.compile(program), []
    for f in (compiled, program, compiled):
        torch.set_default_device(around)
        try:
            found.append(f(X))
        except ValueError as e:
            found.append(str(e))
        found.append(torch._C._len_torch_function_stack())
        if program is stays:
            torch.device("cpu").__exit__(None, None, None)
        torch.set_default_device(None)
        assert torch._C._len_torch_function_stack() == 0
    assert str(found[:2]) == str(found[2:4]) == str(found[4:])
