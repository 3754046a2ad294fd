"""What users tell the compiler about sizes: marks on tensors, under the names that torch._dynamo
keeps them by, so that both compilers read the marks of either."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch.utils._pytree import keystr, tree_flatten_with_path

from oxyfuel import _C


class DimRange(NamedTuple):
    """The sizes that a marked dimension may have."""

    dim: int
    min: int | None
    max: int | None


def _mark(t: torch.Tensor, index: int | Sequence[int], name: str) -> list[int]:
    """Adds dimensions to a set that the tensor keeps; the dimensions, counted from the front."""
    if not isinstance(t, torch.Tensor):
        raise TypeError(f"a mark is for a tensor, not a {type(t).__name__}")
    dims = [index] if isinstance(index, int) else list(index)
    for dim in dims:
        if not -t.dim() <= dim < t.dim():
            raise IndexError(f"a tensor of {t.dim()} dimensions has no dimension {dim}")
    dims = [dim % t.dim() for dim in dims]
    if not hasattr(t, name):
        setattr(t, name, set())
    getattr(t, name).update(dims)
    return dims


def mark_dynamic(
    t: torch.Tensor,
    index: int | Sequence[int],
    *,
    min: int | None = None,
    max: int | None = None,
) -> None:
    """The sizes of these dimensions are symbols from the first capture on.

    ``min``, ``max``: which sizes the capture is for. Code that works for one size alone, or for a
    part of this range, is an error: ``ConstraintViolationError``, with the line that made it so;
    and so is a call with a size outside of it. Raises TypeError for what is no tensor, IndexError
    for a dimension that it does not have.
    """
    dims = _mark(t, index, "_dynamo_dynamic_indices")
    if not hasattr(t, "_dynamo_dynamic_range"):
        t._dynamo_dynamic_range = set()
    t._dynamo_dynamic_range.update(DimRange(dim, min, max) for dim in dims)


def maybe_mark_dynamic(t: torch.Tensor, index: int | Sequence[int]) -> None:
    """As :func:`mark_dynamic`, but code that works for one size alone is captured for that size."""
    _mark(t, index, "_dynamo_weak_dynamic_indices")


def mark_static(t: torch.Tensor, index: int | Sequence[int] | None = None) -> None:
    """The sizes of these dimensions, or of all, are numbers in every capture, whatever changes."""
    _mark(t, range(t.dim()) if index is None else index, "_dynamo_static_indices")


def mark_unbacked(t: torch.Tensor, index: int | Sequence[int]) -> None:
    """The sizes of these dimensions are symbols that nothing is decided by: one capture serves all,
    0 and 1 too.

    A branch that depends on one is a graph break, with ``fullgraph=True`` a :class:`GraphBreak`
    error, unless ``torch._check`` has said what holds. Raises TypeError for what is no tensor,
    IndexError for a dimension that it does not have.
    """
    _mark(t, index, "_dynamo_unbacked_indices")


class ConstraintViolationError(RuntimeError):
    """Code works for one size alone of a dimension that was marked with :func:`mark_dynamic`."""


def violation(text: str) -> ConstraintViolationError:
    """What is raised: of torch's class of this name too, where a program has that."""
    theirs = getattr(
        sys.modules.get("torch.fx.experimental.symbolic_shapes"), "ConstraintViolationError", None
    )
    if theirs is None:
        return ConstraintViolationError(text)
    return type("ConstraintViolationError", (ConstraintViolationError, theirs), {})(text)


for _function in (mark_dynamic, maybe_mark_dynamic, mark_static, mark_unbacked):
    _C.set_control(_function, "not_in_graph", None)


def sizes_by_source(
    names: Sequence[str], values: Sequence[Any]
) -> dict[str, tuple[int, ...] | int | float]:
    """The sizes of the tensors in a call's arguments, and the numbers, also those of modules, by
    what guards call them."""
    found: dict[str, tuple[int, ...] | int | float] = {}

    def add(source: str, value: Any) -> None:
        if isinstance(value, torch.Tensor):
            found[source] = tuple(value.shape)
        elif type(value) in (int, float):
            found[source] = value

    for path, value in tree_flatten_with_path(dict(zip(names, values, strict=False)))[0]:
        source = "L" + keystr(path)
        add(source, value)
        if isinstance(value, torch.nn.Module):
            for name, module in value.named_modules():
                inside = f"{source}.{name}" if name else source
                for attribute, number in vars(module).items():
                    add(f"{inside}.{attribute}", number)
    return found


def named_sizes(
    found: dict[str, tuple[int, ...] | int | float], sources: str, values: str
) -> dict[str, list[int] | None]:
    """What of ``found``, by source, the settings ``dynamic_sources`` and ``dynamic_values`` of
    ``torch.compiler.config`` name: dimensions of tensors; ints (None)."""
    named = [re.fullmatch(r"(.*?)(?::(\d+))?", entry.strip()) for entry in sources.split(",")]
    entries = [(m[1], m[2] and int(m[2])) for m in named if m and m[1]]
    numbers = {int(value) for value in values.split(",") if value.strip()}

    def is_named(source: str, dim: int | None) -> bool:
        return any(
            (entry == source or re.match(entry, source)) and (None in (at, dim) or at == dim)
            for entry, at in entries
        )

    out: dict[str, list[int] | None] = {}
    for source, size in found.items():
        if isinstance(size, tuple):
            dims = [d for d, n in enumerate(size) if n in numbers or is_named(source, d)]
            if dims:
                out[source] = dims
        elif isinstance(size, int) and (size in numbers or is_named(source, None)):
            out[source] = None
    return out
