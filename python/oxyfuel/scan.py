"""torch's scans of captured code: the associative one, for combinations that go element by element,
and the other one, unrolled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

Parts = list[torch.Tensor]


def combine_elements(combine: Callable[..., Any], left: Any, right: Any) -> Any:
    """A capture that inlines this makes sure that `combine` looks at one element at a time."""
    return combine(left, right)


def varies(length: int) -> bool:
    """Whether a capture has a symbol here."""
    del length
    return False


# Lengths that vary are filled up to this, or to the next power of two.
LEAST = 64


def associative_scan(
    combine: Callable[..., Any], xs: Any, dim: int, reverse: bool = False, combine_mode: str = ""
) -> Any:
    """The scan of a tensor, or of a tuple or list of them, over `dim`."""
    del combine_mode  # how, not what
    single = isinstance(xs, torch.Tensor)
    kind = None if single else type(xs)
    parts = [xs] if single else list(xs)
    parts = [torch.movedim(x, dim, 0) for x in parts]
    if reverse:
        parts = [torch.flip(x, [0]) for x in parts]

    def packed(some: Parts) -> Any:
        return some[0] if single else kind(some)

    def combined(left: Parts, right: Parts) -> Parts:
        out = combine_elements(combine, packed(left), packed(right))
        return [out] if single else list(out)

    length = parts[0].shape[0]
    if varies(length):  # what is behind an element does not change it
        whole = LEAST
        while whole < length:
            whole *= 2
        filled = [torch.cat([x, x.new_zeros(whole - length, *x.shape[1:])]) for x in parts]
        parts = [x[:length] for x in _scan(combined, filled)]
    else:
        parts = _scan(combined, parts)
    if reverse:
        parts = [x.flip([0]) for x in parts]
    return packed([torch.movedim(x, 0, dim) for x in parts])


def _scan(combined: Callable[[Parts, Parts], Parts], parts: Parts) -> Parts:
    """Pairs of neighbours first, then the scan of these, then what lies between: a tree as deep as
    log2 of the length."""
    length = parts[0].shape[0]
    if length < 2:
        return parts
    pairs = combined([x[:-1:2] for x in parts], [x[1::2] for x in parts])
    odd = _scan(combined, pairs)
    before = [x[:-1] for x in odd] if length % 2 == 0 else odd
    out = []
    even = combined(before, [x[2::2] for x in parts])
    for x, o, e in zip(parts, odd, even):
        e = torch.cat([x[:1], e])
        whole = torch.stack([e[: o.shape[0]], o], dim=1).flatten(0, 1)
        out.append(whole if length % 2 == 0 else torch.cat([whole, e[-1:]]))
    return out


MOST_STEPS = 512  # that are unrolled


def leave_to_torch() -> None:
    """A capture breaks here."""


def scan(
    combine_fn: Callable[..., Any], init: Any, xs: Any, *, dim: int = 0, reverse: bool = False
) -> tuple[Any, Any]:
    """As torch.scan: (what is carried in the end, what the steps give, stacked along `dim`)."""
    carried, form = torch.utils._pytree.tree_flatten(init)
    parts, form_of_parts = torch.utils._pytree.tree_flatten(xs)
    if not parts:
        return init, []
    tensors = all(isinstance(x, torch.Tensor) for x in (*carried, *parts))
    if not tensors or not carried or not all(-x.ndim <= dim < x.ndim for x in parts):
        leave_to_torch()  # which raises
    dim %= parts[0].ndim
    length = parts[0].shape[dim]
    if not 0 < length <= MOST_STEPS:
        leave_to_torch()
    carry, steps, form_of_step = init, [], None
    for i in reversed(range(length)) if reverse else range(length):
        part = torch.utils._pytree.tree_unflatten([x.select(dim, i) for x in parts], form_of_parts)
        carry, step = combine_fn(carry, part)
        leaves, form_of_step = torch.utils._pytree.tree_flatten(step)
        steps.append(leaves)
    if reverse:
        steps.reverse()
    carried, form_of_carry = torch.utils._pytree.tree_flatten(carry)
    if form_of_carry != form:
        leave_to_torch()
    stacked = [
        None if leaf[0] is None else torch.stack(leaf, min(dim, leaf[0].ndim))
        for leaf in zip(*steps)
    ]
    return carry, torch.utils._pytree.tree_unflatten(stacked, form_of_step)
