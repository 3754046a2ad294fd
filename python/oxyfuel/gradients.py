"""Functions of torch, and of autograd, in a form whose gradients a graph can have."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from oxyfuel import _C


def batched_gradients(
    outputs: Any,
    inputs: Any,
    grad_outputs: Any,
    retain_graph: bool,
    create_graph: bool,
    allow_unused: bool,
) -> tuple[Any, ...]:
    """`torch.autograd.grad` with `is_grads_batched`, as a transform of `torch.func`."""
    wanted = (inputs,) if isinstance(inputs, torch.Tensor) else tuple(inputs)
    given = (grad_outputs,) if isinstance(grad_outputs, torch.Tensor) else tuple(grad_outputs)
    used: list[bool] = []

    def one(*gradients: torch.Tensor) -> tuple[torch.Tensor, ...]:
        found = torch.autograd.grad(
            outputs,
            wanted,
            gradients,
            retain_graph=retain_graph,
            create_graph=create_graph,
            allow_unused=allow_unused,
        )
        for g in found:
            used.append(g is not None)
        return tuple([g for g in found if g is not None])

    batches = list(torch.func.vmap(one)(*given))
    return tuple([batches.pop(0) if u else None for u in used])


def index_fill(
    tensor: torch.Tensor, dim: int, index: torch.Tensor, value: torch.Tensor
) -> torch.Tensor:
    """`Tensor.index_fill`. The gradient of torch's own by `value` looks for equal indices."""
    rows = tensor.shape[dim] if tensor.dim() > 0 else 1
    filled = torch.zeros(rows, dtype=torch.bool, device=tensor.device)
    filled = filled.index_fill(0, index, True)
    if tensor.dim() > 0:
        sizes = [1] * tensor.dim()
        sizes[dim] = rows
        filled = filled.view(sizes)
    else:
        filled = filled[0]
    return torch.where(filled, value.to(tensor.dtype), tensor)


def index_fill_(
    tensor: torch.Tensor, dim: int, index: torch.Tensor, value: torch.Tensor
) -> torch.Tensor:
    """The same in place."""
    return tensor.copy_(index_fill(tensor, dim, index, value))


class _Power(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, base: torch.Tensor, exponent: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(base, exponent)
        return _C.power(base, exponent)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        base, exponent = ctx.saved_tensors
        slope = exponent * torch.pow(base, exponent - 1)
        return torch.where(exponent == 0, torch.zeros_like(base), gradient * slope), None


def power(base: torch.Tensor, exponent: torch.Tensor) -> torch.Tensor:
    """`base ** n` for the float n that `exponent` holds. The gradient of torch's own looks at
    it."""
    return _Power.apply(base, exponent)


class HookHandle:
    """What `register_hook` gives to captured code."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor

    def remove(self) -> None:
        """No graph has this: the capture stops in front of `register_hook`."""

    def __enter__(self) -> None:
        self.remove()

    def __exit__(self, *raised: object) -> None:
        self.remove()

    def __getattr__(self, name: str) -> None:
        self.remove()


def register_hook(
    tensor: torch.Tensor, hook: Callable[[torch.Tensor], torch.Tensor | None]
) -> None:
    """Registers a hook with a tensor of a recording."""
    tensor.register_hook(hook)


def hook_results(hook: Callable[[torch.Tensor], Any], gradient: torch.Tensor) -> Sequence[Any]:
    """Follows a hook for what it relies on; what it makes of a gradient."""
    with torch.no_grad():
        made = hook(gradient)
        return (gradient if made is None else made,)
