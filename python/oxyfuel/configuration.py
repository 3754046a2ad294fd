"""What a bug report needs to know of this process."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sys
from typing import TextIO

import torch

from oxyfuel import _C
from oxyfuel.options import known_options

# Packages that capture knows more of than of others, or that bring a compiler of their own.
_PACKAGES = ("numpy", "transformers", "triton", "numba", "jax", "torchao")


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _described(settings: _C.Settings) -> list[str]:
    """A line each: name, value, where it came from."""
    lines = []
    for option in known_options():
        value = settings.get(option.name) or '""'
        given = option.environment and os.environ.get(option.environment)
        lines.append(f"  {option.name} = {value}  ({option.environment if given else 'default'})")
    return lines


def show_config(file: TextIO | None = None) -> None:
    """Prints, for a bug report, versions, the machine that kernels are made for, the compiler, and
    each setting with where its value came from.

    ``file``: where to, stdout if left out. Raises UserError (a ValueError) for a variable of the
    environment with a value that its setting cannot have.
    """
    from oxyfuel import __version__

    settings = _C.Settings.from_env()
    lines = [
        f"oxyfuel {__version__} in {os.path.dirname(__file__)}",
        f"Python {sys.version.split()[0]} ({platform.python_compiler()})",
        f"torch {torch.__version__} ({torch.version.git_version[:12]}), "
        f"{torch.get_num_threads()} threads, CUDA {torch.version.cuda or 'not built in'}",
        ", ".join(f"{package} {_version(package)}" for package in _PACKAGES),
        f"{platform.platform()}, {platform.libc_ver()[0]} {platform.libc_ver()[1]}",
        f"machine: {_C.machine_text()}",
        f"compiler: {_C.compiler_text(settings)}",
        "settings:",
        *_described(settings),
    ]
    print("\n".join(lines), file=file)
