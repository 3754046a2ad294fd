"""The contexts of a checkpoint that a capture follows as the call that it makes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import torch


class SelectiveContext:
    """In the place of torch's, which keeps what ops give by a policy: here the partition decides
    what is kept."""


def noop_context_fn() -> tuple[Any, Any]:
    """torch's, by default."""
    return contextlib.nullcontext(), contextlib.nullcontext()


def create_selective_checkpoint_contexts(
    policy_fn_or_list: Callable[..., Any] | Sequence[Any], allow_cache_entry_mutation: bool = False
) -> tuple[SelectiveContext, SelectiveContext]:
    """torch's, of a policy that is never asked."""
    if isinstance(policy_fn_or_list, list):
        for op in policy_fn_or_list:
            if not isinstance(op, (torch._ops.OpOverload, torch._ops.HigherOrderOperator)):
                raise ValueError("what is no overload, in the list of a policy")
    elif not callable(policy_fn_or_list):
        raise TypeError("a policy that is no function")
    return SelectiveContext(), SelectiveContext()


def compute_nothing(contexts: Any) -> bool:
    """Whether these are two contexts that only say what is kept, or nothing at all."""
    plain = (SelectiveContext, contextlib.nullcontext)
    return (
        isinstance(contexts, tuple)
        and len(contexts) == 2
        and all(type(c) in plain for c in contexts)
    )
