"""What Oxyfuel has done in this process."""

from __future__ import annotations

import threading
from typing import Any

from oxyfuel import _C

_COUNTERS = (
    "graphs",
    "plans",
    "kernels",
    "extern_calls",
    "moved_bytes",
    "fallbacks",
    "grad_fallbacks",
    "unsupported",
    "layout_copies",
    "graph_breaks",
    "recompiles",
    "static_captures",
    "unmet_checks",
    "thaws",
)
_lock = threading.Lock()
_values: dict[str, float] = {}


def count(name: str, amount: float = 1) -> None:
    """Adds to a counter."""
    with _lock:
        _values[name] = _values.get(name, 0) + amount


def clear() -> None:
    """Sets every counter to 0."""
    with _lock:
        _values.clear()


def stats() -> dict[str, Any]:
    """Counters since the start of the process or the last :func:`oxyfuel.reset`.

    - ``graphs``: graphs handed to Oxyfuel; ``plans``: compiled for particular sizes and dtypes
    - ``kernels``, ``extern_calls``: steps of these plans; ``moved_bytes``: what their kernels read
      and write; ``compile_seconds``: spent making them
    - ``fallbacks``: calls that ran in eager after a failure of Oxyfuel's own; ``unsupported`` and
      ``grad_fallbacks``: calls that ran in eager because of their inputs, or because gradients are
      needed
    - ``layout_copies``: results of ops that were not laid out as predicted
    - ``graph_breaks``: places where a graph ended early; ``recompiles``: captured again for other
      arguments; ``static_captures``: functions whose sizes are numbers although they vary, since
      they cannot be symbols (log ``dynamic``); ``unmet_checks``: calls that ran in eager since
      sizes or numbers of data were others than the graph is for, or an op raised on the data what
      the code handles; ``thaws``: plans dropped since a
      parameter that they took as a constant has changed
    - ``pool_bytes``, ``pool_live_bytes``: memory for large outputs, idle and in use
    """
    with _lock:
        result: dict[str, Any] = {name: int(_values.get(name, 0)) for name in _COUNTERS}
        result["compile_seconds"] = _values.get("compile_seconds", 0.0)
    pool = _C.pool_stats()
    result["pool_bytes"] = pool["cached_bytes"]
    result["pool_live_bytes"] = pool["live_bytes"]
    return result
