"""Training under torch.compile(backend="oxyfuel"): TorchDynamo's graphs, ours from the joint graph
on, with batches of any size."""

from __future__ import annotations

import pytest
import torch
import torch._dynamo.config
import torch.nn.functional as F
from torch import nn
from torch._higher_order_ops.scan import scan

import oxyfuel

BATCHES = (5, 7, 12, 3, 64, 2, 1, 7)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.qkv, self.out = nn.LayerNorm(16), nn.Linear(16, 48), nn.Linear(16, 16)

    def forward(self, x):
        q, k, v = self.qkv(self.norm(x)).view(*x.shape[:2], 3, 2, 8).permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + self.out(attended.transpose(1, 2).flatten(2))


class SideResults(nn.Module):
    """A loss beside what it is computed from, and a view of the input."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(16, 16)

    def forward(self, x):
        hidden = self.linear(x).tanh()
        return hidden.square().mean(), hidden, x[:, :1]


MODULES = {
    "mlp": lambda: nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Dropout(0.1), nn.Linear(32, 16)),
    "norms": lambda: nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 16), nn.RMSNorm(16)),
    "convolution": lambda: nn.Sequential(
        nn.Unflatten(-1, (4, 4)),
        nn.Conv2d(6, 4, 3, padding=1, bias=False),
        nn.BatchNorm2d(4),
        nn.Flatten(),
    ),
    "attention": Attention,
    "side_results": SideResults,
    "recurrent": lambda: nn.GRU(16, 8, batch_first=True),
}


def tensors_of(result):
    if isinstance(result, torch.Tensor):
        return [result]
    return [t for r in result for t in tensors_of(r)]


def step(module, call, x):
    """Results, gradients of the input and the parameters, and buffers."""
    module.zero_grad()
    torch.manual_seed(0)
    results = tensors_of(call(x))
    sum((r * r.detach().cos()).sum() for r in results if r.requires_grad).backward()
    return [
        *(r.detach() for r in results),
        x.grad,
        *(p.grad for p in module.parameters()),
        *(b.clone() for b in module.buffers()),
    ]


@pytest.mark.parametrize("dynamic", (None, True, False))
@pytest.mark.parametrize("name", MODULES)
def test_modules(name, dynamic):
    torch._dynamo.reset()
    torch.manual_seed(1)
    module, ours = MODULES[name](), MODULES[name]()
    ours.load_state_dict(module.state_dict())
    compiled = torch.compile(ours, backend="oxyfuel", dynamic=dynamic)
    for n in BATCHES[: 3 if dynamic is False else None]:
        x = torch.randn(n, 6, 16)
        wanted = step(module, module, x.clone().requires_grad_())
        found = step(ours, compiled, x.clone().requires_grad_())
        assert len(found) == len(wanted)
        for a, b in zip(found, wanted, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def test_inputs_with_and_without_gradients():
    """A tensor without one beside one whose first size varies."""
    torch._dynamo.reset()
    compiled = torch.compile(lambda buffer, x: x - buffer, backend="oxyfuel")
    for n in BATCHES:
        x = torch.randn(n, 4, requires_grad=True)
        found = compiled(torch.ones(4), x)
        found.square().sum().backward()
        torch.testing.assert_close(found, x - 1)
        torch.testing.assert_close(x.grad, 2 * (x - 1).detach())


def losses_of(call, parameters):
    optimizer = torch.optim.SGD(parameters, 0.1)
    losses = []
    for n in (9, 5, 33, 8, 120, 6):
        torch.manual_seed(n)
        x = torch.randn(n, 16)
        loss = F.cross_entropy(call(x), x[:, :4].argmax(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def test_one_compilation_for_all_batches():
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    ours, plain = (nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4)) for _ in range(2))
    plain.load_state_dict(ours.state_dict())
    found = losses_of(torch.compile(ours, backend="oxyfuel", dynamic=True), ours.parameters())
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1
    assert found == pytest.approx(losses_of(plain, plain.parameters()), rel=1e-4)


def test_nested_regions():
    """TorchDynamo's op for them is its module, inlined."""
    torch._dynamo.reset()
    linear = nn.Linear(4, 4)

    @torch.compiler.nested_compile_region
    def region(x):
        return linear(x).relu(), x.sin()

    def fn(x):
        a, b = region(x)
        return region(a)[0] + b

    compiled = torch.compile(fn, backend="oxyfuel")
    for n in BATCHES:
        x = torch.randn(n, 4)
        wanted = step(linear, fn, x.clone().requires_grad_())
        found = step(linear, compiled, x.clone().requires_grad_())
        for a, b in zip(found, wanted, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
    assert oxyfuel.stats()["unsupported"] == 0


def test_nested_tensors():
    """No graph of ours has ragged dimensions: they run in eager."""
    torch._dynamo.reset()
    compiled = torch.compile(lambda x: x * 2, backend="oxyfuel")
    x = torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)], layout=torch.jagged)
    torch.testing.assert_close(compiled(x).values(), x.values() * 2)


OF_DATA = {
    "item": lambda x: x * x.sum().item(),
    "slice": lambda x: x[: int((x > 0).sum().item())] * 2,
    "mask": lambda x: (x[x > 0] * 2).sum(),
    "nonzero": lambda x: x * x.nonzero().shape[0],
    "scan": lambda x: scan(lambda c, y: (c + y, c * y), torch.zeros(()), x.detach())[1] + x,
}


@pytest.mark.parametrize("name", OF_DATA)
@torch._dynamo.config.patch(capture_scalar_outputs=True, capture_dynamic_output_shape_ops=True)
def test_code_is_captured_where_a_graph_is_not(name):
    """What depends on data, and ops that no graph of ours has."""
    torch._dynamo.reset()
    fn = OF_DATA[name]
    compiled = torch.compile(fn, backend="oxyfuel")
    for n in (7, 4, 9, 7):
        x = torch.linspace(-1, 2, n)
        found, wanted = x.clone().requires_grad_(), x.clone().requires_grad_()
        a, b = compiled(found), fn(wanted)
        torch.testing.assert_close(a, b)
        a.sum().backward()
        b.sum().backward()
        torch.testing.assert_close(found.grad, wanted.grad)
    stats = oxyfuel.stats()
    assert stats["unsupported"] == stats["fallbacks"] == 0
    assert stats["plans"] > 0
