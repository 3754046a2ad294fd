"""An Explanation as one page of HTML, without anything from elsewhere."""

from __future__ import annotations

import html
import linecache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from oxyfuel.explain import BreakReason, Explanation

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 72em; padding: 0 1em;
  color: #222; }
table { border-collapse: collapse; }
td, th { border-bottom: 1px solid #ddd; padding: .3em .8em; text-align: left; }
td.number { text-align: right; } pre { background: #f6f6f4; padding: .8em; overflow-x: auto; }
.mark { color: #b00; } details > summary { cursor: pointer; }
"""


def page(found: Explanation) -> str:
    """The whole page."""
    parts = [_summary(found), _breaks(found), _recompiles(found), _guards(found), _graphs(found)]
    return (
        "<!doctype html><html lang='en'><meta charset='utf-8'><title>oxyfuel.explain</title>"
        f"<style>{_STYLE}</style><body><h1>What became of the "
        f"call</h1>{''.join(parts)}</body></html>\n"
    )


def _summary(found: Explanation) -> str:
    rows = {
        "graphs": found.graph_count,
        "graph breaks": found.graph_break_count,
        "recompiles": len(found.recompiles),
        "ops": found.op_count,
        "guards": len(found.out_guards),
        "first call": f"{found.first_call_seconds * 1e3:.1f} ms",
        "of it in the back end": f"{found.compile_seconds * 1e3:.1f} ms",
    }
    if found.guard_nanoseconds is not None:
        rows["the guards of a hit"] = f"{found.guard_nanoseconds:.0f} ns"
    cells = (f"<tr><th>{k}</th><td class='number'>{v}</td></tr>" for k, v in rows.items())
    return f"<table>{''.join(cells)}</table>"


def _breaks(found: Explanation) -> str:
    out = ["<h2>Graph breaks, the dearest first</h2>"]
    for reason in sorted(found.break_reasons, key=lambda r: -r.seconds):
        out.append(
            f"<h3>{reason.seconds * 1e3:.1f} ms of the first "
            f"call</h3><p>{html.escape(reason.reason)}</p>" + _stack(reason)
        )
    return "".join(out if found.break_reasons else [*out, "<p>none</p>"])


def _stack(reason: BreakReason) -> str:
    """The user's frames; of the innermost one the lines around, with the statement marked."""
    frames = "".join(
        f"<li>{html.escape(name)} in {html.escape(file)}, line {line}</li>"
        for file, line, name in reason.user_stack
    )
    return f"<ul>{frames}</ul>" + (_source(*reason.user_stack[-1][:2]) if frames else "")


def _source(file: str, line: int) -> str:
    shown = []
    for number in range(max(1, line - 2), line + 3):
        text = linecache.getline(file, number).rstrip("\n")
        if not text:
            continue
        shown.append(f"{number:5} {html.escape(text)}")
        if number == line:
            start = len(text) - len(text.lstrip())
            shown.append(f"<span class='mark'>{' ' * (6 + start)}{'^' * len(text.strip())}</span>")
    return f"<pre>{chr(10).join(shown)}</pre>" if shown else ""


def _recompiles(found: Explanation) -> str:
    items = "".join(f"<pre>{html.escape(text)}</pre>" for text in found.recompiles)
    return f"<h2>Recompiles: what was no longer as it was</h2>{items or '<p>none</p>'}"


def _guards(found: Explanation) -> str:
    items = "".join(
        f"<details><summary>{len(text.splitlines())} "
        f"lines</summary><pre>{html.escape(text)}</pre></details>"
        for text in found.guard_stacks
    )
    costs = "".join(
        f"<tr><td class='number'>{ns:.1f} ns</td><td>{html.escape(text)}</td></tr>"
        for ns, text in found.guards_by_cost()
    )
    return (
        f"<h2>Guards, the dearest first</h2><table>{costs}</table>"
        f"<h2>Guards, and the lines that asked for them</h2>{items or '<p>none</p>'}"
    )


def _graphs(found: Explanation) -> str:
    out = ["<h2>Graphs</h2>"]
    for title, text in found.titled_graphs():
        out.append(f"<details><summary>{title}</summary><pre>{html.escape(text)}</pre></details>")
    return "".join(out)
