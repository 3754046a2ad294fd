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
    """Why a graph ended, and where: (file, line, function) of each frame of the user's, innermost last."""

    reason: str
    user_stack: list[tuple[str, int, str]]

    def __str__(self) -> str:
        frames = (
            f'  File "{file}", line {line}, in {name}' for file, line, name in self.user_stack
        )
        return "\n".join([self.reason, *frames])


@dataclass
class Explanation:
    """The names are those of ``torch._dynamo.explain``; times are seconds."""

    graphs: list[torch.fx.GraphModule] = field(default_factory=list)
    break_reasons: list[BreakReason] = field(default_factory=list)
    out_guards: list[str] = field(default_factory=list)
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
        calls = ("call_function", "call_method")
        return [[n.target for n in gm.graph.nodes if n.op in calls] for gm in self.graphs]

    @property
    def op_count(self) -> int:
        return sum(map(len, self.ops_per_graph))

    def __str__(self) -> str:
        lines = [
            f"graphs: {self.graph_count}, breaks: {self.graph_break_count}, ops: {self.op_count}, "
            f"guards: {len(self.out_guards)}",
            f"first call: {self.first_call_seconds * 1e3:.1f} ms, "
            f"of it in the back end: {self.compile_seconds * 1e3:.1f} ms",
        ]
        for i, reason in enumerate(self.break_reasons):
            lines.append(f"break {i + 1}: {reason}")
        for i, gm in enumerate(self.graphs):
            lines += [f"graph {i + 1}: {len(self.ops_per_graph[i])} ops", str(gm.graph).strip()]
        return "\n".join([*lines, "guards:", *self.out_guards])


class _Explainer(Compiler):
    def __init__(self, found: Explanation) -> None:
        super().__init__("native", make_settings(None), False, "explained")
        self.found = found
        self.made: list[Any] = []

    def function(self, fn: Callable[..., Any]) -> Any:
        self.made.append(super().function(fn))
        return self.made[-1]

    def compile(self, graph: _C.TorchGraph, example_inputs: tuple[Any, ...]) -> Callable[..., Any]:
        self.found.graphs.append(torch_graph_to_fx(graph))
        return super().compile(graph, example_inputs)

    def report(self, kind: str, text: str, stack: Any = ()) -> None:
        if kind == "break":
            self.found.break_reasons.append(BreakReason(text, list(stack)))
        super().report(kind, text, stack)


def explain(model: Callable[..., Any]) -> Callable[..., Explanation]:
    """``explain(f)(*args)`` captures and runs the call once and says what became of it.

    Raises what the call raises.
    """

    def run(*args: Any, **kwargs: Any) -> Explanation:
        found = Explanation()
        explainer = _Explainer(found)
        compiled = explainer.compiled(model)
        before, start = stats()["compile_seconds"], time.perf_counter()
        compiled(*args, **kwargs)
        found.first_call_seconds = time.perf_counter() - start
        found.compile_seconds = stats()["compile_seconds"] - before
        functions = [f for made in explainer.made for f in (made, *made.resumed())]
        for function in functions:
            for program in function.guards():
                found.out_guards += program.text().splitlines()
        return found

    return run
