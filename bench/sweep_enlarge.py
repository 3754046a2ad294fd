"""The sweep's sizes, dtypes and layouts, and the rule that makes a tiny sample as large as wanted.

A sample is any tree of tensors and numbers that a call takes. Dimensions of the same length are
taken to be one dimension and are scaled together, in the tensors and, in another try, in the
integers beside them as well (shapes, features of a constructor). What comes out is tried in eager:
an op that refuses one way of scaling is asked the next one, down to more of a single dimension.
Values are the sample's own, repeated, so that they stay in the op's domain; integers that index
something of another dtype are spread over the larger dimension.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
import torch.utils._pytree as pytree

from oxyfuel import _C

DTYPES: dict[str, torch.dtype] = {
    "f32": torch.float32,
    "f64": torch.float64,
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "i64": torch.int64,
    "i32": torch.int32,
    "u8": torch.uint8,
    "bool": torch.bool,
}
MOST_SCALE = 1 << 26
LAST_LEVEL_MOST = 32 << 20  # a larger one is shared with others
SECONDS_MOST = 2.0  # of eager; what takes longer is not timed at this size


class Skip(Exception):
    """A row that cannot be made; the message says why."""


class Call(NamedTuple):
    """What a row times: a function (or module) and its arguments."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    text: str = ""  # what the name does not say


def cache_bytes(level: str) -> int:
    """Of a cache of this machine, as kernels are made for it."""
    found = re.search(rf"\b{level} (\d+)([KM])", _C.machine_text())
    return int(found[1]) << {"K": 10, "M": 20}[found[2]] if found else 1 << 20


def sizes() -> dict[str, int]:
    """Bytes of a call: in the second-level cache, in the last level, four times that."""
    last = min(cache_bytes("l3"), LAST_LEVEL_MOST) // 2
    return {"l2": cache_bytes("l2") // 2, "l3": last, "memory": 4 * last}


def tensors_in(tree: Any) -> list[torch.Tensor]:
    """The tensors of a tree."""
    return [x for x in pytree.tree_leaves(tree) if isinstance(x, torch.Tensor)]


def bytes_of(tree: Any) -> int:
    """Of the memory that its tensors span, each storage once."""
    spans = {}
    for t in tensors_in(tree):
        if t.layout == torch.strided and t.numel():
            reach = 1 + sum((n - 1) * s for n, s in zip(t.shape, t.stride()))
            key = t.untyped_storage().data_ptr()
            span = min(reach, t.numel()) * t.element_size()
            spans[key] = max(spans.get(key, 0), span)
    return sum(spans.values())


# ---- layouts ----


def transposed(t: torch.Tensor) -> torch.Tensor | None:
    """The last two dimensions swapped in memory."""
    return t.mT.contiguous().mT if t.dim() > 1 and t.numel() > 1 else None


def sliced(t: torch.Tensor) -> torch.Tensor | None:
    """Rows cut out of longer ones."""
    if t.dim() < 2 or t.numel() < 2:
        return None
    rows = t.new_zeros((*t.shape[:-1], t.shape[-1] + 40))
    return rows[..., 8 : 8 + t.shape[-1]].copy_(t)


def channels_last(t: torch.Tensor) -> torch.Tensor | None:
    """The second dimension innermost."""
    format = {4: torch.channels_last, 5: torch.channels_last_3d}.get(t.dim())
    return t.contiguous(memory_format=format) if format and t.numel() else None


LAYOUTS: dict[str, Callable[[torch.Tensor], torch.Tensor | None]] = {
    "contiguous": lambda t: t,
    "transposed": transposed,
    "sliced": sliced,
    "channels_last": channels_last,
}


def lay_out(tree: Any, layout: str) -> Any:
    """The tree with its tensors in a layout, those that can have it."""
    changed = 0

    def one(t: torch.Tensor) -> torch.Tensor:
        nonlocal changed
        new = LAYOUTS[layout](t) if t.layout == torch.strided else None
        changed += new is not None
        return t if new is None else new.requires_grad_(t.requires_grad)

    out = pytree.tree_map_only(torch.Tensor, one, tree)
    if not changed:
        raise Skip(f"no tensor can be {layout}")
    return out


# ---- enlarging ----


class Scaling(NamedTuple):
    """One way to scale: which lengths become how much longer, and whether numbers do as well."""

    factors: dict[int, float]
    numbers: bool
    spread: bool

    def length(self, n: int) -> int:
        """Of a dimension that had `n`."""
        return max(1, round(n * self.factors[n])) if n in self.factors else n


def repeated(t: torch.Tensor, shape: list[int], scaling: Scaling, index: bool) -> torch.Tensor:
    """The values of `t`, repeated to a larger shape."""
    if list(t.shape) == shape:
        return t
    times = [-(-n // old) for n, old in zip(shape, t.shape)]
    cut = tuple(slice(n) for n in shape)
    out = t.detach().repeat(times)[cut].contiguous()
    if out.is_floating_point():
        draw = torch.rand(
            out.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float32
        )
        out *= (1 - draw / 64).to(out.dtype)
    elif index and scaling.spread:
        factor = int(max(scaling.factors.values()))
        out = (
            out * factor
            + torch.arange(out.numel()).reshape(out.shape).to(out.dtype) * 7919 % factor
        )
    return out.requires_grad_(t.requires_grad)


def scaled(tree: Any, scaling: Scaling) -> Any:
    """The tree with longer dimensions."""
    leaves = tensors_in(tree)
    values = any(t.is_floating_point() or t.is_complex() for t in leaves)

    def one(x: Any) -> Any:
        if isinstance(x, torch.Tensor):
            if x.layout != torch.strided or not x.numel():
                return x
            index = values and x.dtype in (torch.int64, torch.int32)
            return repeated(x, [scaling.length(n) for n in x.shape], scaling, index)
        if scaling.numbers and type(x) is int:
            return scaling.length(x)
        return x

    return pytree.tree_map(one, tree)


def ways(tree: Any) -> Iterator[tuple[tuple[int, ...], bool, bool]]:
    """Sets of lengths to scale together, most natural first."""
    found = sorted(tensors_in(tree), key=lambda t: -t.numel())
    lengths = [n for t in found if t.layout == torch.strided for n in t.shape if n > 1]
    lengths = list(dict.fromkeys(lengths))
    largest = tuple(dict.fromkeys(n for n in found[0].shape if n > 1)) if found else ()
    sets = [largest, tuple(lengths), largest[-2:], *((n,) for n in lengths)]
    sets = [s for s in dict.fromkeys(sets) if s]
    for chosen in sets:
        for numbers, spread in itertools.product((False, True), (True, False)):
            yield chosen, numbers, spread


def enlarge(
    tree: Any, wanted: int, run: Callable[[Any], Any], floor: float = 0.4
) -> tuple[Any, str]:
    """The tree with about `wanted` bytes in what `run` takes and gives, and how it was scaled."""
    if not tensors_in(tree) or not any(t.dim() and t.numel() for t in tensors_in(tree)):
        raise Skip("no tensor with dimensions to enlarge")
    for chosen, numbers, spread in ways(tree):
        try:
            factors = fit(tree, wanted, run, chosen, numbers, spread, floor)
        except (RuntimeError, ValueError, IndexError, TypeError, NotImplementedError):
            continue
        if factors is not None:
            scaling = Scaling(factors, numbers, spread)
            text = ", ".join(f"{n} to {scaling.length(n)}" for n in chosen)
            return scaled(tree, scaling), text
    raise Skip("eager takes none of the ways to enlarge it")


def fit(tree, wanted, run, chosen, numbers, spread, floor) -> dict[int, float] | None:
    """The factors at which a call takes about the wanted bytes."""

    @torch.no_grad()
    def size(t: Any) -> int:
        return bytes_of((t, run(t)))

    factor = 2.0
    last = size(tree)
    for _ in range(24):
        scaling = Scaling(dict.fromkeys(chosen, factor), numbers, spread)
        guess = bytes_of(scaled_meta(tree, scaling))
        if guess > 4 * wanted:
            return None
        last = size(scaled(tree, scaling))
        if floor * wanted <= last <= 2 * wanted:
            return scaling.factors
        if last > 2 * wanted:
            factor *= 0.6
            if factor < 1.1:
                return None
            continue
        # One dimension of several makes bytes grow slower than the square of it.
        factor *= max(
            1.2, min((0.9 * wanted / max(last, 1)) ** (1 / max(1, rank(tree, chosen))), 64)
        )
        if factor > MOST_SCALE:
            return None
    return None


def rank(tree: Any, chosen: tuple[int, ...]) -> int:
    """How many dimensions of one tensor the lengths are."""
    return max(sum(n in chosen for n in t.shape) for t in tensors_in(tree))


def scaled_meta(tree: Any, scaling: Scaling) -> Any:
    """Stand-ins for the sizes alone, on which nothing is allocated: as long as they are asked."""
    return [
        torch.empty([scaling.length(n) for n in t.shape], dtype=t.dtype, device="meta")
        for t in tensors_in(tree)
        if t.layout == torch.strided
    ]
