"""From a torch.fx.GraphModule to a callable: recording, planning, and what is said when that fails."""

from __future__ import annotations

import os
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from oxyfuel import _C, autotune, passes, statistics
from oxyfuel.logs import log
from oxyfuel.options import make_settings

_lock = threading.RLock()  # one compilation at a time
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_lock._at_fork_reinit)
_graphs: weakref.WeakSet[_Graph] = weakref.WeakSet()
captured_functions: weakref.WeakSet[Any] = weakref.WeakSet()
_said: set[str] = set()
THAW_LIMIT = 8  # changes of frozen parameters that a graph is compiled for


def compile_fx(
    gm: torch.fx.GraphModule,
    example_inputs: Sequence[Any] = (),
    *,
    options: Mapping[str, Any] | None = None,
) -> Callable[..., Any]:
    """A callable that computes what ``gm`` computes, faster.

    It takes the graph's inputs in order (tensors and integers). Each new combination of sizes, strides and
    dtypes is compiled at its first call, so ``example_inputs`` may be empty. Results, mutated inputs and
    exceptions are those of ``gm``.

    Raises UserError (a ValueError) for an unknown option.
    """
    del example_inputs  # sizes are taken from the first call, when the real tensors are there
    settings = make_settings(options)
    statistics.count("graphs")
    if settings.get("disable") == "True":
        return gm.forward
    return _FxGraph(gm, settings).callable


def reset() -> None:
    """Forgets every capture, compiled plan, counter and warning, and gives idle memory back."""
    for graph in list(_graphs):
        graph.forget()
    for function in list(captured_functions):
        function.reset()
    statistics.clear()
    _said.clear()
    _C.trim_pool()


class _Graph:
    """One graph and the plans made of it. Lives as long as its callable, which holds its methods."""

    def __init__(
        self,
        eager: Callable[..., Any] | None,
        settings: _C.Settings,
        slots: list[tuple[dict[str, Any], str]],
    ) -> None:
        self._settings = settings
        self._thaws = 0
        self._strict = settings.get("strict") == "True"
        self.callable = _C.CompiledGraph(eager, self.compile, self.report, slots)
        _graphs.add(self)

    def torch_graph(self) -> _C.TorchGraph:
        """What is compiled."""
        raise NotImplementedError

    def forget(self) -> None:
        """Drops the plans; the next call compiles anew."""
        self.callable.reset()

    def compile(self, args: tuple[Any, ...]) -> _C.CompiledPlan | tuple[str, str]:
        """A plan for inputs like these, or (kind, reason) where there is none."""
        start = time.perf_counter()
        random_state = torch.get_rng_state()
        try:
            with _lock:
                return self._make_plan(args)
        except _C.Unsupported as e:
            return "unsupported", str(e)
        except Exception as e:
            text = f"{type(e).__name__}: {_first_line(e)}"
            reason = _C.torch_limit(text)
            return ("unsupported", f"{reason} ({text})") if reason else ("failed", text)
        finally:
            torch.set_rng_state(random_state)
            statistics.count("compile_seconds", time.perf_counter() - start)

    def _make_plan(self, args: tuple[Any, ...]) -> _C.CompiledPlan:
        make = autotune.fastest_plan if self._settings.get("autotune") == "True" else _C.compile
        plan = make(self.torch_graph(), args, self._settings, passes.rows())
        statistics.count("plans")
        statistics.count("kernels", plan.kernel_count())
        statistics.count("kernel_calls", plan.kernel_calls())
        statistics.count("extern_calls", plan.extern_count())
        statistics.count("moved_bytes", plan.moved_bytes())
        if _C.log_enabled("bandwidth"):
            log("bandwidth", "kernels", plan.bandwidth_text(args))
        return plan

    def report(self, kind: str, text: str) -> None:
        """Told by the callable after eager has taken a call over, or of a plan that ran (kind "note")."""
        if kind == "note":
            statistics.count("layout_copies")
            return warn_once(text)
        if kind == "thawed":
            return self._thaw()
        if kind == "grad":
            statistics.count("grad_fallbacks")
            return warn_once(grad_text(self._settings))
        if kind == "unsupported":
            statistics.count("unsupported")
            return warn_once(f"{text} is not compiled: such calls run in eager")
        statistics.count("fallbacks")
        if self._strict:
            raise _C.InternalError(text)
        return warn_once(
            f"a graph runs in eager after an internal failure: {text}. OXYFUEL_STRICT=1 raises the error, "
            "OXYFUEL_LOGS shows the stages that were reached"
        )

    def _thaw(self) -> None:
        """A parameter that was frozen has changed: the next plan has its new value, or takes none as a constant."""
        statistics.count("thaws")
        self._thaws += 1
        if self._thaws == THAW_LIMIT:
            self._settings = self._settings.copy()
            self._settings.set("freezing", "False")
            warn_once(
                f"frozen parameters have changed {THAW_LIMIT} times: the graph is compiled without freezing"
            )


class _FxGraph(_Graph):
    """A graph that came as a torch.fx.GraphModule."""

    def __init__(self, gm: torch.fx.GraphModule, settings: _C.Settings) -> None:
        super().__init__(gm.forward, settings, _attribute_slots(gm))
        self._gm = gm
        self._shown = False

    def torch_graph(self) -> _C.TorchGraph:
        if not self._shown and _C.log_enabled("graph_code"):
            log("graph_code", "captured graph", self._gm.print_readable(print_output=False))
        self._shown = True
        # Anew: it holds the module's attributes of this moment.
        return _C.TorchGraph.from_fx(self._gm)


class CapturedGraph(_Graph):
    """A graph of Oxyfuel's own capture: whatever it reads is an input.

    Where it does not run, its caller runs the function that it was captured from.
    """

    def __init__(self, graph: _C.TorchGraph, settings: _C.Settings) -> None:
        super().__init__(None, settings, [])
        self._graph = graph

    def torch_graph(self) -> _C.TorchGraph:
        return self._graph


def grad_text(settings: _C.Settings) -> str:
    """What is said of a call that needs gradients."""
    if settings.get("freezing") == "True":
        return (
            "freezing is for inference: calls that need gradients run in eager. "
            "Call under torch.no_grad() or torch.inference_mode()"
        )
    return "calls that need gradients run in eager: training is not compiled yet"


def _first_line(e: Exception) -> str:
    return str(e).partition("\n")[0]


def warn_once(text: str) -> None:
    """Warns, unless the same was said since the last reset."""
    if text not in _said:
        _said.add(text)
        warnings.warn(f"oxyfuel: {text}", stacklevel=2)


def _attribute_slots(gm: torch.fx.GraphModule) -> list[tuple[dict[str, Any], str]]:
    """Every (dict, key) through which the graph reaches its attributes, so that a new one is noticed."""
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
