"""torch.fx.GraphModules whose own attributes require gradients, through oxyfuel.compile_fx."""

import copy

import pytest
import torch
from model_check import first_difference
from torch import nn

import oxyfuel


class Scale(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.full((3,), 2.0))
        self.register_buffer("shift", torch.ones(3))

    def forward(self, x):
        return x * self.scale + self.shift


class Layers(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(3, 4), nn.GELU(), nn.Linear(4, 3))
        self.scale = Scale()
        self.more = nn.ModuleList([nn.LayerNorm(3), nn.Linear(3, 3, bias=False)])

    def forward(self, x, n):
        x = self.scale(self.inner(x)) * n
        for layer in self.more:
            x = layer(x)
        return x, x.argmax(-1)


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(3, 3)
        self.second = nn.Linear(3, 3, bias=False)
        self.second.weight = self.first.weight

    def forward(self, x):
        return self.second(self.first(x).tanh()) + self.first.weight.sum()


class Frozen(Layers):
    def __init__(self):
        super().__init__()
        self.inner[0].requires_grad_(False)
        self.scale.requires_grad_(False)


class Leaves(torch.fx.Tracer):
    """Modules of torch.nn stay calls of modules."""


class Inlined(torch.fx.Tracer):
    """Parameters are read in the graph."""

    def is_leaf_module(self, module, path):
        return False


def traced(model, tracer):
    return torch.fx.GraphModule(model, tracer().trace(model))


def trained(model, call, args):
    out = call(*args)
    roots = [t for t in torch.utils._pytree.tree_leaves(out) if t.requires_grad]
    torch.autograd.backward(roots, [torch.ones_like(t) for t in roots])
    found = [out, args[0].grad, {n: p.grad for n, p in model.named_parameters()}]
    model.zero_grad()
    args[0].grad = None
    return found


CASES = {
    "scale": (Scale, ()),
    "layers": (Layers, (3,)),
    "tied": (Tied, ()),
    "frozen": (Frozen, (2,)),
}


@pytest.mark.parametrize("tracer", [Leaves, Inlined], ids=["modules", "parameters"])
@pytest.mark.parametrize("name", CASES)
def test_gradients(name, tracer):
    make, more = CASES[name]
    model = make()
    gm = traced(model, tracer)
    f = oxyfuel.compile_fx(gm)
    for rows in (2, 2, 5):
        x = torch.randn(rows, 3).requires_grad_()
        wanted = trained(gm, gm, (x, *more))
        assert not first_difference(trained(gm, f, (x, *more)), wanted)
    stats = oxyfuel.stats()
    assert stats["grad_fallbacks"] == stats["unsupported"] == stats["fallbacks"] == 0
    assert stats["plans"] >= 2


def test_inference_and_training_take_turns():
    model = Layers()
    f = oxyfuel.compile_fx(traced(model, Leaves))
    x = torch.randn(2, 3)
    for _ in range(2):
        with torch.no_grad():
            assert not f(x, 2)[0].requires_grad
        assert f(x, 2)[0].requires_grad
    assert oxyfuel.stats()["plans"] == 2
    model.requires_grad_(False)
    assert not f(x, 2)[0].requires_grad
    model.requires_grad_(True)
    assert f(x, 2)[0].requires_grad


def test_steps_of_an_optimizer_are_seen():
    results = []
    for wrap in (lambda gm: gm, oxyfuel.compile_fx):
        torch.manual_seed(0)
        model = traced(Layers(), Leaves)
        call = wrap(model)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
        for i in range(5):
            if i == 3:  # another object in its place
                model.scale.scale = nn.Parameter(torch.full((3,), 0.5))
                optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            call(torch.randn(2, 3), 2)[0].square().sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        results.append([p.detach() for p in model.parameters()])
    for found, wanted in zip(*reversed(results)):
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)


def test_a_copy_has_parameters_of_its_own():
    gm = traced(Scale(), Leaves)
    other = copy.deepcopy(gm)
    f, g = oxyfuel.compile_fx(gm), oxyfuel.compile_fx(other)
    f(torch.ones(3)).sum().backward()
    g(torch.full((3,), 2.0)).sum().backward()
    assert gm.scale.grad.tolist() == [1.0] * 3 and other.scale.grad.tolist() == [2.0] * 3


def test_a_call_that_raises_raises_eagers():
    gm = traced(Scale(), Leaves)
    f = oxyfuel.compile_fx(gm)
    for call in (gm, f):
        with pytest.raises(RuntimeError, match="must match the size"):
            call(torch.ones(4))
