"""Passes of the user's on ATen graphs: patterns with their replacements, and functions on torch.fx
graphs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from oxyfuel import _C
from oxyfuel.fx import aten_graph_to_fx

_WHEN = ("before", "after")


class _Registered(NamedTuple):
    name: str
    in_front: bool
    what: Any


_registered: list[_Registered] = []


def register_replacement(
    pattern: Callable[..., Any],
    replacement: Callable[..., Any],
    example_inputs: Sequence[Any],
    *,
    extra_check: Callable[..., bool] | None = None,
    when: str = "before",
    name: str | None = None,
) -> str:
    """Puts what ``replacement`` does in the place of what ``pattern`` does, in every graph compiled
    from now on.

    Both take the same arguments and return a tensor or a tuple of tensors of equal dtypes and
    sizes. The ATen ops that ``pattern`` calls are looked for; its tensors stand for any tensors,
    and the numbers among ``example_inputs`` for any numbers (take numbers that the pattern has for
    nothing else). Sizes need not be those of the examples: both functions are called again with
    tensors, without data, of the sizes that were found.

    - ``extra_check``: called with these tensors and numbers; where it gives False, nothing is
      replaced
    - ``when``: "before" Oxyfuel's own passes or "after" them
    - ``name``: what the option ``disabled_passes`` and :func:`unregister_pass` take; returned

    Raises ValueError for a pattern that writes to its inputs, has effects, draws random numbers, or
    returns what it did not compute, and for a name that is taken.
    """
    examples = tuple(example_inputs)
    numbers = tuple(x for x in examples if not isinstance(x, torch.Tensor))
    tensors = tuple(x for x in examples if isinstance(x, torch.Tensor))
    for number in numbers:
        if type(number) not in (int, float):
            raise ValueError(f"example_inputs are tensors and numbers, not {type(number).__name__}")

    def arguments(tensors: tuple[torch.Tensor, ...], numbers: tuple[Any, ...]) -> tuple[Any, ...]:
        rest, plain = iter(tensors), iter(numbers)
        return tuple(next(rest if isinstance(x, torch.Tensor) else plain) for x in examples)

    def record(tensors: tuple[torch.Tensor, ...], numbers: tuple[Any, ...]) -> Any:
        filled = arguments(tensors, numbers)
        if extra_check is not None and not extra_check(*filled):
            return None
        return _record(pattern, filled), _record(replacement, filled)

    search = _record(pattern, arguments(tensors, numbers))
    _C.Pattern(_record(replacement, arguments(tensors, numbers)), (), record)
    return _add(name or _name_of(pattern), when, _C.Pattern(search, numbers, record))


def register_pass(
    function: Callable[[torch.fx.GraphModule], torch.fx.GraphModule | None],
    *,
    when: str = "before",
    name: str | None = None,
) -> str:
    """Calls ``function`` with each graph that is compiled from now on, as a torch.fx.GraphModule of
    ATen ops.

    It changes the graph in place or returns another one, with the same inputs and results. Inputs
    that the graph writes are written by ``copy_`` at its end. ``when`` and ``name`` as in
    :func:`register_replacement`; returns the name.
    """

    def run(recording: _C.AtenGraph, inputs: tuple[Any, ...]) -> _C.AtenGraph:
        module = aten_graph_to_fx(recording)
        changed = function(module)
        module = module if changed is None else changed
        module.graph.lint()
        module.recompile()
        return _C.record(_C.TorchGraph.from_fx(module), inputs)

    return _add(name or _name_of(function), when, run)


def unregister_pass(name: str) -> None:
    """Forgets a registered pass; ValueError where there is none of this name."""
    for i, row in enumerate(_registered):
        if row.name == name:
            del _registered[i]
            return
    raise ValueError(f"no registered pass {name!r}; there are: {', '.join(registered_passes())}")


def registered_passes() -> list[str]:
    """The names of the registered passes, in the order in which they run."""
    return [row.name for row in _registered]


def rows() -> list[tuple[str, bool, Any]]:
    """What the compiler takes."""
    return [tuple(row) for row in _registered]


def _add(name: str, when: str, what: Any) -> str:
    if when not in _WHEN:
        raise ValueError(f"when is one of {', '.join(_WHEN)}, not {when!r}")
    if name in registered_passes() or name in _C.pass_names():
        raise ValueError(f"a pass {name!r} is there already")
    _registered.append(_Registered(name, when == "before", what))
    return name


def _name_of(function: Callable[..., Any]) -> str:
    return getattr(function, "__name__", type(function).__name__)


def _record(function: Callable[..., Any], arguments: tuple[Any, ...]) -> _C.AtenGraph:
    """The ATen ops of a call, each result cloned at the end so that it is a result of its own."""

    def call(*given: Any) -> Any:
        result = function(*given)
        results = result if isinstance(result, (tuple, list)) else (result,)
        if not results or not all(isinstance(r, torch.Tensor) for r in results):
            raise ValueError("a pattern returns tensors")
        return tuple(r.clone() for r in results)

    graph = torch.fx.Graph()
    tensors = tuple(x for x in arguments if isinstance(x, torch.Tensor))
    places = iter([graph.placeholder(f"x{i}") for i in range(len(tensors))])
    given = tuple(next(places) if isinstance(x, torch.Tensor) else x for x in arguments)
    graph.output(graph.call_function(call, given))
    module = torch.fx.GraphModule(torch.nn.Module(), graph)
    with torch.no_grad():
        return _C.record(_C.TorchGraph.from_fx(module), tensors)
