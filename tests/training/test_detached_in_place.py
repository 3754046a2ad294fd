"""Tensor.detach_: of what captured code has made, and of what was there before the call, which is
detached once the graph has run."""

import pytest
import torch
from torch import nn

import oxyfuel


def weights():
    return torch.arange(1.0, 4.0).requires_grad_()


def behind_a_use(x, w):
    y = x * w
    z = y + w
    y.detach_()
    return (y * w).sum() + z.sum(), (y.requires_grad, y.is_leaf)


def an_input(x, w):
    out = x + w
    x.detach_()
    return (out * x).sum(), x.requires_grad


def by_the_function(x, w):
    torch.detach_(x)
    return (x * w).sum(), x.is_leaf


def with_a_view(x, w):
    v = x[1:]
    x.detach_()
    return (v * 2).sum() + (x * w).sum(), x


def and_written(x, w):
    x.detach_()
    x.mul_(w)
    return x.sum(), x.requires_grad


def and_required_again(x, w):
    x.detach_()
    x.requires_grad_()
    return (x * w).sum(), x.is_leaf


def a_view(x, w):
    x.view(3, 1).detach_()
    return x.sum(), None


FUNCTIONS = [
    behind_a_use, an_input, by_the_function, with_a_view, and_written, and_required_again, a_view
]  # fmt: skip


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("leaf", [True, False])
def test_detached_in_place(function, leaf):
    def step(f):
        w = weights()
        x = weights() if leaf else w * 2
        try:
            out, what = f(x, w)
            out.backward()
        except RuntimeError as error:
            return str(error)
        return out.item(), what, x.tolist(), w.grad, x.requires_grad, x.is_leaf

    compiled = oxyfuel.compile(function)
    for _ in range(2):
        assert str(step(compiled)) == str(step(function))
    if function in FUNCTIONS[:4] and not (leaf and function is with_a_view):
        assert oxyfuel.stats()["graph_breaks"] == 0
    assert oxyfuel.stats()["fallbacks"] == oxyfuel.stats()["grad_fallbacks"] == 0


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.cell, self.state = nn.GRUCell(2, 2), None

    def forward(self, x):
        if self.state is None:
            self.state = x.new_zeros(1, 2)
        else:
            self.state.detach_()
        self.state = self.cell(x, self.state)
        return self.state


def test_a_state_that_is_detached_between_steps():
    def train(wrap):
        module = Recurrent()
        compiled = wrap(module)
        for i in range(4):
            compiled(torch.full((1, 2), float(i))).sum().backward()
        return [module.state, *(p.grad for p in module.parameters())]

    torch.testing.assert_close(
        train(lambda m: oxyfuel.compile(m, fullgraph=True)), train(lambda m: m)
    )
