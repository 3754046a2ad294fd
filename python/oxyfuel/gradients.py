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
        self.tensor: torch.Tensor | None = tensor
        self.real: Any = None

    def remove(self) -> None:
        """Captured code does not call the hook from there on. Behind the graph it is that of the
        real tensor."""
        if self.real is not None:
            remove_real(self.real)
        else:
            self.tensor = None

    def real_handle(self) -> Any:
        """The one of the real tensor: no graph has it either."""
        return self.real

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real_handle(), name)

    def __enter__(self) -> HookHandle:
        return self

    def __exit__(self, *raised: object) -> None:
        self.remove()


def remove_real(handle: Any) -> None:
    """Removes a hook of a result of another graph: captured code has it done once it has run."""
    handle.remove()


def set_data(tensor: torch.Tensor, value: torch.Tensor) -> None:
    """`tensor.data = value`, in a recording and for real."""
    tensor.data = value


def count_write(tensor: torch.Tensor) -> None:
    """What was written is another memory than the one that the graph knows as its own."""
    torch.autograd.graph.increment_version(tensor)


def detach_in_place(tensor: torch.Tensor) -> None:
    """`tensor.detach_()`, for real."""
    tensor.detach_()


def register_hook(
    tensor: torch.Tensor, hook: Callable[[torch.Tensor], torch.Tensor | None]
) -> None:
    """Registers a hook with a tensor of a recording."""
    tensor.register_hook(hook)


def register_with_handle(
    tensor: torch.Tensor, hook: Callable[[torch.Tensor], Any], handle: HookHandle
) -> None:
    """Registers a hook with a result of a graph, or with one of its inputs."""
    handle.tensor = None
    handle.real = tensor.register_hook(hook)


def register_behind_accumulation(
    tensor: torch.Tensor, hook: Callable[[torch.Tensor], Any], handle: HookHandle
) -> None:
    """The same for `register_post_accumulate_grad_hook`, of a leaf."""
    handle.tensor = None
    handle.real = tensor.register_post_accumulate_grad_hook(hook)


def register_with_node(
    tensor: torch.Tensor, function: Callable[[torch.Tensor], Any], handle: HookHandle
) -> None:
    """The same behind all hooks of the tensor, and only if its node runs."""

    # Errors call it by this name, in eager too.
    def hook(gradients: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor] | None:
        made = function(gradients[0])
        return None if made is None else (made,)

    handle.tensor = None
    node = tensor.grad_fn
    assert node is not None
    handle.real = node.register_prehook(hook)


def register_late(tensor: torch.Tensor, hook: Callable[[torch.Tensor], Any]) -> Any:
    """`register_with_node`: captured code has it done once the graph has run."""
    return tensor.register_hook(hook)


def retain_gradient(tensor: torch.Tensor, _: None, handle: HookHandle) -> None:
    """`tensor.retain_grad()` of a result of a graph."""
    handle.tensor = None
    tensor.retain_grad()


def keep_gradient(tensor: torch.Tensor, gradient: torch.Tensor, handle: HookHandle) -> None:
    """The same, and the gradient that a backward of the graph has left there."""
    handle.tensor = None
    tensor.retain_grad()
    tensor.grad = gradient


def retained(before: torch.Tensor | None, gradient: torch.Tensor) -> torch.Tensor:
    """What a tensor retains where a gradient arrives, in captured code."""
    if before is None:
        return gradient.clone(memory_format=torch.contiguous_format)
    return before + gradient


def add_hook(hooks: dict[Any, Callable[..., Any]], hook: Callable[..., Any]) -> Any:
    """Registers a hook of a leaf, in captured code."""
    handle = torch.utils.hooks.RemovableHandle(hooks)
    hooks[handle.id] = hook
    return handle


class HookId:
    """Stands for the number of a handle that does not outlive the captured code."""


class HooksOf:
    """Stands for the handle's weak reference to a dict of hooks, which C code would look into."""

    def __init__(self, hooks: Any) -> None:
        self.hooks = hooks

    def __call__(self) -> Any:
        return self.hooks


def init_handle(handle: Any, id: HookId, hooks_dict: Any, *, extra_dict: Any = None) -> None:
    """`RemovableHandle.__init__` with these in the place of the number and the references."""
    handle.hooks_dict_ref = HooksOf(hooks_dict)
    handle.id = id
    torch.utils.hooks.RemovableHandle.next_id += 1
    handle.extra_dict_ref = ()
    if isinstance(extra_dict, dict):
        handle.extra_dict_ref = (HooksOf(extra_dict),)
    elif isinstance(extra_dict, list):
        handle.extra_dict_ref = tuple([HooksOf(d) for d in extra_dict])


class HookedNode:
    """What a module's backward hooks are registered with: in eager the node of autograd's behind
    all its arguments or results, of which one has a gradient."""

    def __init__(self, tensor: torch.Tensor, place: int, others: list[Any]) -> None:
        self.tensor = tensor
        self.place = place
        self.others = others

    def register_hook(self, hook: Callable[[Any, Any], Any]) -> None:
        """`hook` gets the gradients by the node's inputs, zeros for the others, and by its
        results."""
        place, others = self.place, self.others

        def of_tensor(gradient: torch.Tensor) -> torch.Tensor | None:
            arrived: list[torch.Tensor | None] = [None] * len(others)
            handed_on = [o if o is None else torch.zeros(o[0], dtype=o[1]) for o in others]
            arrived[place] = handed_on[place] = gradient
            made = hook(tuple(handed_on), tuple(arrived))
            if made is None:
                return None
            if made[place] is None:
                raise RuntimeError("a backward hook of a module gives None for a gradient")
            return made[place]

        register_late(self.tensor, of_tensor)


def apply_on_tensors(_: Any, register: Callable[[Any], None], args: Any) -> tuple[Any, Any]:
    """`BackwardHook._apply_on_tensors` of torch.utils.hooks, where one tensor has a gradient."""
    places = [i for i, a in enumerate(args) if isinstance(a, torch.Tensor)]
    passed = list(args)
    others = [None if args[i].requires_grad else (args[i].shape, args[i].dtype) for i in places]
    for k, i in enumerate(places):
        if args[i].requires_grad:
            passed[i] = args[i].clone()
            register(HookedNode(passed[i], k, others))
        else:
            passed[i] = args[i].view_as(args[i])
    return (tuple(passed) if type(args) is tuple else type(args)(*passed)), places


def hook_results(hook: Callable[[torch.Tensor], Any], gradient: torch.Tensor) -> Sequence[Any]:
    """Follows a hook for what it relies on; what it makes of a gradient."""
    with torch.no_grad():
        made = hook(gradient)
        return (gradient if made is None else made,)


def after_hooks(hooks: dict[int, Callable[[torch.Tensor], Any]], gradient: Any) -> Any:
    """What the hooks of a leaf make of its gradient. Where eager raises, so does this."""
    for hook in list(hooks.values()):
        made = hook(gradient)
        if made is None:
            continue
        if not isinstance(made, torch.Tensor):
            raise TypeError("a hook gives no tensor")
        if made.shape != gradient.shape or made.dtype != gradient.dtype:
            raise RuntimeError("a hook has changed the type or the size of a gradient")
        gradient = made
    return gradient


def call_in_backward(hooks: dict[int, Callable[[torch.Tensor], Any]], gradient: Any) -> Any:
    """The same of a tensor, with as many frames between as in eager: a warning counts them."""
    return after_hooks(hooks, gradient)


def call_behind(hooks: dict[int, Callable[[torch.Tensor], Any]], leaf: torch.Tensor) -> None:
    """The hooks of a leaf that has got its gradient."""
    for hook in list(hooks.values()):
        if hook(leaf) is not None:
            raise RuntimeError("a post accumulate grad hook does not return None")
