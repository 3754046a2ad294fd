"""What `torch.autograd.Function.apply` does, in Python that a capture follows."""

from __future__ import annotations

from typing import Any

import torch


class Context:
    """The `ctx` of a forward that is followed: it keeps what it is given."""

    def __init__(self, count: int) -> None:
        self.needs_input_grad = (False,) * count
        self.saved_tensors: tuple[Any, ...] = ()
        self.dirty: tuple[Any, ...] = ()

    def save_for_backward(self, *tensors: Any) -> None:
        """Keeps them for whoever reads `saved_tensors`."""
        self.saved_tensors = tensors

    def save_for_forward(self, *tensors: Any) -> None:
        """Serves forward-mode derivatives, of which there are none."""

    def mark_dirty(self, *tensors: Any) -> None:
        """Arguments that the forward has written to."""
        self.dirty = tensors

    def mark_non_differentiable(self, *tensors: Any) -> None:
        """Nothing is differentiated."""

    def set_materialize_grads(self, value: bool) -> None:
        """There are no gradients."""

    if hasattr(torch.autograd.function.FunctionCtx, "set_output_grad_dtype"):

        def set_output_grad_dtype(self, *dtypes: torch.dtype | None) -> None:
            """There are no gradients."""


def forward(function: Any, *args: Any) -> Any:
    """`function.apply(*args)`. An argument that comes back is another tensor, as in eager."""
    ctx = Context(len(args))
    with torch.no_grad():
        if function.setup_context is torch.autograd.Function.setup_context:
            out = function.forward(ctx, *args)
        else:
            out = function.forward(*args)
            function.setup_context(ctx, args, out)
            if any(a is s for a in args for s in ctx.saved_tensors if _is_among(a, out)):
                raise RuntimeError("an argument that is the result is saved: eager says so as well")
        if isinstance(out, tuple):
            return tuple([_as_result(o, args, ctx) for o in out])
        return _as_result(out, args, ctx)


def rehearse_forward(function: Any, *args: Any) -> Any:
    """Follows the forward of `function` for what it relies on; what its backward is called with."""
    ctx = Context(len(args))
    ctx.needs_input_grad = tuple([isinstance(a, torch.Tensor) and a.requires_grad for a in args])
    with torch.no_grad():
        if function.setup_context is torch.autograd.Function.setup_context:
            out = function.forward(ctx, *args)
        else:
            out = function.forward(*args)
            function.setup_context(ctx, args, out)
        results = out if isinstance(out, tuple) else (out,)
        return ctx, [torch.zeros_like(o) for o in results if isinstance(o, torch.Tensor)]


def rehearse_backward(function: Any, made: Any) -> None:
    """Follows the backward of `function` for what it relies on."""
    ctx, gradients = made
    with torch.no_grad():
        function.backward(ctx, *gradients)


def _is_among(a: Any, out: Any) -> bool:
    return any(o is a for o in (out if isinstance(out, tuple) else (out,)))


def _as_result(out: Any, args: tuple[Any, ...], ctx: Context) -> Any:
    if not isinstance(out, torch.Tensor):
        return out
    for dirty in ctx.dirty:
        if out is dirty:
            return out
    for a in args:
        if out is a:
            return out.view_as(out)
    return out
