"""What a call is made of: graphs, breaks, guards, ops, times."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from oxyfuel import _C
from oxyfuel.api import Compiler
from oxyfuel.fx import torch_graph_to_fx
from oxyfuel.options import make_settings
from oxyfuel.statistics import stats


@dataclass
class BreakReason:
    """Why a graph ended, and where: (file, line, function) of each frame of the user's, innermost
    last."""

    reason: str
    user_stack: list[tuple[str, int, str]]
    seconds: float = 0.0  # of the first call: from this break to the next one, or to the end

    def __str__(self) -> str:
        frames = (
            f'  File "{file}", line {line}, in {name}' for file, line, name in self.user_stack
        )
        return "\n".join([self.reason, *frames])


def _ops(gm: torch.fx.GraphModule) -> list[Any]:
    return [n.target for n in gm.graph.nodes if n.op in ("call_function", "call_method")]


def _inner_graphs(gm: torch.fx.GraphModule) -> list[torch.fx.GraphModule]:
    """The branches and bodies of loops in it, the innermost first."""
    inside = [m for m in gm.children() if isinstance(m, torch.fx.GraphModule)]
    return [m for gm in inside for m in (*_inner_graphs(gm), gm)]


@dataclass
class Explanation:
    """The names are those of ``torch._dynamo.explain``; times are seconds."""

    graphs: list[torch.fx.GraphModule] = field(default_factory=list)
    inner_graphs: list[torch.fx.GraphModule] = field(default_factory=list)  # of torch.cond, loops
    break_reasons: list[BreakReason] = field(default_factory=list)
    out_guards: list[str] = field(default_factory=list)
    guard_costs: list[float] = field(default_factory=list)  # of each: nanoseconds, looked at alone
    guard_stacks: list[str] = field(default_factory=list)  # of each capture: guards by user's line
    # Of captures with symbolic sizes: what became of each size and varying number, and why.
    dimensions: list[str] = field(default_factory=list)
    recompiles: list[str] = field(default_factory=list)  # the guards that failed, with both values
    guard_nanoseconds: float | None = None  # to check the outermost capture, where it still fits
    first_call_seconds: float = 0.0
    compile_seconds: float = 0.0

    @property
    def graph_count(self) -> int:
        return len(self.graphs)

    @property
    def graph_break_count(self) -> int:
        return len(self.break_reasons)

    @property
    def ops_per_graph(self) -> list[list[Any]]:
        return [_ops(gm) for gm in self.graphs]

    @property
    def op_count(self) -> int:
        return sum(map(len, self.ops_per_graph))

    def titled_graphs(self) -> list[tuple[str, str]]:
        """Title and text of every graph, those inside of others behind these."""
        named = [(f"graph {i + 1}", gm) for i, gm in enumerate(self.graphs)]
        named += [(f"inner graph {i + 1}", gm) for i, gm in enumerate(self.inner_graphs)]
        return [(f"{name}: {len(_ops(gm))} ops", str(gm.graph).strip()) for name, gm in named]

    def __str__(self) -> str:
        lines = [
            f"graphs: {self.graph_count}, breaks: {self.graph_break_count}, ops: {self.op_count}, "
            f"guards: {len(self.out_guards)}",
            f"first call: {self.first_call_seconds * 1e3:.1f} ms, "
            f"of it in the back end: {self.compile_seconds * 1e3:.1f} ms",
        ]
        for i, reason in enumerate(self.break_reasons):
            lines.append(f"break {i + 1}: {reason}")
        for title, text in self.titled_graphs():
            lines += [title, text]
        for text in self.recompiles:
            lines.append(f"captured again: {text}")
        lines += [f"size: {text}" for text in self.dimensions]
        lines.append("guards, the dearest first:")
        return "\n".join([*lines, *(f"{ns:6.1f} ns  {text}" for ns, text in self.guards_by_cost())])

    def guards_by_cost(self) -> list[tuple[float, str]]:
        """Nanoseconds and text of each guard, the dearest first.

        A hit pays less than their sum: of what no write has touched it looks at a version.
        """
        return sorted(zip(self.guard_costs, self.out_guards, strict=True), key=lambda g: -g[0])

    def to_html(self) -> str:
        """All of it as one page."""
        from oxyfuel.explain_page import page

        return page(self)


class _Explainer(Compiler):
    def __init__(self, found: Explanation, dynamic: bool | None) -> None:
        super().__init__("native", make_settings(None), False, "explained", dynamic)
        self.found = found
        self.made: list[Any] = []
        self._since = 0.0

    def function(self, fn: Callable[..., Any]) -> Any:
        self.made.append(super().function(fn))
        return self.made[-1]

    def compile(
        self, graph: _C.TorchGraph, example_inputs: tuple[Any, ...], freezing: bool = True
    ) -> Any:
        self.found.graphs.append(torch_graph_to_fx(graph, runs=False))
        self.found.inner_graphs += _inner_graphs(self.found.graphs[-1])
        return super().compile(graph, example_inputs, freezing)

    def report(self, kind: str, text: str, stack: Any = ()) -> None:
        if kind in ("break", "forbidden break"):
            self.end_of_break()
            self.found.break_reasons.append(BreakReason(text, list(stack)))
        elif kind == "recompile":
            self.found.recompiles.append(text)
        super().report(kind, text, stack)

    def end_of_break(self) -> None:
        """What has passed since the last break was on its account."""
        now = time.perf_counter()
        if self.found.break_reasons:
            self.found.break_reasons[-1].seconds = now - self._since
        self._since = now


def explain(model: Callable[..., Any], dynamic: bool | None = None) -> Callable[..., Explanation]:
    """``explain(f)(*args)`` captures and runs the call once and says what became of it.

    ``dynamic``: as of :func:`oxyfuel.compile`; True tells what a capture with symbolic sizes makes
    of each of them. Raises what the call raises.
    """

    def run(*args: Any, **kwargs: Any) -> Explanation:
        found = Explanation()
        explainer = _Explainer(found, dynamic)
        compiled = explainer.compiled(model)
        before, start = stats()["compile_seconds"], time.perf_counter()
        measured = _C.measure_guards(True)
        try:
            compiled(*args, **kwargs)
        finally:
            _C.measure_guards(measured)
        explainer.end_of_break()
        found.first_call_seconds = time.perf_counter() - start
        found.compile_seconds = stats()["compile_seconds"] - before
        functions = [f for made in explainer.made for f in (made, *made.resumed())]
        for function in functions:
            for program in function.guards():
                found.out_guards += program.text().splitlines()
                found.guard_costs += program.costs()
                found.dimensions += program.dimensions()
                found.guard_stacks.append(program.log_text())
        for function in functions[:1]:  # the outermost
            found.guard_nanoseconds = function.guard_nanoseconds(*args, **kwargs)
        return found

    return run
