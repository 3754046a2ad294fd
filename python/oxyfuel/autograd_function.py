"""What `torch.autograd.Function.apply` does, in Python that a capture follows."""

from __future__ import annotations

from typing import Any

import torch
from torch._functorch.autograd_function import VmapInfo, custom_function_call

# A recording listens there too. Under transforms it is a level of theirs that is called.
custom_function_call.fallthrough(torch._C._dispatch_key_parse("TESTING_ONLY_GenericMode"))


class Context:
    """The `ctx` of a forward that is followed: it keeps what it is given."""

    def __init__(self, count: int) -> None:
        self.needs_input_grad = (False,) * count
        self.saved_tensors: tuple[Any, ...] = ()
        self.dirty: tuple[Any, ...] = ()
        self.materializes = True

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
        """Whether the backward gets zeros for undefined gradients."""
        self.materializes = value

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
            args = _with_defaults(function.forward, args)
            out = function.forward(*args)
            function.setup_context(ctx, args, out)
            returned = [a for a in args if _is_among(a, out) and not _is_among(a, ctx.dirty)]
            if any(a is s for a in returned for s in ctx.saved_tensors):
                raise RuntimeError("an argument that is the result is saved: eager says so as well")
        if not all(_is_among(d, out) for d in ctx.dirty):
            raise RuntimeError("what is marked as dirty is no result: eager says so as well")
        if isinstance(out, tuple):
            return tuple([_as_result(o, args, ctx) for o in out])
        return _as_result(out, args, ctx)


class Number:
    """A float argument that is another one at each call, as torch hands it to `forward` and
    `backward`: a float64 tensor of the graph. Operators compute with it as with a float; what else
    asks for a float raises, and the function is called behind a break."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, value: torch.Tensor) -> None:
        self.value = value

    @property
    def __class__(self) -> type:
        return float

    @classmethod
    def __torch_function__(
        cls, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> torch.Tensor:
        """Of two operands, one a tensor whose dtype the result has, or of a tensor and bounds."""
        bounds = function in _OF_BOUNDS
        if not bounds and (function not in _OF_NUMBERS or kwargs or len(args) != 2):
            raise TypeError(f"{function} of a number that varies")
        tensor = args[0] if isinstance(args[0], torch.Tensor) else args[1]
        dtype = tensor.dtype
        if not dtype.is_floating_point or (tensor.dim() == 0 and dtype.itemsize < 4):
            raise TypeError(f"a number that varies beside {dtype}")

        def as_given(a: Any) -> Any:
            if type(a) is Number:
                return a.value if tensor.dim() and not bounds else a.value.to(dtype)
            return torch.tensor(a, dtype=dtype) if bounds and isinstance(a, (int, float)) else a

        given = {name: as_given(a) for name, a in (kwargs or {}).items()}
        return function(*[as_given(a) for a in args], **given)

    def __mul__(self, other: Any) -> Any:
        return torch.mul(other, self) if _is_tensor(other) else Number(self.value * _inside(other))

    def __rmul__(self, other: Any) -> Any:
        return Number(self.value * _inside(other))

    def __add__(self, other: Any) -> Any:
        return torch.add(other, self) if _is_tensor(other) else Number(self.value + _inside(other))

    def __radd__(self, other: Any) -> Any:
        return Number(self.value + _inside(other))

    def __sub__(self, other: Any) -> Any:
        return torch.rsub(other, self) if _is_tensor(other) else Number(self.value - _inside(other))

    def __rsub__(self, other: Any) -> Any:
        return Number(_inside(other) - self.value)

    def __neg__(self) -> Number:
        return Number(-self.value)

    def __repr__(self) -> str:
        raise TypeError("the text of a number that varies")

    def _ask(self, *_: Any) -> Any:
        raise TypeError("a question about a number that varies")

    def __eq__(self, other: Any) -> Any:
        return self._compared(torch.eq, other)

    def __ne__(self, other: Any) -> Any:
        return self._compared(torch.ne, other)

    def __lt__(self, other: Any) -> Any:
        return self._compared(torch.gt, other)

    def __le__(self, other: Any) -> Any:
        return self._compared(torch.ge, other)

    def __gt__(self, other: Any) -> Any:
        return self._compared(torch.lt, other)

    def __ge__(self, other: Any) -> Any:
        return self._compared(torch.le, other)

    def _compared(self, mirrored: Any, other: Any) -> Any:
        return mirrored(other, self) if _is_tensor(other) else self._ask()

    __bool__ = _ask


_COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
_OF_NUMBERS = {
    *(getattr(torch, name) for name in ("add", "sub", "mul", "div", "true_divide", "rsub")),
    *(getattr(torch.Tensor, name) for name in ("add", "sub", "mul", "div", "true_divide")),
    *(getattr(torch.Tensor, f"__{name}__") for name in ("add", "radd", "sub", "mul", "rmul")),
    torch.Tensor.__truediv__,
    *(getattr(torch.Tensor, f"{name}_") for name in ("add", "sub", "mul", "div")),
    *(getattr(torch.Tensor, f"__i{name}__") for name in ("add", "sub", "mul", "truediv")),
    *(getattr(torch, name) for name in _COMPARISONS),
    *(getattr(torch.Tensor, name) for name in _COMPARISONS),
    *(getattr(torch.Tensor, f"__{name}__") for name in _COMPARISONS),
}
_OF_BOUNDS = {torch.clamp, torch.clip, torch.Tensor.clamp, torch.Tensor.clip}


def _is_tensor(o: Any) -> bool:
    return isinstance(o, torch.Tensor)


def _inside(o: Any) -> Any:
    if type(o) is not Number and type(o) not in (float, int):
        raise TypeError(f"a number that varies with {type(o)}")
    return o.value if type(o) is Number else o


def apply_with_numbers(apply: Any, places: tuple[int, ...], *args: Any, **kwargs: Any) -> Any:
    """`apply`, with numbers that vary for the tensors at these places."""
    given = [Number(a) if i in places else a for i, a in enumerate(args)]
    out = apply(*given, **kwargs)
    results = out if isinstance(out, tuple) else (out,)
    if not all(r is None or isinstance(r, torch.Tensor) for r in results):
        raise TypeError("a result that is no tensor")
    return out


def number_of(holder: Any) -> Any:
    """Its item, which in a recording is a number that varies."""
    recorded = isinstance(holder, torch.Tensor) and torch._is_functional_tensor(holder)
    return Number(holder) if recorded else holder.item()


def rehearse_forward(function: Any, *args: Any, **kwargs: Any) -> Any:
    """Follows the forward of `function` for what it relies on; what its backward is called with."""
    with_setup = function.setup_context is not torch.autograd.Function.setup_context
    if with_setup:
        if kwargs:
            raise TypeError("named arguments")
        args = _with_defaults(function.forward, args)
    ctx = Context(len(args))
    ctx.needs_input_grad = tuple([isinstance(a, torch.Tensor) and a.requires_grad for a in args])
    with torch.no_grad():
        if _marks_dirty(function):  # what it writes to are copies
            args = tuple([a.clone() if isinstance(a, torch.Tensor) else a for a in args])
        if with_setup:
            out = function.forward(*args)
            function.setup_context(ctx, args, out)
        else:
            out = function.forward(ctx, *args, **kwargs)
        results = out if isinstance(out, tuple) else (out,)
        gradients = [torch.zeros_like(o) if isinstance(o, torch.Tensor) else None for o in results]
        return ctx, gradients, ctx.materializes


def rehearse_backward(function: Any, made: Any) -> Any:
    """Follows the backward of `function` for what it relies on; its results."""
    ctx, gradients, _ = made
    with torch.no_grad():
        found = function.backward(ctx, *gradients)
        return found if isinstance(found, tuple) else (found,)


def rehearse_vmap(
    function: Any, batch_size: int, randomness: str, places: tuple[Any, ...], *args: Any
) -> None:
    """Follows the rule of `function` for `vmap`, where it has its own."""
    if function.generate_vmap_rule or function.vmap is torch.autograd.Function.vmap:
        return
    given = tuple([_batch_of(a, p, batch_size) for a, p in zip(args, places)])
    function.vmap(VmapInfo(batch_size, randomness), places, *given)


def _batch_of(arg: Any, place: int | None, batch_size: int) -> Any:
    if place is None:
        return arg
    sizes = list(arg.shape)
    sizes.insert(place, batch_size)
    return torch.zeros(sizes, dtype=arg.dtype, device=arg.device)


def _with_defaults(function: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
    missing = function.__code__.co_argcount - len(args)
    return args + function.__defaults__[-missing:] if missing > 0 else args


def _marks_dirty(function: Any) -> bool:
    return any(
        "mark_dirty" in f.__code__.co_names for f in (function.forward, function.setup_context)
    )


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
            return out.detach()
    return out
