"""Mode max-autotune: a graph planned in several ways, each timed on the inputs at hand."""

from __future__ import annotations

import sys
from typing import Any

from oxyfuel import _C

# What is tried, one row after the other, each on top of the best so far.
_CHOICES = (("products", ("auto", "onednn", "aten")), ("streaming_stores", ("True", "False")))
_BUDGET = 1.0  # seconds of timing a row


def fastest_plan(
    graph: _C.TorchGraph, args: tuple[Any, ...], settings: _C.Settings, passes: list[Any]
) -> _C.CompiledPlan:
    """The fastest of the plans that differ in how products run and how large outputs are written; prints the table."""
    recording = graph.captured_recording(args) or _C.record(graph, args)

    def plan_with(chosen: dict[str, str]) -> _C.CompiledPlan:
        changed = settings.copy()
        for name, value in chosen.items():
            changed.set(name, value)
        return _C.make_plan(recording, graph, args, changed, passes)

    best: dict[str, str] = {}
    lines = []
    for name, values in _CHOICES:
        plans = [plan_with({**best, name: value}) for value in values]
        times = _C.time_plans(plans, args, _BUDGET)
        fastest = min(range(len(values)), key=times.__getitem__)
        best[name] = values[fastest]
        for i, (value, seconds) in enumerate(zip(values, times)):
            mark = " (kept)" if i == fastest else ""
            lines.append(f"{name}={value:<8} {seconds * 1e3:10.4f} ms{mark}")
    text = "\n".join(lines)
    if _C.log_enabled("autotuning"):
        _C.log("autotuning", "ways that were tried", text)
    else:
        print(f"oxyfuel autotune\n{text}", file=sys.stderr)
    return plans[fastest]
