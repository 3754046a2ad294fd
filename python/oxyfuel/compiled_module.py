"""A compiled ``torch.nn.Module``: an object that is the module in all but its call."""

from __future__ import annotations

import copy
import types
from collections.abc import Callable
from typing import Any

import torch


class _Unheard:
    """In front of a base that keeps a list of its subclasses: it does not hear of this one."""

    __slots__ = ()

    def __init_subclass__(cls, **_: Any) -> None:
        pass


def _bases(cls: type) -> tuple[type, ...]:
    return (cls,) if issubclass(cls, _Unheard) else (_Unheard, cls)


def _shared_slot(module: torch.nn.Module, slot: types.MemberDescriptorType) -> property:
    """The module's own value of a slot of its class."""
    return property(
        lambda self: slot.__get__(module),
        lambda self, value: slot.__set__(module, value),
        lambda self: slot.__delete__(module),
    )


def compiled_module(module: torch.nn.Module, compiled: Callable[..., Any]) -> torch.nn.Module:
    """An object of a subclass of the module's class that shares the module's attributes.

    ``compiled``: ``type(module).__call__``, compiled. Whatever is set, registered or moved through
    one of the two is so for both. A pickle is one of the module; a copy is compiled as well, apart
    from this one.
    """
    cls = type(module)

    def call(self: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
        return compiled(module, *args, **kwargs)

    def reduce(self: torch.nn.Module, protocol: Any) -> Any:
        return module.__reduce_ex__(protocol)

    def shallow_copy(self: torch.nn.Module) -> torch.nn.Module:
        return compiled_module(copy.copy(module), compiled)

    def deep_copy(self: torch.nn.Module, memo: dict[int, Any]) -> torch.nn.Module:
        return compiled_module(copy.deepcopy(module, memo), compiled)

    def change_class(self: torch.nn.Module, new: type) -> None:
        module.__class__ = new
        wrapper.__bases__ = _bases(new)

    members = {
        "__call__": call,
        # What pickle compares with the module's; a parametrization sets it.
        "__class__": property(lambda self: type(module), change_class),
        "__copy__": shallow_copy,
        "__deepcopy__": deep_copy,
        "__doc__": cls.__doc__,
        "__module__": cls.__module__,
        "__qualname__": cls.__qualname__,
        "__reduce_ex__": reduce,
        "_oxyfuel_compiled": compiled,
        "_orig_mod": property(lambda self: module),  # as what torch.compile makes
    }
    for base in cls.__mro__:
        for name, member in vars(base).items():
            if isinstance(member, types.MemberDescriptorType):
                members.setdefault(name, _shared_slot(module, member))
    wrapper = type.__new__(type(cls), cls.__name__, _bases(cls), members)
    result = object.__new__(wrapper)
    object.__setattr__(result, "__dict__", module.__dict__)
    return result
