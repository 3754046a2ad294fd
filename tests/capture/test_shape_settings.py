"""Settings of torch._dynamo.config about ints and parameters of modules, where a program sets
them."""

from __future__ import annotations

import contextlib

import pytest
import torch
import torch._dynamo.config
from torch import nn
from torch.utils._config_module import _UNSET_SENTINEL

import oxyfuel

NAMES = ("allow_unspec_int_on_nn_module", "force_parameter_static_shapes")


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    """Behind a patch torch takes what was before for a choice: here it is as never set."""
    monkeypatch.setenv("OXYFUEL_STRICT", "1")
    oxyfuel.reset()
    chosen = [torch._dynamo.config._config[name].user_override for name in NAMES]
    before = [variable.get() for variable in chosen]
    for variable in chosen:
        variable.set(_UNSET_SENTINEL)
    with torch.no_grad():
        yield
    for variable, value in zip(chosen, before, strict=True):
        variable.set(value)


def patched(name, setting):
    if setting is None:
        return contextlib.nullcontext()
    return torch._dynamo.config.patch(name, setting)


class Window(nn.Module):
    def __init__(self):
        super().__init__()
        self.length = 2

    def forward(self, x):
        return x[: self.length] * self.length


@pytest.mark.parametrize(("setting", "recompiles"), [(None, 1), (True, 1), (False, 4)])
def test_ints_of_modules(setting, recompiles):
    """Symbols once they have changed, unless a program says that they are not."""
    chosen = patched("allow_unspec_int_on_nn_module", setting)
    module, x = Window(), torch.randn(20)
    compiled = oxyfuel.compile(module)
    with chosen:
        for length in (2, 5, 7, 4, 9):
            module.length = length
            assert torch.equal(compiled(x), module(x))
    assert oxyfuel.stats()["recompiles"] == recompiles
    assert oxyfuel.stats()["fallbacks"] == 0


def test_other_ints_are_symbols_all_the_same():
    class Plain:
        length = 2

    def program(x, o):
        return x[: o.length] * o.length

    o, x = Plain(), torch.randn(20)
    compiled = oxyfuel.compile(program)
    with torch._dynamo.config.patch(allow_unspec_int_on_nn_module=False):
        for length in (2, 5, 7, 4, 9):
            o.length = length
            assert torch.equal(compiled(x, o), program(x, o))
    assert oxyfuel.stats()["recompiles"] == 1


@pytest.mark.parametrize(("setting", "recompiles"), [(None, 1), (False, 1), (True, 4)])
def test_sizes_of_parameters(setting, recompiles):
    chosen = patched("force_parameter_static_shapes", setting)
    module = nn.Linear(4, 3)
    compiled = oxyfuel.compile(module)
    with chosen:
        for rows in (3, 5, 7, 4, 9):
            module.weight, module.bias = (
                nn.Parameter(torch.randn(rows, 4)),
                nn.Parameter(torch.randn(rows)),
            )
            x = torch.randn(6, 4)
            torch.testing.assert_close(compiled(x), module(x))
    assert oxyfuel.stats()["recompiles"] == recompiles


@pytest.mark.parametrize(("setting", "recompiles"), [(True, 1), (False, 0)])
def test_parameters_when_all_is_dynamic(setting, recompiles):
    module = nn.Linear(4, 3, bias=False)
    compiled = oxyfuel.compile(module, dynamic=True)
    with torch._dynamo.config.patch(force_parameter_static_shapes=setting):
        for rows in (3, 5):
            module.weight = nn.Parameter(torch.randn(rows, 4))
            x = torch.randn(6, 4)
            torch.testing.assert_close(compiled(x), module(x))
    assert oxyfuel.stats()["recompiles"] == recompiles
