"""The samples of torch's module_db: each module with its arguments, in evaluation and in training
mode."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import torch
from torch.testing._internal.common_modules import ModuleInfo, module_db

INFOS: dict[str, ModuleInfo] = {info.name: info for info in module_db}
MODES = ("eval", "train")


def samples(info: ModuleInfo, mode: str) -> list[Any]:
    """The samples of one module, the same each time."""
    torch.manual_seed(0)
    found = info.module_inputs_func(
        info, device="cpu", dtype=torch.float32, requires_grad=False, training=mode == "train"
    )
    return list(found)


@functools.cache
def count(name: str, mode: str) -> int:
    """How many samples a module has."""
    return len(samples(INFOS[name], mode))


class Case(NamedTuple):
    """One sample of one module."""

    name: str
    mode: str
    index: int

    def make(self) -> tuple[torch.nn.Module, tuple[Any, ...], dict[str, Any]]:
        """The module, and the arguments of the call."""
        sample = samples(INFOS[self.name], self.mode)[self.index]
        made = sample.constructor_input
        module = INFOS[self.name].module_cls(*made.args, **made.kwargs)
        module.to(torch.float32)  # buffers of fractional pooling come in another dtype
        module.train(self.mode == "train")
        return module, sample.forward_input.args, sample.forward_input.kwargs


def cases(name: str, mode: str, limit: int = 0) -> list[Case]:
    """The samples of a module in a mode; of many so many, spread over all of them."""
    n = count(name, mode)
    picked = (
        range(n) if not 0 < limit < n else [i * (n - 1) // max(limit - 1, 1) for i in range(limit)]
    )
    return [Case(name, mode, i) for i in picked]
