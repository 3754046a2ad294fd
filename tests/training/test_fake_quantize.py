"""Quantised weights and activations in training: what is rounded has the gradient of what was not
clamped."""

import pytest
import torch

import oxyfuel

QUANTISED = {
    "a tensor": lambda x: torch.fake_quantize_per_tensor_affine(x, 0.1, 0, -8, 7),
    "a scale that is a tensor": lambda x: torch.fake_quantize_per_tensor_affine(
        x, torch.tensor([0.1]), torch.zeros(1, dtype=torch.int32), -8, 7
    ),
    "channels": lambda x: torch.fake_quantize_per_channel_affine(
        x, torch.full((4,), 0.1), torch.zeros(4, dtype=torch.int32), 1, -8, 7
    ),
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", QUANTISED)
def test_gradients(name, dynamic, monkeypatch):
    monkeypatch.setenv("OXYFUEL_STRICT", "1")
    oxyfuel.reset()

    def f(x):
        return QUANTISED[name](x * 2).sin().sum()

    compiled = oxyfuel.compile(f, dynamic=dynamic, fullgraph=True)
    for n in (6, 6, 9):
        x = torch.linspace(-1, 1, 4 * n).view(n, 4).requires_grad_()
        torch.testing.assert_close(compiled(x), f(x))
        expected, found = (torch.autograd.grad(g(x), x)[0] for g in (f, compiled))
        torch.testing.assert_close(found, expected)
