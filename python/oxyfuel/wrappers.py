"""Hears what torch dispatches under a call of captured code that tensors which wrap others are
given to (src/python/capture/wrappers.cpp)."""

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

alias = torch.ops.aten.alias.default  # what `as_subclass` makes


class Heard(TorchDispatchMode):
    def __init__(self, answer: Callable[..., Any]) -> None:
        super().__init__()
        self.answer = answer

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        return self.answer(func, types, args, kwargs or {})


def written_arguments(func: Any) -> list[tuple[int, str]] | None:
    """Which arguments of an op (position and name) its results are, where it writes to them."""
    schema = func._schema
    sets = [
        r.alias_info.after_set for r in schema.returns if r.alias_info and r.alias_info.is_write
    ]
    if not sets:
        return None
    return [
        next(
            (i, a.name)
            for i, a in enumerate(schema.arguments)
            if a.alias_info is not None and a.alias_info.after_set & one
        )
        for one in sets
    ]
