"""oxyfuel._C, loaded where it fits this Python and this torch.

Where it does not, importing this module says why in one sentence: an extension that is loaded
beside another torch than its own may fail at any place.
"""

from __future__ import annotations

import importlib.machinery
import pathlib
import platform

import torch

__all__ = ["_C"]

_FOLDER = pathlib.Path(__file__).parent
_BUILD = "a checkout's `pip wheel .` builds one"


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


def _why_not() -> str:
    """Why it must not be loaded; empty where it may."""
    suffix = importlib.machinery.EXTENSION_SUFFIXES[0]
    if not (_FOLDER / f"_C{suffix}").exists():
        there = ", ".join(sorted(file.name for file in _FOLDER.glob("_C.*.so"))) or "none"
        return (
            f"it has no extension for Python {platform.python_version()} (_C{suffix}; there is "
            f"{there}): install its wheel for this Python; {_BUILD}"
        )
    built_for = (_FOLDER / f"_C{suffix}").with_suffix(".torch").read_text()
    if _minor(built_for) != _minor(torch.__version__):
        return (
            f"it is built for torch {_minor(built_for)}, and this is torch {torch.__version__}: "
            f"install its wheel for this torch; {_BUILD}"
        )
    return ""


if _reason := _why_not():
    raise ImportError(f"Oxyfuel cannot be imported: {_reason}")
try:
    from oxyfuel import _C
except ImportError as error:
    _reason = "its extension cannot be loaded"
    if "undefined symbol" in str(error):
        _reason = (
            f"its extension does not fit torch {torch.__version__} as it is here (built from "
            f"source with other flags?), and {_BUILD} that does"
        )
    raise ImportError(f"Oxyfuel cannot be imported: {_reason} ({error})") from error
