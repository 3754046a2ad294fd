"""oxyfuel.compile: a function or module captured by Oxyfuel's own front end."""

from __future__ import annotations

import functools
import inspect
import time
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch

from oxyfuel import _C, compiler, statistics
from oxyfuel.compiled_module import compiled_module
from oxyfuel.compiler import captured_functions, note_once
from oxyfuel.controls import graph_break
from oxyfuel.fx import torch_graph_to_fx, with_user_lines
from oxyfuel.logs import log
from oxyfuel.options import make_settings, options_of_mode
from oxyfuel.shapes import violation

_BACKENDS = ("aot_eager", "eager", "native")
_DYNAMIC = {False: 0, None: 1, True: 2}
_BARRED = 3  # no symbols at all


class GraphBreak(RuntimeError):
    """What ``fullgraph=True`` raises where a function cannot be captured as one graph."""


def _graph_break(text: str) -> GraphBreak:
    """What is raised: an Unsupported of torch._dynamo's too."""
    from torch._dynamo.exc import Unsupported

    made = type("GraphBreak", (GraphBreak, Unsupported), {"__init__": RuntimeError.__init__})(text)
    made.msg = text
    return made


def list_backends() -> list[str]:
    """The names that ``compile(backend=...)`` takes."""
    return list(_BACKENDS)


def compile(
    model: Callable[..., Any] | None = None,
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend: str | Callable[..., Any] = "native",
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
    disable: bool = False,
    name: str | None = None,
    recompile_limit: int | None = None,
) -> Any:
    """A callable that does what ``model`` does, faster; also a decorator, with and without
    arguments.

    ``model``: a Python function or a ``torch.nn.Module``. A module's counterpart has its class as a
    base and its attributes, state and hooks.

    - ``fullgraph``: raise :class:`GraphBreak` where the function cannot be one graph, instead of
      running it in eager
    - ``dynamic``: ``None``: sizes and ints are numbers at first, and those that were others at a
      later call are symbols from then on, so that one compilation serves all; ``True``: all sizes
      but those of parameters and buffers are symbols at once; ``False``: each combination of sizes
      has a compilation of its own. See :func:`oxyfuel.mark_dynamic` for single dimensions
    - ``backend``: "native"; "eager" runs the captured Torch IR in torch; "aot_eager" runs the ATen
      graph op by op; or a callable that takes ``(torch.fx.GraphModule, example_inputs)`` and
      returns what is called with the inputs
    - ``mode``: "max-autotune" (or "max-autotune-no-cudagraphs") tries several ways on the first
      call's inputs, prints their times and keeps the fastest; "lite" makes no kernels;
      "reduce-overhead" is "default" on the CPU
    - ``options``: those of :func:`oxyfuel.known_options`, in place of a mode
    - ``disable``: give ``model`` back; ``name``: for logs
    - ``recompile_limit``: how many captures there may be; other calls run in eager, with
      ``fullgraph`` they raise. ``None``: 8, or what ``torch._dynamo.config`` says where a program
      has imported it

    Raises TypeError for what cannot be called, ValueError for an unknown backend, mode or option.
    """
    if model is None:
        return functools.partial(
            compile,
            fullgraph=fullgraph,
            dynamic=dynamic,
            backend=backend,
            mode=mode,
            options=options,
            disable=disable,
            name=name,
            recompile_limit=recompile_limit,
        )
    if not callable(model):
        raise TypeError(
            f"oxyfuel.compile takes a function or a module, not a {type(model).__name__}"
        )
    if dynamic not in (None, True, False):
        raise TypeError("dynamic is None, True or False")
    if not callable(backend) and backend not in _BACKENDS:
        raise ValueError(
            f"unknown backend {backend!r}; known: {', '.join(_BACKENDS)}, or a callable"
        )
    settings = make_settings(options_of_mode(mode, options))
    if disable or settings.get("disable") == "True" or _is_disabled(model):
        return model
    if backend == "aot_eager":
        settings.set("kernels", "False")
    name = name or _name_of(model)
    return Compiler(backend, settings, fullgraph, name, dynamic, recompile_limit).compiled(model)


def capture_everything() -> None:
    """From now on every Python function that is called is captured, torch's and Oxyfuel's own
    apart; its graphs run in torch. A test of the front end: slow, and as right as ``compile``
    is."""
    everything = _Everything("eager", make_settings({}), False, "everything")
    _C.compile_everything_like(everything.function(graph_break))


def _name_of(model: Callable[..., Any]) -> str:
    return getattr(model, "__name__", None) or type(model).__name__


def _is_disabled(model: Callable[..., Any]) -> bool:
    """Whether `oxyfuel.disable` or `torch.compiler.disable` has marked it."""
    marks = ("_oxyfuel_disable", "_torchdynamo_disable")
    return any(getattr(model, mark, False) is True for mark in marks)


def _plain_function(target: Callable[..., Any]) -> Callable[..., Any]:
    """A function of Python that does what ``target`` does."""
    if isinstance(target, _C.CompiledFunction):
        return target.__wrapped__
    if inspect.isfunction(target):
        return target

    @functools.wraps(target, updated=())
    def call(*args: Any, **kwargs: Any) -> Any:
        return target(*args, **kwargs)

    return call


class Compiler:
    """One call of compile: how graphs become callables, and what is said on the way."""

    def __init__(
        self,
        backend: Any,
        settings: _C.Settings,
        fullgraph: bool,
        name: str,
        dynamic: bool | None = False,
        recompile_limit: int | None = None,
    ) -> None:
        # Other backends take graphs of known sizes.
        self._dynamic = _DYNAMIC[dynamic] if backend == "native" else _BARRED
        self._backend = backend
        self._settings = settings
        self._fullgraph = fullgraph
        self._recompile_limit = recompile_limit or 0
        self._name = name
        self._place = ""  # of the function, as torch.compile says it
        self._strict = settings.get("strict") == "True"

    def compiled(self, model: Callable[..., Any]) -> Any:
        """What `compile` returns for a function, a method, a module or any other callable."""
        if isinstance(model, torch.nn.Module):
            return compiled_module(model, self.function(_plain_function(type(model).__call__)))
        if inspect.ismethod(model):
            return self.function(_plain_function(model.__func__)).__get__(model.__self__)
        return self.function(_plain_function(model))

    def function(self, fn: Callable[..., Any]) -> Any:
        code = fn.__code__
        self._place = (
            f"filename: '{code.co_filename}', function name: '{code.co_name}', "
            f"line number: {code.co_firstlineno}"
        )
        made = _C.CompiledFunction(
            fn,
            self.compile,
            self.report,
            self._fullgraph,
            self._recompile_limit,
            int(self._settings.get("break_at")),
            self._dynamic,
        )
        captured_functions.add(made)
        return made

    def compile(
        self, graph: _C.TorchGraph, example_inputs: tuple[Any, ...], freezing: bool = True
    ) -> Any:
        """What runs the captured graph by the chosen backend: a plan, (kind, reason) where there is
        none, the graph itself for its functions called one by one, or a callable."""
        statistics.count("graphs")
        if _C.log_enabled("graph_code"):
            gm = torch_graph_to_fx(graph, runs=False)
            readable = gm.print_readable(print_output=False)
            log("graph_code", f"captured graph of {self._name}", readable)
        if self._backend in ("native", "aot_eager"):
            return compiler.plan(graph, example_inputs, self._settings, freezing)
        graph.forget_recording()
        if self._backend == "eager":
            return graph
        start = time.perf_counter()
        gm = torch_graph_to_fx(graph)
        made = self._backend(gm, list(example_inputs))
        statistics.count("compile_seconds", time.perf_counter() - start)
        if not callable(made):
            raise TypeError(f"the backend returned a {type(made).__name__}, not a callable")
        return with_user_lines(made, gm)

    def report(self, kind: str, text: str, stack: Any = ()) -> None:
        """Told by the callable what happened; what this raises, the call raises."""
        where = "".join(f'\n  File "{file}", line {line}, in {name}' for file, line, name in stack)
        if kind in ("break", "forbidden break"):
            statistics.count("graph_breaks")
            log("graph_breaks", f"graph break in {self._name}", text + where)
            if kind == "forbidden break":
                raise _graph_break(f"{text}{where}")
        elif kind == "refused":
            raise RuntimeError(
                "Detected recompile when torch.compile stance is 'fail_on_recompile'. "
                + self._place
                + (
                    f"\n    triggered by the following guard failure(s):\n    - {text}"
                    if text
                    else ""
                )
            )
        elif kind == "bytecode":
            log("bytecode", self._name, text)
        elif kind == "guards":
            log("guards", f"guards of {self._name}", text)
        elif kind == "dimension":
            log("dynamic", self._name, text)
        elif kind == "violation":
            raise violation(text)
        elif kind == "relied":
            statistics.count("unmet_checks")
            log("dynamic", f"a call of {self._name} runs in eager", text)
        elif kind == "recompile":
            statistics.count("recompiles")
            log("recompiles", f"{self._name} is captured again", text)
        elif kind == "limit":
            note_once(f"{self._name} has {text}")
        elif kind in ("forbidden recompile", "forbidden limit"):
            from torch._dynamo import exc

            if kind == "forbidden recompile":
                raise exc.RecompileError(f"Recompiling {self._name}, {self._place}: {text}")
            cause = "fullgraph=True" if self._fullgraph else "fail_on_recompile_limit_hit"
            raise exc.FailOnRecompileLimitHit(
                f"Hard failure due to {cause}: {self._name} has {text}"
            )
        elif kind == "suppressed":
            statistics.count("fallbacks")
            note_once(f"{self._name} runs in eager: its compilation raised {text}")
        elif kind in (
            "note",
            "thawed",
            "grad",
            "unsupported",
            "failed graph",
            "static",
            "static failed",
        ):
            compiler.report(self._settings, kind, text + where, self._name)
        elif kind == "failed":
            statistics.count("fallbacks")
            if self._strict:
                raise _C.InternalError(text)
            warnings.warn(
                f"oxyfuel: {self._name} runs in eager after an internal failure: {text}. "
                "OXYFUEL_STRICT=1 raises the error",
                stacklevel=2,
            )


class _Everything(Compiler):
    """Of functions that nobody asked to compile: nobody is told that one is captured no more."""

    def report(self, kind: str, text: str, stack: Any = ()) -> None:
        if kind != "limit":
            super().report(kind, text, stack)
