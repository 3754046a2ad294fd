"""From a torch.fx.GraphModule to a callable: recording, planning, and what is said when that
fails."""

from __future__ import annotations

import functools
import logging
import sys
import time
import warnings
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from oxyfuel import _C, lifted, passes, statistics
from oxyfuel.logs import log
from oxyfuel.options import make_settings

# Of an input: its dimensions of symbolic size, each with what its size is called; of a number what
# the sizes are called that it is one of.
_Symbols = tuple[list[tuple[int, str]], str | None]

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
    strides and dtypes is compiled at its first call, so ``example_inputs`` may be empty; sizes and
    integers that TorchDynamo has found to vary, or that are symbolic in ``example_inputs``, are
    symbols, and one compilation serves as many of them as do the same. Results, mutated inputs and
    exceptions are those of ``gm``.

    Raises UserError (a ValueError) for an unknown option.
    """
    settings = make_settings(options)
    statistics.count("graphs")
    if settings.get("disable") == "True":
        return gm.forward
    return _Graph(gm, settings, example_inputs).callable


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
    graph: _C.TorchGraph,
    args: tuple[Any, ...],
    settings: _C.Settings,
    freezing: bool,
    symbols: Mapping[int, _Symbols] | None = None,
) -> _C.CompiledPlan | tuple[str, str]:
    """A plan for inputs like these, or (kind, reason) where there is none. ``symbols``: what varies
    of the inputs."""
    start = time.perf_counter()
    made = _C.compile(graph, args, settings, passes.rows(), freezing, symbols or {})
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


def report(settings: _C.Settings, kind: str, text: str, name: str = "a graph") -> None:
    """Says what became of a graph: told after eager has taken a call over, or of a plan that ran
    (kind "note")."""
    if kind == "note":
        statistics.count("layout_copies")
        warn_once(text)
    elif kind == "thawed":
        statistics.count("thaws")
        if text:
            warn_once(text)
    elif kind in ("static", "static failed"):
        if kind == "static failed" and settings.get("strict") == "True":
            raise _C.InternalError(f"with symbolic sizes: {text}")
        statistics.count("static_captures")
        log("dynamic", f"{name} is compiled for these sizes alone", text)
    elif kind == "captured":
        log("graph_breaks", f"{name} is captured again, from its code", text)
    elif kind == "grad":
        statistics.count("grad_fallbacks")
        warn_once(f"{text} is not compiled: such calls run in eager")
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


class _Float:
    """What the code of a graph is given for a tensor that holds a float."""

    def __init__(self, value: float) -> None:
        self._value = value

    def item(self) -> float:
        return self._value


class _Graph:
    """A torch.fx.GraphModule and the plans made of it. Lives as long as its callable, which holds
    its methods."""

    def __init__(
        self,
        gm: torch.fx.GraphModule,
        settings: _C.Settings,
        examples: Sequence[Any],
        eager: Callable[..., Any] | None = None,
    ) -> None:
        """``eager``: computes the same, where it is not the module's own forward."""
        self._gm = gm
        self._settings = settings
        self._symbols = _symbols_of(gm, examples)
        self._floats = _floats_of(gm)
        # Otherwise TorchDynamo was told that all may vary.
        self._floats_vary = bool(self._floats) and torch._dynamo.config.assume_static_by_default
        self._shown = False
        self._differentiable: tuple[_Graph, list[lifted.Slot]] | None = None
        self._eager = eager
        self._captured: Callable[..., Any] | None = None
        # None: this one has them as inputs already.
        differentiable = None if eager else self.call_differentiable
        self.callable = _C.CompiledGraph(
            self.run_code,
            self.compile,
            functools.partial(report, settings),
            _attribute_slots(gm),
            differentiable,
        )
        _graphs.add(self)

    def forget(self) -> None:
        """Drops the plans; the next call compiles anew."""
        self._differentiable = self._captured = None
        self.callable.reset()

    def run_code(self, *inputs: Any, **keywords: Any) -> Any:
        """What runs where there is no plan."""
        if self._captured is None:
            return (self._eager or self._gm.forward)(*inputs, **keywords)
        given: list[Any] = list(inputs)
        for i in self._floats:
            given[i] = _Float(inputs[i].item())
        return self._captured(*given, **keywords)

    def capture_code(self, symbols: Mapping[int, _Symbols]) -> None:
        """From now on the module's code is captured as any other: around what no graph has, graphs
        break, what depends on data is part of them, and floats are Python's."""
        from oxyfuel.api import Compiler

        if hasattr(self._gm, "real_recompile"):  # its code is not made yet
            self._gm.real_recompile()
        code = self._eager or self._gm.forward
        inputs = self._gm.graph.find_nodes(op="placeholder")
        self._captured = Compiler("native", self._settings, False, "a graph", None).compiled(code)
        if self._eager:
            sources = [f"L['all_inputs'][{i}]" for i in range(len(inputs))]
        else:
            sources = [f"L['{node.target}']" for node in inputs]
        for i, (dims, _) in symbols.items():
            self._captured.vary(sources[i], [d for d, _ in dims])
        if self._floats_vary:
            for i in self._floats:
                self._captured.vary(f"{sources[i]}._value", None)
        statistics.count("graphs", -1)  # those of the code are counted

    def call_differentiable(self, *inputs: Any) -> Any:
        """A call where attributes of the module require gradients."""
        if self._differentiable is None:
            gm, slots = lifted.lift_attributes(self._gm, functools.partial(_slot_of, self._gm))
            forward, given = self._gm.forward, len(inputs)

            def eager(*all_inputs: Any) -> Any:
                return forward(*all_inputs[:given])

            made = _Graph(gm, self._settings, (), eager)
            made._symbols = self._symbols
            self._differentiable = made, slots
        graph, slots = self._differentiable
        return graph.callable(*inputs, *[holder[key] for holder, key in slots])

    def compile(self, args: tuple[Any, ...], freezing: bool) -> _C.CompiledPlan | tuple[str, str]:
        """A plan for inputs like these, or (kind, reason) where there is none."""
        if not self._shown and _C.log_enabled("graph_code"):
            log("graph_code", "captured graph", self._gm.print_readable(print_output=False))
        self._shown = True
        made, symbols = self._plan(args, freezing), self._symbols
        takes_no_float = self._floats and isinstance(made, tuple) and made[0] == "unsupported"
        if self._symbols and isinstance(made, tuple) and not takes_no_float:
            kind, why = made
            self._symbols = {}
            made = self._plan(args, freezing)
            if kind != "unsupported":
                report(self._settings, "static failed", why)
            elif not isinstance(made, tuple):
                report(self._settings, "static", why)
        if isinstance(made, tuple) and made[0] == "unsupported":
            self.capture_code(symbols)
            return "captured", made[1]
        return made

    def _plan(self, args: tuple[Any, ...], freezing: bool) -> _C.CompiledPlan | tuple[str, str]:
        # Anew: it holds the module's attributes of this moment.
        try:
            graph = _C.TorchGraph.from_fx(self._gm, self._floats)
        except _C.Unsupported as e:
            return "unsupported", str(e)
        except Exception as e:
            return "failed", f"{type(e).__name__}: {str(e).partition(chr(10))[0]}"
        return plan(graph, args, self._settings, freezing, self._symbols)


def warn_once(text: str) -> None:
    """Warns, unless the same was said since the last reset."""
    if text not in _said:
        _said.add(text)
        warnings.warn(f"oxyfuel: {text}", stacklevel=2)


def note_once(text: str) -> None:
    """Logs what is no matter of the program's: warnings may be errors to it, or counted."""
    if text not in _said:
        _said.add(text)
        logging.getLogger("oxyfuel").warning("oxyfuel: %s", text)


def _symbols_of(gm: torch.fx.GraphModule, examples: Sequence[Any]) -> dict[int, _Symbols]:
    """What varies of a graph's inputs: as symbolic numbers in the examples, or in those that
    TorchDynamo has traced with."""

    def name(number: Any) -> str | None:
        symbolic = isinstance(number, torch.SymInt) and number.node.maybe_as_int() is None
        # A nested int, of a ragged dimension, has no expression.
        return str(number.node.expr) if symbolic and not number.node.is_nested_int() else None

    def varies(x: Any) -> bool:
        sizes = x.shape if isinstance(x, torch.Tensor) else [x]
        return any(name(n) is not None for n in sizes)

    inputs: dict[int, Any] = {}
    for i, node in enumerate(gm.graph.find_nodes(op="placeholder")):
        found = [*examples[i : i + 1], node.meta.get("example_value")]
        varying = next((x for x in found if varies(x)), None)
        if varying is not None:
            inputs[i] = varying
    tensors = {i: x for i, x in inputs.items() if isinstance(x, torch.Tensor)}
    dims = {
        i: [(d, key) for d, n in enumerate(x.shape) if (key := name(n)) is not None]
        for i, x in tensors.items()
    }
    sizes = {key for found in dims.values() for _, key in found}
    numbers = {i: name(x) for i, x in inputs.items() if i not in tensors}
    return {i: (found, None) for i, found in dims.items()} | {
        i: ([], key if key in sizes else None) for i, key in numbers.items()
    }


def _floats_of(gm: torch.fx.GraphModule) -> list[int]:
    """The inputs that are symbolic floats: TorchDynamo gives them in tensors, and reads them in the
    graph. NumPy's scalars come as tensors, too, and stay such."""

    def is_float(node: torch.fx.Node) -> bool:
        example = node.meta.get("example_value")
        given = getattr(node.meta.get("grapharg"), "pass_arg_as_tensor", False)
        read = all((user.op, user.target) == ("call_method", "item") for user in node.users)
        return (
            given
            and read
            and getattr(example, "dtype", None) == torch.float64
            and example.dim() == 0
        )

    return [i for i, node in enumerate(gm.graph.find_nodes(op="placeholder")) if is_float(node)]


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


def _slot_of(gm: torch.fx.GraphModule, path: str) -> lifted.Slot | None:
    """Where the attribute with this path stands."""
    *owners, name = path.split(".")
    owner: Any = gm
    for part in owners:
        holder = _holder(owner, part)
        if holder is None:
            return None
        owner = holder[part]
    holder = _holder(owner, name)
    return None if holder is None else (holder, name)


def _holder(owner: Any, name: str) -> dict[str, Any] | None:
    """The dict in which an attribute of a module stands."""
    names = ("_parameters", "_buffers", "_modules") if isinstance(owner, torch.nn.Module) else ()
    for holder in [owner.__dict__.get(n) for n in names] + [getattr(owner, "__dict__", None)]:
        if holder is not None and name in holder:
            return holder
    return None
