"""Backwards that are cut where gradients fill buckets, as under DistributedDataParallel, against
eager. Buckets of a byte: a piece for each gradient."""

import itertools
from types import SimpleNamespace

import pytest
import torch
from model_check import first_difference
from test_distributed import pieces_of
from torch import nn

import oxyfuel


@pytest.fixture(autouse=True)
def buckets(monkeypatch):
    """What torch says while the forward of a DistributedDataParallel runs."""
    ddp = nn.parallel.DistributedDataParallel
    monkeypatch.setattr(ddp, "_active_ddp_module", SimpleNamespace(bucket_bytes_cap=1))


class Model(nn.Module):
    """Tied weights, a gradient that is another one's memory, dropout, views."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(6, 6)
        self.shift = nn.Parameter(torch.randn(4, 6))
        self.second = nn.Linear(6, 6)
        self.norm = nn.LayerNorm(6)
        self.head = nn.Linear(6, 3)

    def forward(self, x):
        x = nn.functional.gelu(self.first(x)) + self.shift
        x = nn.functional.dropout(self.second(x).view(2, 2, 6), 0.3).reshape(4, 6) + x
        x = self.norm(self.first(x))
        return self.head(x), x.t()


def both(step):
    """What a step gives in eager and compiled."""
    results = []
    for wrap in (lambda m: m, oxyfuel.compile):
        torch.manual_seed(0)
        model = Model()
        results.append(step(model, wrap(model)))
    assert not first_difference(results[1], results[0])
    stats = oxyfuel.stats()
    assert stats["graphs"] == 1 and stats["unsupported"] == stats["grad_fallbacks"] == 0


def gradients(model):
    return {name: p.grad for name, p in model.named_parameters()}


def test_nodes():
    result, _ = oxyfuel.compile(Model())(torch.randn(4, 6))
    pieces = pieces_of(result)
    assert len(pieces) > 4
    for node, after in itertools.pairwise(pieces):
        assert node.next_functions[-1][0] is after


@pytest.mark.parametrize("used", [(0,), (1,), (0, 1)])
def test_steps(used):
    """Accumulated over steps, by some of the results."""

    def step(model, run):
        x = torch.randn(4, 6, requires_grad=True)
        for _ in range(3):
            out = run(x)
            sum(out[i].square().sum() for i in used).backward()
        return gradients(model), x.grad

    both(step)


def test_gradients_are_written_as_soon_as_they_are_there():
    """As an allreduce does, while the pieces behind run."""

    def written(p):
        p.grad.zero_()

    def step(model, run):
        for p in model.parameters():
            p.register_post_accumulate_grad_hook(written)
        x = torch.randn(4, 6, requires_grad=True)
        sum(o.square().sum() for o in run(x)).backward()
        return gradients(model), x.grad

    both(step)


@pytest.mark.parametrize("name", ["head.weight", "second.weight", "first.bias", "shift"])
def test_some_gradients_alone(name):
    def step(model, run):
        loss = sum(o.square().sum() for o in run(torch.randn(4, 6)))
        weight = model.get_parameter(name)
        first = torch.autograd.grad(loss, weight, retain_graph=True)
        again = torch.autograd.grad(loss, weight, retain_graph=True)
        loss.backward(inputs=[weight], retain_graph=True)
        only = gradients(model)
        loss.backward()
        return first, again, only, gradients(model)

    both(step)


def test_twice_without_retain_graph():
    def step(model, run):
        loss = run(torch.randn(4, 6))[0].sum()
        loss.backward()
        with pytest.raises(RuntimeError, match="backward through the graph a second time"):
            loss.backward()
        return gradients(model)

    both(step)


def test_saved_tensor_is_written():
    def step(model, run):
        x = torch.randn(4, 6)
        loss = run(x)[0].sum()
        x.add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()

    both(step)


def test_no_second_derivative():
    model = Model()
    out = oxyfuel.compile(model)(torch.randn(4, 6))[0]
    for name in ("head.weight", "first.bias"):
        weight = model.get_parameter(name)
        (g,) = torch.autograd.grad(out.square().sum(), weight, create_graph=True)
        with pytest.raises(RuntimeError, match="does not currently support double backward"):
            g.sum().backward(retain_graph=True)


def test_result_of_a_tangent_that_arrives_late():
    """Only a result that the first piece has nothing to do with is used."""

    def fn(x, w, v):
        return (x * w).sin(), (x @ v).cos()

    results = []
    for f in (fn, oxyfuel.compile(fn)):
        torch.manual_seed(0)
        x, w, v = (torch.randn(3, 3, requires_grad=True) for _ in range(3))
        for i in (0, 1, 0):
            f(x, w, v)[i].sum().backward()
        results.append([x.grad, w.grad, v.grad])
    assert not first_difference(results[1], results[0])


def test_lengths():
    """One compilation for all of them."""
    model = nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 2))
    run = oxyfuel.compile(model)
    for length in (3, 5, 7, 2, 9):
        x = torch.randn(length, 6)
        expected = torch.autograd.grad(model(x).square().sum(), list(model.parameters()))
        found = torch.autograd.grad(run(x).square().sum(), list(model.parameters()))
        assert not first_difference(found, expected)
    assert oxyfuel.stats()["graphs"] <= 2
