"""Oxyfuel: the torch.compile stack in C++.

Importing it makes ``torch.compile(fn, backend="oxyfuel")`` available. Calls that Oxyfuel cannot
compile, or that go wrong inside it, run in eager and give eager's result; a warning says so once.

Environment: ``OXYFUEL_STRICT=1`` raises internal failures, ``OXYFUEL_DISABLE=1`` compiles nothing,
``OXYFUEL_LOGS`` names artefacts to print (see :func:`set_logs`), ``OXYFUEL_CAPTURE=all`` captures
every function that the process calls (for tests of the front end); :func:`known_options` lists the
rest.
"""

import os
import sys

if not (3, 10) <= sys.version_info < (3, 14):
    raise ImportError(
        f"Oxyfuel captures code of CPython 3.10 to 3.13; this is {sys.version.split()[0]}"
    )
if "t" in sys.abiflags:
    raise ImportError(
        f"Oxyfuel needs the GIL; this is a free-threaded build of CPython {sys.version.split()[0]}"
    )

from oxyfuel.extension import _C

# isort: split
from oxyfuel.accelerate import register_with_accelerate
from oxyfuel.api import GraphBreak, capture_everything, compile, list_backends
from oxyfuel.backend import oxyfuel_backend, register
from oxyfuel.compiler import compile_fx, reset
from oxyfuel.configuration import show_config
from oxyfuel.controls import (
    allow_in_graph,
    assume_constant_result,
    disable,
    disallow_in_graph,
    error_on_graph_break,
    graph_break,
    is_compiling,
    keeps_values,
    nested_compile_region,
    set_stance,
    substitute_in_graph,
)
from oxyfuel.explain import explain
from oxyfuel.logs import set_logs
from oxyfuel.options import known_options
from oxyfuel.passes import (
    register_pass,
    register_replacement,
    registered_passes,
    unregister_pass,
)
from oxyfuel.shapes import (
    ConstraintViolationError,
    mark_dynamic,
    mark_static,
    mark_unbacked,
    maybe_mark_dynamic,
)
from oxyfuel.statistics import stats

InternalError = _C.InternalError
Unsupported = _C.Unsupported
UserError = _C.UserError

__all__ = [
    "ConstraintViolationError",
    "GraphBreak",
    "InternalError",
    "Unsupported",
    "UserError",
    "allow_in_graph",
    "assume_constant_result",
    "compile",
    "compile_fx",
    "disable",
    "disallow_in_graph",
    "error_on_graph_break",
    "explain",
    "graph_break",
    "is_compiling",
    "keeps_values",
    "known_options",
    "list_backends",
    "mark_dynamic",
    "mark_static",
    "mark_unbacked",
    "maybe_mark_dynamic",
    "nested_compile_region",
    "oxyfuel_backend",
    "register_pass",
    "register_replacement",
    "register_with_accelerate",
    "registered_passes",
    "reset",
    "set_logs",
    "set_stance",
    "show_config",
    "stats",
    "substitute_in_graph",
    "unregister_pass",
]
__version__ = "0.1.0"

register()
if os.environ.get("OXYFUEL_CAPTURE") == "all":
    capture_everything()
