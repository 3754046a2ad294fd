"""What is seen at a result that other results are computed from: gradients by it, its hooks and
`retain_grad`, against eager."""

import gc
import weakref

import pytest
import torch
from model_check import first_difference
from torch import nn

import oxyfuel


class Layers(nn.Module):
    """As a model that gives its hidden states: each is computed from the one before."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))
        self.norm = nn.LayerNorm(4)

    def forward(self, x):
        hidden = []
        for layer in self.layers:
            x = self.norm(nn.functional.gelu(layer(x)) + x)
            hidden.append(x)
        return (x * 3).square().mean(), *hidden, x.sum(-1)


def gradients(model):
    return [p.grad for p in model.parameters()]


def both(step, sizes=(3,), **options):
    """What a step gives in eager and compiled."""
    results = []
    for wrap in (lambda m: m, lambda m: oxyfuel.compile(m, fullgraph=True, **options)):
        torch.manual_seed(0)
        model = Layers()
        run = wrap(model)
        found = []
        for size in sizes:
            model.zero_grad()
            x = torch.randn(size, 4, requires_grad=True)
            found.append((step(run, x), gradients(model), x.grad))
        results.append(found)
    assert not first_difference(results[1], results[0])
    assert oxyfuel.stats()["grad_fallbacks"] == 0


def by_results(run, x):
    loss, first, second, third, rows = run(x)
    return (
        torch.autograd.grad(loss, [third, second, first], retain_graph=True),
        torch.autograd.grad(loss, [first, x], retain_graph=True),
        torch.autograd.grad([rows.sum(), loss], [second], retain_graph=True),
        torch.autograd.grad(second.sum(), [third, x], retain_graph=True, allow_unused=True),
        torch.autograd.grad(third.sum(), first),
    )


def retained(run, x):
    loss, first, second, third, _ = run(x)
    for t in (first, second, third):
        t.retain_grad()
    (loss + second.square().sum()).backward()
    return first.grad, second.grad, third.grad


def one_retained(run, x):
    loss, _, second, third, rows = run(x)
    second.retain_grad()
    (loss + third.sum() + rows.sum()).backward()
    return second.grad


def hooks(run, x):
    loss, first, second, *_ = run(x)
    seen = []
    first.register_hook(lambda g: seen.append(g.clone()))
    second.register_hook(lambda g: g * 3)
    second.register_hook(lambda g: seen.append(g.clone()))
    loss.backward()
    return seen


def hooks_of_nodes(run, x):
    loss, first, *_ = run(x)
    seen = []
    first.grad_fn.register_prehook(lambda g: seen.append(g[-1].clone()))
    loss.backward()
    return seen


def by_inputs(run, x):
    loss, first, second, *_ = run(x)
    loss.backward(inputs=[second], retain_graph=True)
    loss.backward(inputs=[first, x])
    return first.grad, second.grad


def the_middle_alone(run, x):
    run(x)[2].square().sum().backward()


def the_middle_and_then_the_rest(run, x):
    loss, _, second, *_ = run(x)
    second.sum().backward(retain_graph=True)
    loss.backward()


def by_hand(run, x):
    loss, first, second, *_ = run(x)
    (at_second,) = torch.autograd.grad(loss, second)
    (at_first,) = torch.autograd.grad(second, first, at_second)
    first.backward(at_first)
    return at_second, at_first


def twice(run, x):
    loss, first, *_ = run(x)
    torch.autograd.grad(loss, first)
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        torch.autograd.grad(loss, first)


def batched(run, x):
    _, first, _, third, _ = run(x)
    many = torch.arange(5.0 * third.numel()).view(5, *third.shape).sin()
    return torch.autograd.grad(third, first, many, is_grads_batched=True)


STEPS = [
    by_results,
    retained,
    one_retained,
    hooks,
    hooks_of_nodes,
    by_inputs,
    the_middle_alone,
    the_middle_and_then_the_rest,
    by_hand,
    twice,
    batched,
]


@pytest.mark.parametrize("step", STEPS, ids=lambda f: f.__name__)
def test_hidden_states(step):
    both(step)


@pytest.mark.parametrize("step", STEPS, ids=lambda f: f.__name__)
def test_symbolic_sizes(step):
    both(step, sizes=(3, 5, 2, 7), dynamic=True)


def test_results_die():
    loss, *hidden = oxyfuel.compile(Layers())(torch.randn(3, 4))
    alive = [weakref.ref(t) for t in (loss, *hidden)]
    del loss, hidden
    gc.collect()
    assert not any(r() is not None for r in alive)


def test_create_graph():
    """Right first derivatives; what arrived from outside keeps its own history."""
    results = []
    for wrap in (lambda f: f, oxyfuel.compile):
        run = wrap(lambda x: (lambda h: (h, h + 1, h.exp()))(x * 2))
        torch.manual_seed(0)
        x = torch.randn(3, requires_grad=True)
        double, more, exp = run(x)
        arriving = torch.randn(3, requires_grad=True)
        (g,) = torch.autograd.grad(more, double, arriving, create_graph=True)
        assert g.requires_grad and arriving.is_leaf
        results.append((g.detach(), *torch.autograd.grad(exp.sum(), double)))
    assert not first_difference(results[1], results[0])


def test_gradient_is_written():
    """It may be what arrived: other gradients do not see it."""
    results = []
    for wrap in (lambda f: f, oxyfuel.compile):
        run = wrap(lambda x: (lambda h: (h, h + 1, (h + 1).exp()))(x * 2))
        torch.manual_seed(0)
        x = torch.randn(3, requires_grad=True)
        double, more, exp = run(x)
        arriving = torch.randn(3)
        (g,) = torch.autograd.grad(more, double, arriving, retain_graph=True)
        g.mul_(2)
        double.register_hook(lambda g: g.clone().mul_(2))
        exp.sum().backward()
        results.append((g, arriving, x.grad))
    assert not first_difference(results[1], results[0])


def test_written_input():
    def double_(z):
        z.mul_(2)
        return (z**2).sum(), z.sin()

    results = []
    for wrap in (lambda f: f, oxyfuel.compile):
        run = wrap(double_)
        torch.manual_seed(0)
        x = torch.randn(3, requires_grad=True)
        z = x * 1
        loss, sine = run(z)
        z.retain_grad()
        found = torch.autograd.grad([loss, sine.sum()], z, retain_graph=True)
        (loss + sine.sum()).backward()
        results.append((found, z.grad, x.grad))
    assert not first_difference(results[1], results[0])


def test_constant_gradient():
    """A function whose gradient is no linear function of what arrives."""

    class Biased(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * 2 + 1

    results = []
    for wrap in (lambda f: f, oxyfuel.compile):
        run = wrap(lambda x: (lambda h: (h, Biased.apply(h).sum()))(x.exp()))
        x = torch.arange(3.0, requires_grad=True)
        h, loss = run(x)
        h.retain_grad()
        loss.backward()
        results.append((h.grad, x.grad))
    assert not first_difference(results[1], results[0])


def test_leaves_that_are_no_inputs():
    """In eager a view made under no_grad is a leaf of its own."""

    def f(x):
        with torch.no_grad():
            leaf = x.view(12)
        first = leaf.exp()
        return first * 2 + leaf, first, x.sin()

    def seen(run):
        x = torch.rand(3, 4, generator=torch.Generator().manual_seed(0), requires_grad=True)
        last, first, other = run(x)
        by_first = torch.autograd.grad(last.sum(), first, retain_graph=True)
        last.sum().backward()
        with pytest.raises(RuntimeError, match="second time"):
            last.sum().backward()
        other.sum().backward()
        return *by_first, x.grad

    torch.testing.assert_close(seen(oxyfuel.compile(f)), seen(f))


class Doubles(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2, x * 3

    @staticmethod
    def backward(ctx, a, b):
        return a * 2 + b * 3


OF_ONE_NODE = {
    "function": Doubles.apply,
    "op": lambda x: torch.var_mean(x, 0),
    "pieces": lambda x: x.sin().chunk(2),
    "pieces of an input": lambda x: x.chunk(2),
}


@pytest.mark.parametrize("used", [0, 1])
@pytest.mark.parametrize("name", OF_ONE_NODE)
def test_hooks_of_what_nothing_arrives_at(name, used):
    """Eager's node of several results calls the hooks of all of them."""

    def f(x):
        out = OF_ONE_NODE[name](x)
        return *out, out[used].exp()

    def step(run):
        heard = []
        x = torch.arange(6.0).reshape(2, 3).requires_grad_()
        *results, last = run(x)
        for i, t in enumerate(results):
            t.register_hook(lambda g, i=i: heard.append((i, g is None)))
        last.sum().backward(retain_graph=True)
        results[used].sum().backward()
        return heard, x.grad

    assert not first_difference(step(oxyfuel.compile(f, fullgraph=True)), step(f))
