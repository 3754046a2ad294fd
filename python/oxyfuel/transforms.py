"""What the transforms of `torch.func` call of autograd, in Python that a capture follows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch


def vector_jacobian_product(
    outputs: Sequence[torch.Tensor],
    inputs: Sequence[torch.Tensor],
    grad_outputs: Sequence[torch.Tensor] | None = None,
    retain_graph: bool = False,
    create_graph: bool = True,
) -> tuple[Any, ...]:
    """Gradients by `inputs`, zeros by those that nothing depends on. torch's own imports
    TorchDynamo to switch off its autograd, which has no part in a capture.
    """
    given = [None] * len(outputs) if grad_outputs is None else grad_outputs
    used = [(o, g) for o, g in zip(outputs, given) if o.requires_grad]
    found: Sequence[Any] = [None] * len(inputs)
    if used:
        found = torch.autograd.grad(
            [o for o, _ in used],
            inputs,
            [g for _, g in used],
            retain_graph=retain_graph,
            create_graph=create_graph,
            allow_unused=True,
        )
    return tuple([torch.zeros_like(i) if g is None else g for i, g in zip(inputs, found)])
