"""What a call leaves behind, as plain data: result, arguments, state of the function, exception,
printed text.

Each tensor and each mutable object gets a number where it is first met and stands there as that
number from then on, so that two snapshots agree only where the same things are the same object.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import io
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

_PLAIN = (bool, int, float, complex, str, bytes, type(None), type(...), range, slice)
_OPAQUE = (torch.dtype, torch.device, torch.layout, torch.Size, types.ModuleType, type)
_FUNCTIONS = (types.FunctionType, types.MethodType, types.BuiltinFunctionType, functools.partial)


@dataclass
class Leaf:
    """A tensor in a snapshot: its content and what else a user can ask of it."""

    number: int
    value: torch.Tensor
    facts: tuple


class Snapshot:
    def __init__(self) -> None:
        self.numbers: dict[int, int] = {}
        self.kept: list[Any] = []  # an id is good as long as its object lives

    def of(self, value: Any) -> Any:
        if isinstance(value, _PLAIN):
            return (type(value).__name__, repr(value))
        if isinstance(value, _OPAQUE):
            return repr(value)
        if id(value) in self.numbers:
            return ("seen", self.numbers[id(value)])
        number = self.numbers[id(value)] = len(self.numbers)
        self.kept.append(value)
        if isinstance(value, torch.Tensor):
            return Leaf(number, value.detach().clone(), _facts(value))
        return (type(value).__qualname__, *self._content(value))

    def _content(self, value: Any) -> list[Any]:
        if isinstance(value, dict):
            items = [(self.of(k), self.of(v)) for k, v in value.items()]
            return items + self._attributes(value)
        if isinstance(value, (list, tuple, collections.deque)):
            return [self.of(v) for v in value] + self._attributes(value)
        if isinstance(value, (set, frozenset)):
            return sorted(repr(v) for v in value)
        if isinstance(value, _FUNCTIONS):
            return [getattr(value, "__name__", "partial"), *self.of_function(value)]
        if isinstance(value, torch.nn.Module):
            return self._module(value)
        return self._attributes(value)

    def _attributes(self, value: Any) -> list[Any]:
        named = dict(getattr(value, "__dict__", {}))
        for name in getattr(type(value), "__slots__", ()):
            if hasattr(value, name):
                named[name] = getattr(value, name)
        return [(k, self.of(v)) for k, v in named.items()]

    def _module(self, module: torch.nn.Module) -> list[Any]:
        named = {k: v for k, v in vars(module).items() if not k.startswith("_")}
        for part in (module._parameters, module._buffers, module._modules):
            named.update(part)
        return [(k, self.of(v)) for k, v in named.items()]

    def of_function(self, function: Callable[..., Any]) -> list[Any]:
        """What a function can change without its arguments: self, cells, defaults, globals that it
        names."""
        if isinstance(function, functools.partial):
            return [self.of(function.func), self.of(function.args), self.of(function.keywords)]
        if isinstance(function, types.MethodType):
            return [self.of(function.__self__)]
        if not isinstance(function, types.FunctionType):
            return [self.of(function)] if isinstance(function, torch.nn.Module) else []
        names = [n for n in function.__code__.co_names if n in function.__globals__]
        values = [c.cell_contents for c in function.__closure__ or () if c != types.CellType()]
        values += [function.__defaults__, *(function.__globals__[n] for n in names)]
        return [self.of(v) for v in values if not isinstance(v, types.ModuleType)]


def _facts(value: torch.Tensor) -> tuple:
    facts = (type(value).__name__, value.dtype, tuple(value.shape), value.device.type)
    strides = value.stride() if value.numel() > 1 else None
    return (*facts, strides, value.requires_grad, value.is_leaf)


@dataclass
class Outcome:
    """What a user can see of one call."""

    result: Any
    error: tuple[str, str] | None
    printed: str
    state: Any


def outcome(run: Callable[..., Any], function: Callable[..., Any], args, kwargs) -> Outcome:
    """Calls `run`, which is `function` or compiled from it, and looks at everything `function` can
    have changed."""
    result, error = None, None
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        try:
            result = run(*args, **kwargs)
        except Exception as e:
            error = (type(e).__name__, str(e))
    snapshot = Snapshot()
    state = [snapshot.of(args), snapshot.of(kwargs), snapshot.of_function(function)]
    return Outcome(snapshot.of(result), error, printed.getvalue(), state)


def differences(expected: Any, actual: Any, where: str = "result") -> list[str]:
    """Where two snapshots differ; empty when they agree."""
    if isinstance(expected, Leaf) and isinstance(actual, Leaf):
        return _tensor_differences(expected, actual, where)
    if isinstance(expected, (list, tuple)) and isinstance(actual, (list, tuple)):
        if len(expected) != len(actual):
            return [f"{where}: {expected} became {actual}"]
        pairs = enumerate(zip(expected, actual))
        return [d for i, (e, a) in pairs for d in differences(e, a, f"{where}.{i}")]
    return [] if expected == actual else [f"{where}: {expected} became {actual}"]


def _tensor_differences(expected: Leaf, actual: Leaf, where: str) -> list[str]:
    found = []
    if expected.number != actual.number:
        found.append(f"{where}: tensor {expected.number} became tensor {actual.number}")
    if expected.facts != actual.facts:
        return [*found, f"{where}: {expected.facts} became {actual.facts}"]
    try:
        torch.testing.assert_close(actual.value, expected.value, equal_nan=True)
    except AssertionError as e:
        found.append(f"{where}: {e}")
    return found


def outcome_differences(expected: Outcome, actual: Outcome) -> list[str]:
    found = differences(expected.state, actual.state, "state")
    found += differences(expected.result, actual.result)
    if expected.error != actual.error:
        found.append(f"exception: {expected.error} became {actual.error}")
    if expected.printed != actual.printed:
        found.append(f"printed: {expected.printed!r} became {actual.printed!r}")
    return found
