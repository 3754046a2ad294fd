"""Captures that begin without grad mode, behind a break, and leave it on: their results train."""

import pytest
import torch

import oxyfuel

pytestmark = pytest.mark.usefixtures("strict")
WEIGHT = torch.ones(3, requires_grad=True)
BUFFER = torch.zeros(3)


def number_of_data(x):
    y = x * WEIGHT
    with torch.no_grad():
        n = int(y.sum() * 0)
    return (torch.sin(y * WEIGHT + n),)


def ops_on_both_sides(x):
    y = x * WEIGHT
    with torch.no_grad():
        n = float(y.sum())
        z = y * 2
        BUFFER.add_(z)
    return torch.sin(y * WEIGHT + n + z), z


@torch.no_grad()
def enqueue(y):
    BUFFER.mul_(0.5)
    if y.sum() > 1e9:
        return y
    BUFFER.add_(y)
    return y.clone()


def decorated(x):
    y = x * WEIGHT
    z = enqueue(y)
    return (y + (z - y).detach()).pow(2), z


def nested(x):
    y = x * WEIGHT
    with torch.no_grad():
        oxyfuel.graph_break()
        z = y * 2
        with torch.enable_grad():
            u = z + WEIGHT
            v = y.view(-1)
        k = u * 2
        oxyfuel.graph_break()
    return y * WEIGHT + u + k + v, u, k, v


def leaf_changes(x):
    y = x * 2
    with torch.no_grad():
        oxyfuel.graph_break()
        WEIGHT.mul_(0.9)
        v = y[1:]
    return y + WEIGHT * 3 + v.sum(), v


def nothing_requires(x):
    with torch.no_grad():
        oxyfuel.graph_break()
        a = x * 2
    return a + 1, a


def branch_in_graph(x):
    y = x * WEIGHT
    with torch.no_grad():
        oxyfuel.graph_break()
        a = x * 2
    return (torch.cond(a.sum() > 0, lambda y: y * WEIGHT, lambda y: y - WEIGHT, (y,)),)


def only_views(x):
    with torch.no_grad():
        oxyfuel.graph_break()
        a = x * 2
    return a, WEIGHT.view(-1), WEIGHT[1:], *WEIGHT.split(1), *WEIGHT.unbind()


def views_on_both_sides(x):
    y = x * WEIGHT
    with torch.no_grad():
        oxyfuel.graph_break()
        with torch.enable_grad():
            u = y.view(-1)
        v = y[1:]
        oxyfuel.graph_break()
        with torch.enable_grad():
            w = WEIGHT[1:]
    return u, v, w, WEIGHT.detach()[1:]


def only_enabled_inside(x):
    with torch.enable_grad():
        y = WEIGHT.view(-1)
    return y, WEIGHT.view(-1), x[1:]


def in_autocast(x):
    with torch.no_grad():
        oxyfuel.graph_break()
        a = x * 2
    with torch.autocast("cpu", torch.bfloat16):
        return ((a[None] @ (WEIGHT * WEIGHT)[:, None]).float(),)


def gradient(t):
    """By the weight, or what autograd says of a view that was made without grad mode."""
    try:
        given = torch.autograd.grad(t.sum(), [WEIGHT], retain_graph=True, allow_unused=True)
        return str(given)
    except RuntimeError as e:
        return str(e).split(".")[0]


def train(function, around):
    torch.manual_seed(1)
    with torch.no_grad():
        WEIGHT.copy_(torch.tensor([1.0, 2.0, 3.0]))
        BUFFER.zero_()
    WEIGHT.grad = None
    seen = []
    for _ in range(3):
        with around():
            results = function(torch.randn(3))
            seen.append(torch.is_grad_enabled())
        if results[0].requires_grad:
            results[0].sum().backward()
        seen += [(t.requires_grad, t.is_leaf, t._is_view()) for t in results]
        seen += [gradient(t) for t in results]
        seen += [t.detach().clone() for t in results] + [BUFFER.clone(), WEIGHT.detach().clone()]
        seen.append(None if WEIGHT.grad is None else WEIGHT.grad.clone())
    return seen


@pytest.mark.parametrize("backend", ["native", "eager", "aot_eager"])
@pytest.mark.parametrize("around", [torch.enable_grad, torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize(
    "function",
    [
        number_of_data,
        ops_on_both_sides,
        decorated,
        nested,
        leaf_changes,
        nothing_requires,
        branch_in_graph,
        in_autocast,
        only_views,
        views_on_both_sides,
        only_enabled_inside,
    ],
)
def test_what_comes_behind(function, around, backend):
    if around is torch.inference_mode and function is leaf_changes:
        pytest.skip("a leaf that training made is not changed there")
    compiled = oxyfuel.compile(function, backend=backend)
    ours, eagers = train(compiled, around), train(function, around)
    assert len(ours) == len(eagers)
    for a, b in zip(ours, eagers, strict=True):
        if isinstance(b, torch.Tensor):
            torch.testing.assert_close(a, b)
        else:
            assert a == b
    assert oxyfuel.stats()["unsupported"] == 0


def test_graphs_of_torch_dynamo():
    """They begin without grad mode and switch it on inside."""

    def run(function):
        with torch.no_grad():
            results = function(torch.arange(3.0))
        return [(t.requires_grad, t.is_leaf, gradient(t)) for t in results]

    compiled = torch.compile(only_enabled_inside, backend="oxyfuel")
    for _ in range(2):
        assert run(compiled) == run(only_enabled_inside)


def test_what_requires_gradients_is_guarded():
    def f(x):
        with torch.no_grad():
            oxyfuel.graph_break()
            y = x * 2
        return x * y

    compiled = oxyfuel.compile(f)
    for requires in (False, True, False, True):
        x = torch.randn(3, requires_grad=requires)
        assert compiled(x).requires_grad == requires
    assert oxyfuel.stats()["unsupported"] == 0
