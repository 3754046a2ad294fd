"""Quantised weights and activations in training: what is rounded has the gradient of what was not
clamped."""

import copy

import pytest
import torch
import torch.ao.quantization as quantization

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


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize("engine", ["x86", "qnnpack"])
def test_observers(engine):
    """The first call gives the state of observers by channel its shape; then there is one graph."""
    layers = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.ReLU(), torch.nn.Linear(8, 4))
    model = quantization.QuantWrapper(layers).train()
    model.qconfig = quantization.get_default_qat_qconfig(engine)
    model = quantization.prepare_qat(model)
    other = copy.deepcopy(model)
    compiled = oxyfuel.compile(other)
    seen = []
    for seed in range(4):
        for m, call in ((model, model), (other, compiled)):
            m.zero_grad()
            torch.manual_seed(seed)
            call(torch.randn(4, 6)).sum().backward()
        for of_model, of_other in zip(model.buffers(), other.buffers(), strict=True):
            torch.testing.assert_close(of_other, of_model)
        for of_model, of_other in zip(model.parameters(), other.parameters(), strict=True):
            torch.testing.assert_close(of_other.grad, of_model.grad)
        stats = oxyfuel.stats()
        seen.append((stats["graphs"], stats["graph_breaks"]))
    assert stats["fallbacks"] == 0
    assert seen[1] == seen[2] == seen[3]  # no capture a call
    assert seen[1][1] == seen[0][1]
