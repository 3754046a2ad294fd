"""What TorchDynamo captures for an entry of the corpus, and whether a compiled entry behaves as in
eager."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable
from typing import Any

import torch
import torch._dynamo
from corpus import Entry
from graph_form import NormalCall, as_text, normalise
from snapshot import Outcome, outcome, outcome_differences

Compiler = Callable[[Callable[..., Any]], Callable[..., Any]]
CALLS = (
    3  # the first captures, the second finds changed state, the third should find what was compiled
)


def dynamo_graphs(entry: Entry) -> list[torch.fx.GraphModule]:
    """The graphs that one call captures, in order; a break where none is meant is an error."""
    return collected(
        entry,
        lambda function, backend: torch.compile(
            function, backend=backend, fullgraph=not may_break(entry), dynamic=False
        ),
    )


def collected(entry: Entry, compiler) -> list[torch.fx.GraphModule]:
    """The graphs that `compiler(function, backend)` hands to its backend in one call."""
    graphs: list[torch.fx.GraphModule] = []

    def backend(gm, example_inputs, **_):
        graphs.append(gm)
        return gm.forward

    function, args, kwargs = entry.make()
    torch._dynamo.reset()
    run = compiler(function, backend)
    with grad_mode(entry), contextlib.redirect_stdout(io.StringIO()):
        with contextlib.suppress(Exception) if may_break(entry) else contextlib.nullcontext():
            run(*args, **kwargs)
    return graphs


def may_break(entry: Entry) -> bool:
    return entry.breaks or entry.beyond_dynamo


def grad_mode(entry: Entry):
    return torch.enable_grad() if entry.grad else torch.no_grad()


def graph_differences(entry: Entry, expected, actual) -> str:
    """Empty when two lists of graphs hold the same calls.

    A graph without calls counts as none. Where breaks are meant, a front end may cut elsewhere:
    there only the sequence of targets counts.
    """
    ours, theirs = _normalised(actual), _normalised(expected)
    if entry.breaks:
        same = targets(ours) == targets(theirs)
    else:
        same = ours == theirs
    if same:
        return ""
    texts = ["\n\n".join(map(as_text, graphs)) for graphs in (theirs, ours)]
    return f"expected\n{texts[0]}\n\ngot\n{texts[1]}"


def _normalised(graphs) -> list[list[NormalCall]]:
    return [calls for calls in map(normalise, graphs) if any(c.kind != "output" for c in calls)]


def targets(graphs: list[list[NormalCall]]) -> list[tuple[str, str]]:
    return [(c.kind, c.target) for calls in graphs for c in calls if c.kind != "output"]


def value_differences(entry: Entry, compiler: Compiler) -> list[str]:
    """Calls in eager, then compiled, several times on the same state; what differs, the first time
    it does."""
    expected = _outcomes(entry, lambda function: function)
    actual = _outcomes(entry, compiler)
    for call in range(CALLS):
        found = outcome_differences(expected[call], actual[call])
        if found:
            return [f"call {call + 1}: {d}" for d in found]
    return []


def _outcomes(entry: Entry, compiler: Compiler) -> list[Outcome]:
    made = entry.make()
    run = compiler(made.function)
    torch.manual_seed(1)
    with grad_mode(entry):
        return [outcome(run, *made) for _ in range(CALLS)]
