"""Compiled steps of torch.optim with fused=True, which are one graph, against eager's kernels."""

import pytest
import torch
from test_optimizers import STEPS, assert_same, set_gradients

import oxyfuel

OPTIMIZERS = {
    "SGD": [
        {"lr": 0.1},
        {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01},
        {"lr": 0.1, "momentum": 0.9, "nesterov": True},
        {"lr": 0.1, "momentum": 0.9, "dampening": 0.1, "maximize": True},
    ],
    "Adam": [
        {},
        {"weight_decay": 0.01},
        {"amsgrad": True},
        {"maximize": True, "betas": (0.3, 0.9)},
    ],
    "AdamW": [{}, {"amsgrad": True, "weight_decay": 0.1}, {"lr": torch.tensor(0.01)}],
    "Adagrad": [{}, {"lr_decay": 0.1, "weight_decay": 0.01}, {"maximize": True}],
}
CASES = [
    pytest.param(name, settings, id=f"{name}-{i}")
    for name, all_settings in OPTIMIZERS.items()
    for i, settings in enumerate(all_settings)
]


def parameters(dtype=torch.float32):
    """Dense ones: ATen's kernels walk over memory, whatever the strides."""
    generator = torch.Generator().manual_seed(0)
    shapes = [(7, 5), (5,), (3, 4, 2), ()]
    return [torch.nn.Parameter(torch.randn(s, generator=generator).to(dtype)) for s in shapes]


def made(name, params, settings):
    return getattr(torch.optim, name)(params, **settings, fused=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name, settings", CASES)
def test_steps(name, settings, dtype):
    if name == "SGD" and dtype == torch.bfloat16 and "momentum" in settings:
        pytest.skip("ATen's kernel gives another result in each run")
    mine, other = parameters(dtype), parameters(dtype)
    optimizer, expected = made(name, mine, settings), made(name, other, settings)
    step = oxyfuel.compile(optimizer.step)
    tolerance = (1e-5, 2e-6) if dtype != torch.bfloat16 else (2e-2, 2e-2)
    for i in range(STEPS):
        set_gradients(mine, i)
        set_gradients(other, i)
        step()
        expected.step()
        assert_same(optimizer, expected, *tolerance)
    stats = oxyfuel.stats()
    assert stats["unsupported"] == stats["fallbacks"] == 0
    # ATen's kernel for SGD leaves most bfloat16 parameters as they are: it is called.
    assert (stats["graph_breaks"] == 0) == (name != "SGD" or dtype != torch.bfloat16)


@pytest.mark.parametrize("name", list(OPTIMIZERS))
@pytest.mark.parametrize("found_inf", [0.0, 1.0])
def test_scaled_gradients(name, found_inf):
    """As a GradScaler hands them over: unscaled in place, and nothing is done where one is
    infinite."""
    mine, other = parameters(), parameters()
    settings = {"momentum": 0.9} if name == "SGD" else {"weight_decay": 0.01}
    optimizer, expected = made(name, mine, settings), made(name, other, settings)
    step = oxyfuel.compile(optimizer.step)
    for i in range(3):
        set_gradients(mine, i)
        set_gradients(other, i)
        for o in (optimizer, expected):
            o.grad_scale = torch.tensor(4.0)
            o.found_inf = torch.tensor(found_inf if i == 1 else 0.0)
        step()
        expected.step()
        assert_same(optimizer, expected)
        for p, q in zip(mine, other, strict=True):
            torch.testing.assert_close(p.grad, q.grad)
    assert oxyfuel.stats()["graph_breaks"] == 0


def test_schedule_does_not_compile_again():
    mine, other = parameters(), parameters()
    optimizer, expected = made("AdamW", mine, {}), made("AdamW", other, {})
    schedules = [torch.optim.lr_scheduler.ExponentialLR(o, 0.9) for o in (optimizer, expected)]
    step = oxyfuel.compile(optimizer.step)
    for i in range(8):
        set_gradients(mine, i)
        set_gradients(other, i)
        step()
        expected.step()
        for s in schedules:
            s.step()
        assert_same(optimizer, expected)
    assert oxyfuel.stats()["graphs"] <= 3
