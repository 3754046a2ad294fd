"""What calls draw in front of their graphs (src/python/draws.h), where no one function says it."""

from __future__ import annotations

from typing import Any

import torch


def filled(
    generator: torch.Generator,
    method: str,
    sizes: tuple[int, ...],
    strides: tuple[int, ...],
    dtype: torch.dtype,
    *args: Any,
    **kwargs: Any,
) -> torch.Tensor:
    """What an op in place like `normal_` writes to such a tensor."""
    out = torch.empty_strided(sizes, strides, dtype=dtype, device="cpu")
    return getattr(out, method)(*args, generator=generator, **kwargs)


def seeded(generator: torch.Generator, seed: int) -> torch.Generator:
    """`torch.manual_seed`, which is about the default generator."""
    torch.manual_seed(seed)
    return generator
