"""From a torch.fx.GraphModule to a callable: recording, planning, and what is said when that
fails."""

from __future__ import annotations

import functools
import sys
import time
import warnings
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from oxyfuel import _C, passes, statistics
from oxyfuel.logs import log
from oxyfuel.options import make_settings

_graphs: weakref.WeakSet[_Graph] = weakref.WeakSet()
captured_functions: weakref.WeakSet[Any] = weakref.WeakSet()
_said: set[str] = set()


def compile_fx(
    gm: torch.fx.GraphModule,
    example_inputs: Sequence[Any] = (),
    *,
    options: Mapping[str, Any] | None = None,
) -> Callable[..., Any]:
    """A callable that computes what ``gm`` computes, faster.

    It takes the graph's inputs in order (tensors and integers). Each new combination of sizes,
    strides and dtypes is compiled at its first call, so ``example_inputs`` may be empty. Results,
    mutated inputs and exceptions are those of ``gm``.

    Raises UserError (a ValueError) for an unknown option.
    """
    del example_inputs  # sizes are taken from the first call, when the real tensors are there
    settings = make_settings(options)
    statistics.count("graphs")
    if settings.get("disable") == "True":
        return gm.forward
    return _Graph(gm, settings).callable


def reset() -> None:
    """Forgets every capture, compiled plan, counter and warning, and gives idle memory back."""
    for graph in list(_graphs):
        graph.forget()
    for function in list(captured_functions):
        function.reset()
    statistics.clear()
    _said.clear()
    _C.trim_pool()


# Captured, it would forget the captures of its own parts.
_C.set_control(reset, "not_in_graph", None)


def plan(
    graph: _C.TorchGraph, args: tuple[Any, ...], settings: _C.Settings, freezing: bool
) -> _C.CompiledPlan | tuple[str, str]:
    """A plan for inputs like these, or (kind, reason) where there is none."""
    start = time.perf_counter()
    made = _C.compile(graph, args, settings, passes.rows(), freezing)
    statistics.count("compile_seconds", time.perf_counter() - start)
    if isinstance(made, _C.CompiledPlan):
        statistics.count("plans")
        statistics.count("kernels", made.kernel_count())
        statistics.count("kernel_calls", made.kernel_calls())
        statistics.count("extern_calls", made.extern_count())
        statistics.count("moved_bytes", made.moved_bytes())
        if _C.log_enabled("bandwidth"):
            log("bandwidth", "kernels", made.bandwidth_text(args))
        if made.choices and _C.log_enabled("autotuning"):
            log("autotuning", "ways that were tried", made.choices)
        elif made.choices:
            print(f"oxyfuel autotune\n{made.choices}", file=sys.stderr)
    return made


def report(settings: _C.Settings, kind: str, text: str) -> None:
    """Says what became of a graph: told after eager has taken a call over, or of a plan that ran
    (kind "note")."""
    if kind == "note":
        statistics.count("layout_copies")
        warn_once(text)
    elif kind == "thawed":
        statistics.count("thaws")
        if text:
            warn_once(text)
    elif kind == "grad":
        statistics.count("grad_fallbacks")
        warn_once(grad_text(settings))
    elif kind == "unsupported":
        statistics.count("unsupported")
        warn_once(f"{text} is not compiled: such calls run in eager")
    else:
        statistics.count("fallbacks")
        if settings.get("strict") == "True":
            raise _C.InternalError(text)
        warn_once(
            f"a graph runs in eager after an internal failure: {text}. OXYFUEL_STRICT=1 raises the "
            "error, "
            "OXYFUEL_LOGS shows the stages that were reached"
        )


class _Graph:
    """A torch.fx.GraphModule and the plans made of it. Lives as long as its callable, which holds
    its methods."""

    def __init__(self, gm: torch.fx.GraphModule, settings: _C.Settings) -> None:
        self._gm = gm
        self._settings = settings
        self._shown = False
        self.callable = _C.CompiledGraph(
            gm.forward, self.compile, functools.partial(report, settings), _attribute_slots(gm)
        )
        _graphs.add(self)

    def forget(self) -> None:
        """Drops the plans; the next call compiles anew."""
        self.callable.reset()

    def compile(self, args: tuple[Any, ...], freezing: bool) -> _C.CompiledPlan | tuple[str, str]:
        """A plan for inputs like these, or (kind, reason) where there is none."""
        if not self._shown and _C.log_enabled("graph_code"):
            log("graph_code", "captured graph", self._gm.print_readable(print_output=False))
        self._shown = True
        # Anew: it holds the module's attributes of this moment.
        try:
            graph = _C.TorchGraph.from_fx(self._gm)
        except _C.Unsupported as e:
            return "unsupported", str(e)
        except Exception as e:
            return "failed", f"{type(e).__name__}: {str(e).partition(chr(10))[0]}"
        return plan(graph, args, self._settings, freezing)


def grad_text(settings: _C.Settings) -> str:
    """What is said of a call that needs gradients."""
    if settings.get("freezing") == "True":
        return (
            "freezing is for inference: calls that need gradients run in eager. "
            "Call under torch.no_grad() or torch.inference_mode()"
        )
    return "calls that need gradients run in eager: training is not compiled yet"


def warn_once(text: str) -> None:
    """Warns, unless the same was said since the last reset."""
    if text not in _said:
        _said.add(text)
        warnings.warn(f"oxyfuel: {text}", stacklevel=2)


def _attribute_slots(gm: torch.fx.GraphModule) -> list[tuple[dict[str, Any], str]]:
    """Every (dict, key) through which the graph reaches its attributes, so that a new one is
    noticed."""
    slots: dict[tuple[int, str], tuple[dict[str, Any], str]] = {}

    def add(holder: dict[str, Any], key: str) -> None:
        slots[id(holder), key] = (holder, key)

    def add_path(path: str) -> Any:
        owner: Any = gm
        for name in path.split("."):
            holder = _holder(owner, name)
            if holder is None:
                return None
            add(holder, name)
            owner = holder[name]
        return owner

    for node in gm.graph.nodes:
        if node.op in ("get_attr", "call_module"):
            found = add_path(node.target)
            if isinstance(found, torch.nn.Module):
                for path, module in found.named_modules():
                    prefix = f"{node.target}.{path}" if path else node.target
                    for name in [*module._parameters, *module._buffers]:
                        add_path(f"{prefix}.{name}")
    return list(slots.values())


def _holder(owner: Any, name: str) -> dict[str, Any] | None:
    """The dict in which an attribute of a module stands."""
    names = ("_parameters", "_buffers", "_modules") if isinstance(owner, torch.nn.Module) else ()
    for holder in [owner.__dict__.get(n) for n in names] + [getattr(owner, "__dict__", None)]:
        if holder is not None and name in holder:
            return holder
    return None
