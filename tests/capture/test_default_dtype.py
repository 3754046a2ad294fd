"""A default dtype that is not float32: of new tensors, and of what is computed with integers."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import oxyfuel

X = torch.randn(6, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
WHOLE = torch.arange(48).view(6, 8)


@pytest.fixture(autouse=True, params=(torch.float64, torch.bfloat16), ids=str)
def default(request, monkeypatch):
    monkeypatch.setenv("OXYFUEL_STRICT", "1")
    oxyfuel.reset()
    before = torch.get_default_dtype()
    torch.set_default_dtype(request.param)
    yield
    torch.set_default_dtype(before)


PROGRAMS = {
    "floats": lambda x, i: torch.softmax(x, -1) * 2.5 + x.std() + x.float() * 0.1,
    "new": lambda x, i: (
        x + torch.ones(8) + torch.zeros(6, 1) + torch.full((8,), 2.5) + torch.arange(0.0, 8.0)
    ),
    "new_of_others": lambda x, i: (torch.eye(3, 4), torch.linspace(0, 1, 5), torch.rand(3)),
    "new_of_a_dtype": lambda x, i: (torch.zeros(3, dtype=torch.float32), torch.full((2,), True)),
    "like": lambda x, i: (
        torch.zeros_like(i),
        torch.ones_like(x),
        x.new_full((8,), 3),
        i.new_ones(2),
    ),
    "tensors": lambda x, i: torch.tensor(2.5) * x + torch.tensor([1.5, 2.5]).sum(),
    "times": lambda x, i: i * 2.5,
    "quotient": lambda x, i: (i / 3, i / (i + 1), i // 2, i % 3, 1 / (i + 1)),
    "functions": lambda x, i: (i.sin(), (i + 1).log(), i.sqrt(), torch.sigmoid(i), i.exp2()),
    "powers": lambda x, i: (i**2, i**0.5, 2.0 ** (i % 5), (i + 1) ** -1.0),
    "truths": lambda x, i: ((x > 0) * 2.0, (x > 0).sum() / 3, (x > 0) + 1, ~(i > 2)),
    "clamped": lambda x, i: (i.clamp(0.5, 7.5), i.clamp(2, 5), torch.maximum(i, i + 1)),
    "where": lambda x, i: (torch.where(i > 3, 1.0, 0.0), torch.where(i > 3, i, 2.5)),
    "mixed": lambda x, i: (i + x, x.float() * i, i * torch.tensor(2.0, dtype=torch.float32)),
    "reduced": lambda x, i: (i.sum(), i.float().mean(), i.prod(0), i.double().var(0), i.amax()),
    "complex": lambda x, i: ((x * 1j).abs(), (x.float() * 1j).real),
    "indices": lambda x, i: (x[i % 4], F.one_hot(i[0] % 4, 8) + x[0], F.embedding(i % 4, x)),
    "atan2": lambda x, i: (torch.atan2(i, i + 1), torch.lerp(x, x + 1, 0.25), torch.xlogy(i, 2)),
    "refused": lambda x, i: F.gelu(i),
    "refused_in_place": lambda x, i: i.clone().mul_(2.5),
    "refused_mean": lambda x, i: i.mean(),
}


def result(function, *args):
    torch.manual_seed(0)
    try:
        return function(*args)
    except (RuntimeError, TypeError) as e:
        return type(e).__name__


@pytest.mark.parametrize("dynamic", (None, True))
@pytest.mark.parametrize("name", PROGRAMS)
def test_as_eager(name, dynamic):
    compiled = oxyfuel.compile(PROGRAMS[name], dynamic=dynamic)
    for rows in (6, 6, 5, 4):
        actual, expected = (result(f, X[:rows], WHOLE[:rows]) for f in (compiled, PROGRAMS[name]))
        if isinstance(expected, str):
            assert actual == expected
        else:
            torch.testing.assert_close(actual, expected)
    stats = oxyfuel.stats()
    assert stats["fallbacks"] == 0
    if not name.startswith("refused"):
        assert stats["graphs"] > 0 and stats["graph_breaks"] <= 1


def test_floats_that_vary():
    def f(x, i, v):
        return x * v + torch.full((8,), v), i * v, x.add(x, alpha=v), i.add(i, alpha=2)

    compiled = oxyfuel.compile(f)
    for v in (0.5, 0.25, 1.5, 3.5):
        torch.testing.assert_close(compiled(X, WHOLE, v), f(X, WHOLE, v))


def test_the_default_changes():
    def f(x):
        return x * torch.ones(3), torch.arange(3) / 2

    compiled, x, before = oxyfuel.compile(f), torch.randn(3), torch.get_default_dtype()
    for dtype in (torch.float32, before, torch.float16, torch.float32, before):
        torch.set_default_dtype(dtype)
        torch.testing.assert_close(compiled(x), f(x))
    assert oxyfuel.stats()["recompiles"] == 2


def test_training():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.LayerNorm(16), torch.nn.GELU(),
                                torch.nn.Linear(16, 4))  # fmt: skip
    x, target = X.to(torch.get_default_dtype()), torch.tensor([0, 1, 2, 3, 0, 1])
    losses = []
    for compiled in (False, True):
        net = type(model)(*model)
        state = {k: v.clone() for k, v in model.state_dict().items()}
        optimizer = torch.optim.AdamW(net.parameters(), 1e-2)
        call = oxyfuel.compile(net) if compiled else net
        seen = []
        for _ in range(4):
            loss = F.cross_entropy(call(x), target)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            seen.append(loss.detach())
        losses.append(torch.stack(seen))
        model.load_state_dict(state)
    torch.testing.assert_close(*losses, rtol=2e-2, atol=2e-2)
