"""Ways to change a tensor between two calls. A change returns NotImplemented where the place does
not allow it."""

from __future__ import annotations

from collections.abc import Callable

import torch


class Place:
    """Where a tensor lives: in `self.module.w`, in `self.tensor`, or behind `self.read` and
    `self.write`."""

    function: Callable

    def __init__(self) -> None:
        self.module: torch.nn.Module | None = None
        self.tensor: torch.Tensor | None = None

    def arguments(self) -> tuple:
        return ()

    def read(self) -> torch.Tensor:
        return self.tensor

    def write(self, value: torch.Tensor) -> None:
        self.tensor = value

    def get(self) -> torch.Tensor:
        return self.read() if self.module is None else self.module.w

    def replace(self, value: torch.Tensor) -> None:
        """Another tensor object in the same place."""
        if self.module is None:
            self.write(value)
        elif "w" in self.module._parameters:
            self.module.w = torch.nn.Parameter(value, requires_grad=False)
        else:
            self.module.w = value


CHANGES: list[Callable] = []


def change(function):
    CHANGES.append(function)
    return function


def of_module(function):
    """A change that only modules know."""

    def checked(place):
        return NotImplemented if place.module is None else function(place.module)

    checked.__name__ = function.__name__
    CHANGES.append(checked)
    return checked


def fresh(*shape):
    return torch.randn(*(shape or (4, 4)))


@change
def in_place(place):
    with torch.no_grad():
        place.get().add_(1)


@change
def one_element(place):
    with torch.no_grad():
        place.get()[2, 1] = 7.0


@change
def through_a_view(place):
    place.get().detach().view(-1)[3:5].fill_(5.0)


@change
def data_written(place):
    place.get().data.mul_(3)


@change
def data_replaced(place):
    place.get().data = fresh()


@change
def data_of_another_dtype(place):
    place.get().data = fresh().double()


@change
def data_transposed(place):
    place.get().data = fresh().t()


@change
def data_shrunk(place):
    place.get().data = fresh(1, 4)


@change
def data_swapped(place):
    other = fresh()
    mine = place.get()
    mine.data, other.data = other.data, mine.data


@change
def object_replaced(place):
    place.replace(fresh())


@change
def object_of_another_shape(place):
    place.replace(fresh(1, 4))


@change
def object_of_another_dtype(place):
    place.replace(fresh().double())


@change
def object_not_contiguous(place):
    place.replace(fresh(4, 8)[:, ::2])


@change
def object_with_an_offset(place):
    place.replace(fresh(6, 4)[1:5])


@change
def object_subclass(place):
    place.replace(fresh().as_subclass(_Subclass))


class _Subclass(torch.Tensor):
    pass


@change
def numpy_written(place):
    place.get().detach().numpy()[1] = 9.0


@change
def numpy_shared(place):
    place.get().data = torch.from_numpy(fresh().numpy())


@change
def dlpack_written(place):
    torch.from_dlpack(place.get().detach()).mul_(2)


@change
def inference_written(place):
    with torch.inference_mode():
        place.get().add_(2)


@change
def inference_tensor(place):
    with torch.inference_mode():
        made = fresh()
    place.replace(made)


@change
def set_storage(place):
    place.get().data.set_(fresh())


@change
def set_itself(place):
    with torch.no_grad():
        place.get().set_(fresh())


@change
def resized(place):
    with torch.no_grad():
        place.get().resize_(1, 4)


@change
def storage_copied(place):
    place.get().untyped_storage().copy_(fresh().untyped_storage())


@change
def transposed_in_place(place):
    with torch.no_grad():
        place.get().t_()


@change
def requires_grad(place):
    place.get().requires_grad_()


@change
def tensors_swapped(place):
    mine = place.get()
    other = fresh()
    if isinstance(mine, torch.nn.Parameter):
        other = torch.nn.Parameter(other, requires_grad=False)
    torch.utils.swap_tensors(mine, other)


@change
def optimizer_step(place):
    return _step(place, torch.optim.SGD, foreach=False)


@change
def foreach_optimizer_step(place):
    return _step(place, torch.optim.SGD, foreach=True)


@change
def fused_optimizer_step(place):
    return _step(place, torch.optim.AdamW, fused=True)


def _step(place, optimizer, **options):
    w = place.get()
    w.requires_grad_()
    w.grad = torch.ones_like(w)
    optimizer([w], lr=0.1, **options).step()
    w.requires_grad_(False)
    w.grad = None


@change
def foreach_written(place):
    torch._foreach_add_([place.get().detach()], 3.0)


@of_module
def to_double(module):
    module.double()


@of_module
def to_half_and_back(module):
    module.half().float()


@of_module
def to_bfloat16(module):
    module.to(torch.bfloat16)


@of_module
def state_loaded(module):
    module.load_state_dict({"w": fresh()})


@of_module
def state_assigned(module):
    module.load_state_dict({"w": fresh()}, assign=True)


@of_module
def entry_replaced(module):
    if "w" not in module._parameters:
        module._buffers["w"] = fresh()
    else:
        module._parameters["w"] = torch.nn.Parameter(fresh(), requires_grad=False)


@of_module
def deleted_and_registered(module):
    is_parameter = "w" in module._parameters
    del module.w
    if is_parameter:
        module.register_parameter("w", torch.nn.Parameter(fresh(), requires_grad=False))
    else:
        module.register_buffer("w", fresh())


@of_module
def parameter_became_attribute(module):
    del module.w
    module.w = fresh()


@of_module
def applied(module):
    module._apply(lambda t: t * 2)


@of_module
def parametrised(module):
    if "w" not in module._parameters:
        return NotImplemented
    torch.nn.utils.parametrize.register_parametrization(module, "w", _Doubled())


class _Doubled(torch.nn.Module):
    def forward(self, w):
        return w * 2
