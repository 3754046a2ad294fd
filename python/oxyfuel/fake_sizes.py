"""Sizes of data that fake implementations of library ops ask for (``torch.library.get_ctx``)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch._library.fake_impl


class _Context:
    """What ``torch.library.get_ctx`` gives: its sizes are these numbers, in order."""

    def __init__(self, numbers: Sequence[int]) -> None:
        self._numbers = numbers
        self.asked = 0

    def new_dynamic_size(self, *, min: int = 0, max: int | None = None) -> int:
        self.asked += 1
        return self._numbers[self.asked - 1]

    create_unbacked_symint = new_dynamic_size


def run_fake(
    implementation: Callable[..., Any],
    numbers: Sequence[int],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
) -> tuple[Any, int]:
    """What the implementation gives, and how many sizes it has asked for."""
    context = _Context(numbers)
    with torch._library.fake_impl.set_ctx_getter(lambda: context):
        return implementation(*args, **kwargs), context.asked
