"""Writes into views of views of what was computed: values and gradients of eager."""

import random

import pytest
import torch

import oxyfuel


@pytest.fixture(autouse=True)
def strict(monkeypatch):
    monkeypatch.setenv("OXYFUEL_STRICT", "1")


WRITES = {
    "mul": lambda t: t.mul_(2.0),
    "add": lambda t: t.add_(1.0),
    "zero": lambda t: t.zero_(),
    "clamp": lambda t: t.clamp_(-0.5, 0.5),
    "flipped": lambda t: t.copy_(t.detach().flip(0)),
    "itself": lambda t: t.add_(t.clone().flip(-1)),
}


def divisor(rng, n):
    return rng.choice([d for d in range(1, n + 1) if n % d == 0])


def viewed(rng, kind, t):
    """A function that takes such a view of tensors like `t`."""
    if kind == "view":
        rows = divisor(rng, t.numel())
        rest = t.numel() // rows
        inner = divisor(rng, rest) if rng.random() < 0.3 else rest
        return lambda t: t.view(rows, rest // inner, inner).squeeze(1)
    if kind == "transpose":
        return lambda t: t.transpose(0, -1)
    dim = rng.randrange(t.dim())
    size = t.shape[dim]
    begin = rng.randint(0, size // 3)
    end, step = rng.randint(max(begin + 1, size - size // 2), size), rng.choice((1, 1, 1, 2))
    return lambda t: t[(slice(None),) * dim + (slice(begin, end, step),)]


def drawn_view(rng, size):
    steps, t = [], torch.arange(size)
    for _ in range(rng.randint(2, 6)):
        kind = rng.choice(["view", "slice", "slice", "transpose"])
        if kind == "view" and not t.is_contiguous():
            continue
        steps.append(viewed(rng, kind, t))
        t = steps[-1](t)

    def view(t):
        for step in steps:
            t = step(t)
        return t

    return view


@pytest.mark.parametrize("seed", range(80))
def test_drawn_views(seed):
    rng = random.Random(seed)
    size = rng.choice((24, 60, 96, 120, 128, 240, 1920))
    first, second = drawn_view(rng, size), drawn_view(rng, size)
    writes = rng.choices(list(WRITES.values()), k=2)
    twice = rng.random() < 0.5

    def computed(x):
        y = x.cos()
        writes[0](first(y))
        if twice:
            writes[1](second(y))
        return y * 2, second(y).sigmoid()

    def given(x):
        writes[0](first(x))
        writes[1](second(x))
        return x + 1

    torch.manual_seed(seed)
    x = torch.randn(size, requires_grad=True)
    results = []
    for f in (computed, oxyfuel.compile(computed)):
        y, z = f(x)
        results.append((y, z, *torch.autograd.grad((y * y).sum() + z.sum(), x)))
    torch.testing.assert_close(*results)
    ours, theirs = x.detach().clone(), x.detach().clone()
    torch.testing.assert_close(oxyfuel.compile(given)(ours), given(theirs))
    torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("factor", [2.0, 0.0])
def test_a_piece_of_rows_in_another_shape(factor):
    """The relative shift of attention: rows that begin elsewhere in memory, of which few columns
    are written."""

    def f(q, r, v):
        p = torch.matmul(q, r).reshape(16, 8)[1:].reshape(8, 15)[..., :4]
        p *= factor
        return torch.matmul(p.sigmoid(), v)

    q, r, v = torch.randn(8, 8, requires_grad=True), torch.randn(8, 16), torch.randn(4, 8)
    grads = [torch.autograd.grad(g(q, r, v).sum(), q)[0] for g in (oxyfuel.compile(f), f)]
    torch.testing.assert_close(*grads)
