"""A compiled ``torch.nn.Module``: an object that is the module in all but its call."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch


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

    members = {
        "__call__": call,
        "__class__": property(lambda self: cls),  # what pickle compares with the module's
        "__copy__": shallow_copy,
        "__deepcopy__": deep_copy,
        "__doc__": cls.__doc__,
        "__module__": cls.__module__,
        "__qualname__": cls.__qualname__,
        "__reduce_ex__": reduce,
        "_oxyfuel_compiled": compiled,
    }
    # The base comes last: a class that keeps a list of its subclasses (__init_subclass__) must not
    # hear of this one.
    wrapper = type.__new__(type(cls), cls.__name__, (torch.nn.Module,), members)
    wrapper.__bases__ = (cls,)
    result = object.__new__(wrapper)
    object.__setattr__(result, "__dict__", module.__dict__)
    return result
