"""The backend of ``torch.compile(fn, backend="oxyfuel")``."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from oxyfuel.compiler import compile_fx
from oxyfuel.options import options_of_mode

_GROUP = "torch_dynamo_backends"  # where torch looks for backends that are installed


def oxyfuel_backend(
    gm: torch.fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
    **_: Any,
) -> Callable[..., Any]:
    """Compiles what TorchDynamo captured; called by torch.compile.

    ``mode`` and ``options`` are those of :func:`oxyfuel.compile`.
    """
    return compile_fx(gm, example_inputs, options=options_of_mode(mode, options))


def register() -> None:
    """Makes the backend known to torch.

    An installed package is found through its entry point when it is asked for, so that importing
    Oxyfuel need not import TorchDynamo; a folder on sys.path has no entry point and registers here.
    """
    try:
        installed = importlib.metadata.distribution("oxyfuel").entry_points
    except importlib.metadata.PackageNotFoundError:
        installed = importlib.metadata.EntryPoints()
    if installed.select(group=_GROUP, name="oxyfuel"):
        return
    import torch._dynamo

    torch._dynamo.register_backend(oxyfuel_backend, name="oxyfuel")
