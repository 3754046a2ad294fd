"""Runs a program of the user's with ``torch.compile`` replaced by ``oxyfuel.compile``."""

from __future__ import annotations

import functools
import importlib.machinery
import importlib.util
import io
import multiprocessing
import multiprocessing.spawn
import os
import sys
import types
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch

from oxyfuel.api import compile as oxyfuel_compile
from oxyfuel.options import known_options

_NATIVE = (None, "inductor", "oxyfuel")  # torch.compile's backends that mean Oxyfuel's own here


def torch_compile(
    model: Callable[..., Any] | None = None,
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend: str | Callable[..., Any] | None = None,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
    name: str | None = None,
    disable: bool = False,
    **rest: Any,
) -> Any:
    """``torch.compile`` by Oxyfuel: the same arguments, with the same meaning.

    Options of Inductor's and arguments that only TorchDynamo knows are left out, with a warning.
    """
    ours = {row.name for row in known_options()}
    foreign = [*rest, *(f"options[{key!r}]" for key in options or {} if key not in ours)]
    if foreign:
        warnings.warn(
            f"oxyfuel: torch.compile's {', '.join(foreign)} has no meaning here", stacklevel=2
        )
    return oxyfuel_compile(
        model,
        fullgraph=fullgraph,
        dynamic=dynamic,
        backend="native" if backend in _NATIVE else backend,
        mode=mode,
        options={key: value for key, value in (options or {}).items() if key in ours} or None,
        disable=disable,
        name=name,
    )


def replace_torch_compile() -> None:
    """From now on ``torch.compile``, and with it ``torch.nn.Module.compile``, is
    :func:`torch_compile`; so it is in the processes that multiprocessing starts from here."""
    torch.compile = functools.wraps(torch.compile)(torch_compile)
    prepare = multiprocessing.spawn.get_preparation_data

    @functools.wraps(prepare)
    def get_preparation_data(name: str) -> dict[str, Any]:
        return {**prepare(name), "oxyfuel": _Replacement()}

    multiprocessing.spawn.get_preparation_data = get_preparation_data
    # By itself the fork server imports the program before it is told anything.
    multiprocessing.set_forkserver_preload([])


class _Replacement:
    """Part of what a process is told before it imports the program: read, it replaces."""

    def __reduce__(self) -> tuple[Callable[[], None], tuple[()]]:
        return replace_torch_compile, ()


def run_path(path: str, arguments: list[str]) -> None:
    """As ``python path arguments...``: a file, or a folder or archive with a ``__main__``."""
    sys.argv = [path, *arguments]
    if not os.path.exists(path):
        _leave(2, f"can't open file {os.path.abspath(path)!r}: [Errno 2] No such file or directory")
    if os.path.isfile(path) and not _is_archive(path):
        _change_first_path(os.path.dirname(os.path.realpath(path)))
        file = os.path.abspath(path)
        with io.open_code(file) as source:
            code = compile(source.read(), file, "exec", dont_inherit=True)
        _run(code, None, file)
    else:
        _change_first_path(os.path.abspath(path))
        _run_spec(importlib.machinery.PathFinder.find_spec("__main__", [sys.path[0]]), path)


def run_module(name: str, arguments: list[str]) -> None:
    """As ``python -m name arguments...``."""
    sys.argv = ["-m", *arguments]
    spec = importlib.util.find_spec(name)
    if spec is not None and spec.submodule_search_locations is not None:
        name = f"{name}.__main__"
        spec = importlib.util.find_spec(name)
    if spec is not None:
        sys.argv[0] = spec.origin or "-m"
    _run_spec(spec, name)


def _leave(status: int, why: str) -> None:
    print(f"{sys.executable} -m oxyfuel: {why}", file=sys.stderr)
    sys.exit(status)


def _is_archive(path: str) -> bool:
    return importlib.machinery.PathFinder.find_spec("__main__", [path]) is not None


def _change_first_path(folder: str) -> None:
    """``python -m`` has put the current folder there, unless it was told not to (-P)."""
    if not getattr(sys.flags, "safe_path", False):  # 3.11
        sys.path[0] = folder


def _run_spec(spec: importlib.machinery.ModuleSpec | None, name: str) -> None:
    get_code = getattr(spec and spec.loader, "get_code", None)
    code = get_code(spec.name) if get_code else None
    if code is None:
        _leave(1, f"No module to run: {name!r}")
    _run(code, spec, spec.origin)


def _run(
    code: types.CodeType, spec: importlib.machinery.ModuleSpec | None, file: str | None
) -> None:
    main = types.ModuleType("__main__")
    main.__dict__.update(
        __annotations__={},
        __builtins__=sys.modules["builtins"],
        __file__=file,
        __cached__=None,
        __spec__=spec,
        __loader__=spec.loader
        if spec
        else importlib.machinery.SourceFileLoader("__main__", file or ""),
    )
    if spec:
        main.__package__ = spec.parent
    sys.modules["__main__"] = main
    exec(code, main.__dict__)
