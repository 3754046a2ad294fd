"""Functions of torch that compute with the floats they are given, for floats that vary."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F

_elu = torch.ops.aten.elu
_scaled_dot_product_attention = torch.ops.aten.scaled_dot_product_attention


def _constant(number: Any) -> Any:
    """The number itself, which the capture is for from here on."""
    return number if number is None else float(repr(float(number)))


def dropout(input: torch.Tensor, p: float, train: bool) -> torch.Tensor:
    """`torch.dropout`."""
    if not (train and 0 < p < 1):
        return torch.dropout(input, _constant(p), train)
    return input * _noise(input, 1 - p)


def dropout_(input: torch.Tensor, p: float, train: bool) -> torch.Tensor:
    """`torch.dropout_`."""
    if not (train and 0 < p < 1):
        return torch.dropout_(input, _constant(p), train)
    return input.mul_(_noise(input, 1 - p))


def _noise(input: torch.Tensor, keep: float) -> torch.Tensor:
    return torch.empty_like(input).bernoulli_(keep).div_(keep)


def celu(input: torch.Tensor, alpha: float = 1.0) -> torch.Tensor:
    """`torch.celu`."""
    if not alpha > 0:
        return torch.celu(input, _constant(alpha))
    return _elu(input, alpha, 1.0, 1.0 / alpha)


def scaled_dot_product_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    """`F.scaled_dot_product_attention`, whose fused kernel takes the scale as it is."""
    dropout_p = _constant(dropout_p)
    if enable_gqa:
        scale = _constant(scale)
    return _scaled_dot_product_attention(
        query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
    )


def arange(
    start: float, end: float | None = None, step: float = 1, *, dtype: torch.dtype | None = None
) -> torch.Tensor:
    """`torch.arange`: how many there are is a size."""
    if end is None:
        start, end = 0, start
    if dtype is None:
        dtype = torch.get_default_dtype()
    if step == 0 or not dtype.is_floating_point or (end - start) / step < 0:
        return torch.arange(_constant(start), _constant(end), _constant(step), dtype=dtype)
    count = math.ceil((end - start) / step)
    places = torch.arange(count, dtype=torch.float64)
    return (start + places * step).to(dtype)


def interpolate(
    input: torch.Tensor,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> torch.Tensor:
    """`F.interpolate`: a factor that is an int gives the size."""
    if size is None and isinstance(scale_factor, int):
        size = [length * scale_factor for length in input.shape[2:]]
        scale_factor = recompute_scale_factor = None
    else:
        scale_factor = _constant(scale_factor)
    return F.interpolate(
        input, size, scale_factor, mode, align_corners, recompute_scale_factor, antialias
    )
