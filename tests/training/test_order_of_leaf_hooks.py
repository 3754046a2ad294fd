"""Hooks of a compiled model's parameters are called in eager's order: as gradients become ready."""

import pytest
import torch
from model_check import first_difference
from torch import nn

import oxyfuel


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(2, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4)
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
        self.layer_norm, self.out = nn.LayerNorm(4), nn.Linear(4, 2)
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True)
        self.unused = nn.Linear(4, 2)

    def forward(self, x):
        h = self.norm(self.conv(x)).relu().mean((2, 3))
        h = h + self.second(self.first(self.layer_norm(h)).tanh())
        a, _ = self.attention(h[None], h[None], h[None])
        return self.out(h + a[0]), self.first(h)  # used twice


def accumulator(p):
    return p.expand_as(p).grad_fn.next_functions[0][0]


def register(kind, model, heard):
    kept = []
    for n, p in model.named_parameters():
        if kind == "accumulated":
            p.register_post_accumulate_grad_hook(lambda _, n=n: heard.append(n))
        elif kind == "arrived":
            p.register_hook(lambda g, n=n: (heard.append(n), g * 2)[1])
        elif kind == "node":
            kept.append(accumulator(p))
            kept[-1].register_hook(lambda *_, n=n: heard.append(n))
        elif kind == "optimizer":
            optimizer = torch.optim.SGD([p], 0.1, momentum=0.9)

            def step(p, optimizer=optimizer, n=n):
                heard.append((n, p.grad.sum()))
                optimizer.step()
                optimizer.zero_grad()

            p.register_post_accumulate_grad_hook(step)
        elif kind == "one" and n == "first.weight":

            def look(_):
                heard.append([k for k, q in model.named_parameters() if q.grad is not None])

            p.register_hook(look)
    return kept


def train(kind, on, results, made):
    torch.manual_seed(0)
    model, heard, out = Model().double(), [], []  # gradients of a norm's operand cancel
    kept = register(kind, model, heard)
    f = oxyfuel.compile(model) if on else model
    for _ in range(3):
        heard.clear()
        x = torch.randn(3, 2, 5, 5, dtype=torch.float64)
        x = x.requires_grad_() * 1 if made else x
        a, b = f(x)
        loss = a.pow(2).sum() + (b.sum() if results == 2 else 0)
        loss.backward()
        out += [loss.detach(), list(heard), [p.grad for p in model.parameters()]]
        if kind != "optimizer":
            model.zero_grad()
    del kept
    return out, list(model.parameters())


@pytest.mark.parametrize("made", [False, True])
@pytest.mark.parametrize("results", [1, 2])
@pytest.mark.parametrize("kind", ["accumulated", "arrived", "node", "optimizer", "one"])
def test_order(kind, results, made):
    found, expected = train(kind, True, results, made), train(kind, False, results, made)
    assert not first_difference(found, expected)
    stats = oxyfuel.stats()
    assert (stats["graph_breaks"], stats["fallbacks"], stats["grad_fallbacks"]) == (0, 0, 0)


def test_gradients_by_some():
    def run(on):
        torch.manual_seed(0)
        model = Model()
        register("arrived", model, [])
        f = oxyfuel.compile(model) if on else model
        x = torch.randn(3, 2, 5, 5)
        some = [model.first.weight, model.conv.weight]
        out = [torch.autograd.grad(f(x)[0].sum(), some)]
        f(x)[0].sum().backward(inputs=some)
        return out, [p.grad for p in model.parameters()]

    assert not first_difference(run(True), run(False))


@pytest.mark.parametrize("count", [2, 3, 5, 8, 13])
def test_hooks_that_are_registered_behind_the_forward(count):
    """Without hooks in the forward nothing stands in front of leaves: the engine's heap decides."""

    def f(*leaves):
        h = leaves[0]
        for x in leaves[1:]:
            h = (h * x.cos()).sin()
        return h.sum() + sum((x * x).sum() for x in leaves)

    def step(run):
        heard = []
        leaves = [torch.full((2,), 0.5 + i, requires_grad=True) for i in range(count)]
        out = run(*leaves)
        for i, x in enumerate(leaves):
            x.register_hook(lambda g, i=i: heard.append(i))
        first = leaves[0].register_hook(lambda g: g * 10)
        leaves[-1].register_hook(lambda g: first.remove())
        out.backward()
        return heard, [x.grad for x in leaves]

    assert not first_difference(step(oxyfuel.compile(f)), step(f))
