"""Methods of tensors without data, which captures follow in the place of the originals
(src/python/capture/natives.cpp): what they tell is guarded as the attribute that it is of."""

import math
from typing import Any

import torch


def size(self: torch.Tensor, dim: int | None = None) -> Any:
    return self.shape if dim is None else self.shape[dim]


def numel(self: torch.Tensor) -> int:
    return math.prod(self.shape)


def dim(self: torch.Tensor) -> int:
    return len(self.shape)


def is_floating_point(self: torch.Tensor) -> bool:
    return self.dtype.is_floating_point


def is_complex(self: torch.Tensor) -> bool:
    return self.dtype.is_complex


nelement = numel
ndimension = dim
