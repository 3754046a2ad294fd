"""What users tell the compiler about their functions. The same marks of torch.compiler are honoured
as well."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from oxyfuel import _C

STANCES = (
    "default",
    "force_eager",
    "eager_on_recompile",
    "fail_on_recompile",
    "eager_then_compile",
    "aot_eager_then_compile",
)
_stance = "default"
_error = False  # read by nobody but the code that is captured


def disable(fn: Callable[..., Any] | None = None) -> Any:
    """``fn`` as it is, never captured and never inlined; also a decorator."""
    if fn is None:
        return disable

    @functools.wraps(fn)
    def run(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    run._oxyfuel_disable = True
    return run


def keeps_values(pack_hook: Callable[..., Any]) -> Callable[..., Any]:
    """Marks a pack hook of ``torch.autograd.graph.saved_tensors_hooks`` whose unpack hook gives the
    values back that were packed, as one that moves them elsewhere. Under other hooks, calls that
    need gradients run in eager: what a compiled graph saves for its backward is not what eager's
    ops save. Hooks of ``save_on_cpu`` and of checkpoints need no mark."""
    pack_hook._oxyfuel_keeps_values = True
    return pack_hook


def allow_in_graph(fn: Callable[..., Any]) -> Callable[..., Any]:
    """``fn`` becomes one call of the graph: its own code is not captured, and must depend on its
    arguments alone."""
    _C.set_control(fn, "in_graph", None)
    return fn


def disallow_in_graph(fn: Callable[..., Any]) -> Callable[..., Any]:
    """A graph ends in front of a call of ``fn``."""
    _C.set_control(fn, "not_in_graph", None)
    return fn


def assume_constant_result(fn: Callable[..., Any]) -> Callable[..., Any]:
    """``fn`` is called when it is captured, and its result is taken for every later call."""
    _C.set_control(fn, "constant", None)
    return fn


def substitute_in_graph(original: Callable[..., Any]) -> Callable[[Callable[..., Any]], Any]:
    """A decorator: where ``original`` (a function written in C, say) is captured, the decorated one
    stands in."""

    def mark(substitute: Callable[..., Any]) -> Callable[..., Any]:
        _C.set_control(original, "substitute", substitute)
        return substitute

    return mark


class set_stance:
    """How compiled functions behave from now on; also a context manager and a decorator.

    - ``default``; ``force_eager``: everything runs in eager
    - ``eager_on_recompile``: what has a capture uses it, other calls run in eager
    - ``fail_on_recompile``: other calls raise RuntimeError
    - ``eager_then_compile`` and ``aot_eager_then_compile``: a function's first call runs in eager

    Raises UserError (a ValueError) for another name.
    """

    def __init__(self, stance: str = "default") -> None:
        self._stance = stance
        self._before = _stance
        self.__enter__()

    def __enter__(self) -> None:
        global _stance
        _C.set_stance(self._stance)
        _stance = self._stance

    def __exit__(self, *_: Any) -> None:
        global _stance
        _C.set_stance(self._before)
        _stance = self._before

    def __call__(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        self.__exit__()
        stance = self._stance

        @functools.wraps(fn)
        def run(*args: Any, **kwargs: Any) -> Any:
            with set_stance(stance):
                return fn(*args, **kwargs)

        return run


def _get_error_on_graph_break() -> bool:
    return _error


def _set_error_on_graph_break(value: bool) -> None:
    global _error
    _error = value


class error_on_graph_break:
    """A context manager inside captured code: where a graph would end in it, GraphBreak is raised,
    or, with False, is not. With ``fullgraph=True`` it does nothing."""

    def __init__(self, value: bool = True) -> None:
        self._value = value
        self._before: list[bool] = []

    def __enter__(self) -> None:
        self._before.append(_get_error_on_graph_break())
        _set_error_on_graph_break(self._value)

    def __exit__(self, *_: Any) -> None:
        _set_error_on_graph_break(self._before.pop())


def nested_compile_region(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Marks a region that is called often. Equal kernels are compiled once anyway, so nothing has
    to be done."""
    return fn


def graph_break() -> None:
    """Ends the graph where it is captured; does nothing else."""


def is_compiling() -> bool:
    """True inside code that Oxyfuel is capturing, as ``torch.compiler.is_compiling`` is."""
    return False
