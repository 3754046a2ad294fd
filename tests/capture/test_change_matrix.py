"""Stale and changed tensors: every way to change a tensor, wherever it lives, however it is used.

Each cell calls, changes the tensor, calls twice, and compares each call with eager. The changes
stand in changes.py, places and uses here.
"""

from __future__ import annotations

import functools

import pytest
import torch
import torch._dynamo
from changes import CHANGES, Place
from snapshot import outcome, outcome_differences

import oxyfuel


class AsParameter(Place):
    """A parameter of a module, read in forward."""

    def __init__(self, use):
        super().__init__()
        self.module = _Module(use)
        self.module.w = torch.nn.Parameter(_weight(), requires_grad=False)
        self.function = self.module.forward


class AsBuffer(Place):
    def __init__(self, use):
        super().__init__()
        self.module = _Module(use)
        self.module.register_buffer("w", _weight())
        self.function = self.module.forward


class AsArgument(Place):
    def __init__(self, use):
        super().__init__()
        self.tensor = _weight()
        self.function = lambda x, w: use(x, w)

    def arguments(self):
        return (self.tensor,)


class InClosure(Place):
    def __init__(self, use):
        super().__init__()
        w = _weight()

        def read():
            return w

        def write(value):
            nonlocal w
            w = value

        self.read, self.write = read, write
        self.function = lambda x: use(x, w)


class InGlobal(Place):
    def __init__(self, use):
        super().__init__()
        space = {"use": use, "w": _weight()}
        exec("def function(x):\n    return use(x, w)\n", space)
        self.function = space["function"]
        self.read = lambda: space["w"]
        self.write = lambda value: space.__setitem__("w", value)


class _Module(torch.nn.Module):
    def __init__(self, use):
        super().__init__()
        self.use = use

    def forward(self, x):
        return self.use(x, self.w)


def in_kernel(x, w):
    return (x * w + 1).sin() * 2


def in_extern_call(x, w):
    return torch.cumsum(w, 0) + x, torch.sort(w, dim=1)[1]


def in_product(x, w):
    return torch.nn.functional.linear(x, w) @ w


def folded(x, w):
    """A part depends on nothing but the tensor: whoever keeps it is wrong after a change."""
    return x + (w.t() @ w).mul(2).sum(0)


def mutated(x, w):
    w.mul_(2)
    return x + w


PLACES = [AsParameter, AsBuffer, AsArgument, InClosure, InGlobal]
USES = [in_kernel, in_extern_call, in_product, folded, mutated]
COMPILERS = {
    "dynamo": functools.partial(torch.compile, backend="oxyfuel", dynamic=False),
    "oxyfuel": oxyfuel.compile,
}
compilers = pytest.mark.parametrize("compiler", COMPILERS)
# Where TorchDynamo itself does not give eager's result, with any back end.
DYNAMO_FAULTS = set()
if torch.__version__.startswith("2.14."):
    DYNAMO_FAULTS.add(("object_subclass", "AsParameter", "mutated"))


def _weight():
    return torch.randn(4, 4)


def outcomes(compiler, change, place, use):
    """What the calls before, right after and long after the change leave behind; None where it does
    not apply."""
    torch.manual_seed(0)
    home = place(use)
    x = torch.randn(4, 4)
    run = compiler(home.function)
    found = [_call(run, home, x)]
    torch.manual_seed(1)
    if change(home) is NotImplemented:
        return None
    return [*found, _call(run, home, x), _call(run, home, x + 1)]


def _call(run, home, x):
    with torch.no_grad():
        return outcome(run, home.function, (x.to(home.get().dtype), *home.arguments()), {})


@compilers
@pytest.mark.parametrize("use", USES, ids=lambda f: f.__name__)
@pytest.mark.parametrize("place", PLACES, ids=lambda p: p.__name__)
@pytest.mark.parametrize("change", CHANGES, ids=lambda f: f.__name__)
@pytest.mark.filterwarnings("ignore")
def test_change(change, place, use, compiler):
    if compiler == "dynamo" and (change.__name__, place.__name__, use.__name__) in DYNAMO_FAULTS:
        pytest.skip("the result is of another class")
    torch._dynamo.reset()
    oxyfuel.reset()
    expected = outcomes(lambda function: function, change, place, use)
    if expected is None:
        pytest.skip("not a change of a tensor that lives there")
    actual = outcomes(COMPILERS[compiler], change, place, use)
    for i, (e, a) in enumerate(zip(expected, actual)):
        if compiler == "dynamo" and e.error:
            assert a.error  # its class and text are TorchDynamo's own under fake tensors
            continue
        found = outcome_differences(e, a)
        assert not found, f"call {i + 1}: " + "\n".join(found)
