"""Results that do not depend on each other, and views among results: what backwards from one of
them call, fill and let go of, and how autograd knows each, against eager."""

import gc
import re
import weakref

import pytest
import torch
from model_check import first_difference

import oxyfuel


def leaves():
    torch.manual_seed(0)
    return [torch.randn(4, 4, requires_grad=True) for _ in range(2)]


def side_by_side(x, w):
    h = x.sin() @ w
    y = x.exp()
    return h, y, y * y


def nothing_shared(x, w):
    return x.exp(), w.exp()


def a_hook_of_another(f, x, w):
    h, y, _ = f(x, w)
    seen = []
    y.register_hook(seen.append)
    h.retain_grad()
    y.retain_grad()
    h.sum().backward()
    return seen, h.grad, y.grad


def a_hook_of_a_leaf(f, x, w):
    seen = []
    w.register_hook(seen.append)
    _, y, _ = f(x, w)
    y.sum().backward()
    return seen, w.grad


def a_hook_in_front_of_a_gradient(f, x, w):
    h, y, z = f(x, w)
    h.register_hook(lambda g: g * 2)
    return torch.autograd.grad(h.sum() + z.sum(), [h, y, x])


def one_behind_the_other(f, x, w):
    h, _, z = f(x, w)
    z.sum().backward()
    h.sum().backward()


def one_and_the_other_again(f, x, w):
    h, _, z = f(x, w)
    h.sum().backward()
    z.sum().backward(retain_graph=True)
    z.sum().backward()
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        h.sum().backward()


def what_both_read(f, x, w):
    _, y, z = f(x, w)
    y.sum().backward()
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        z.sum().backward()


def written_between(f, x, w):
    h, y, _ = f(x, w)
    with torch.no_grad():
        y.mul_(2)
    h.sum().backward()


def retained_and_written(f, x, w):
    for t in f(x, w):
        t.retain_grad()
        t.mul_(2)


def batched(f, x, w):
    h, y, _ = f(x, w)
    many = torch.arange(3 * 16.0).view(3, 4, 4)
    return torch.autograd.grad([h, y], [x, w], [many, many.cos()], is_grads_batched=True)


STEPS = [
    a_hook_of_another,
    a_hook_of_a_leaf,
    a_hook_in_front_of_a_gradient,
    one_behind_the_other,
    one_and_the_other_again,
    what_both_read,
    written_between,
    retained_and_written,
    batched,
]


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("step", STEPS, ids=lambda f: f.__name__)
def test_steps(step, dynamic):
    found = []
    for f in (side_by_side, oxyfuel.compile(side_by_side, fullgraph=True, dynamic=dynamic)):
        values = leaves()
        found.append((step(f, *values), [t.grad for t in values]))
    assert not first_difference(found[1], found[0])


@pytest.mark.parametrize("dynamic", [False, True])
def test_what_one_reads_is_let_go_of_alone(dynamic):
    """In eager the two results have nothing in common."""
    f = oxyfuel.compile(nothing_shared, fullgraph=True, dynamic=dynamic)
    for first in (0, 1):
        values = leaves()
        made = [t * 1 for t in values]
        alive = [weakref.ref(t.untyped_storage()) for t in made]
        results = f(*made)
        del made
        results[first].sum().backward()
        results[1 - first].sum().backward()
        del results
        gc.collect()
        assert all(t.grad is not None for t in values)
        assert not any(ref() is not None for ref in alive)


def test_a_loss_lets_go_of_all_that_it_read():
    """Although the logits are held."""
    packed, freed = [], []

    class Kept:
        def __init__(self, t):
            self.t = t
            packed.append(1)

        def __del__(self):
            freed.append(1)

    def model(x, w):
        logits = (x @ w).tanh()
        return torch.nn.functional.cross_entropy(logits, torch.arange(4)), logits

    f = oxyfuel.compile(model, fullgraph=True)
    f(*leaves())
    with torch.autograd.graph.saved_tensors_hooks(oxyfuel.keeps_values(Kept), lambda kept: kept.t):
        loss, logits = f(*leaves())
    loss.backward()
    assert packed and len(freed) == len(packed)
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        logits.sum().backward()


def no_grad_view(x):
    h = x * 2
    with torch.no_grad():
        v = h[:2]
    return v, h


def no_grad_view_of_an_input(x):
    with torch.no_grad():
        v = x.t()
    return v, v[1:], x * 2


def no_grad_pieces(x):
    with torch.no_grad():
        a, b, c, d = x.unbind()
    return a, b, c, d, x * 1


def detached(x):
    h = x * 2
    d = h.detach()
    return d[:2], d, h, h[:2].detach()


def detached_first(x):
    h = x.detach() * 2
    return h[:2].detach(), h, h[1:], x * 2


def written_under_no_grad(x):
    with torch.no_grad():
        x.mul_(1.5)
    return x[:2], x * 2


def the_same_view_and_its_base(x):
    h = x @ x
    return h.view(4, 4), h


def pieces(x):
    a, b = (x * 2).split(2, 1)
    d = (x * 3).split([1, 3])[1]
    return a, b, d, x.unbind(1)[2]


VIEWS = [
    no_grad_view,
    no_grad_view_of_an_input,
    no_grad_pieces,
    detached,
    detached_first,
    written_under_no_grad,
    the_same_view_and_its_base,
    pieces,
]
INPUTS = {
    "leaf": lambda: torch.ones(4, 4, requires_grad=True),
    "made": lambda: torch.ones(4, 4, requires_grad=True) * 1,
    "a leaf that is a view": lambda: torch.ones(16).reshape(4, 4).requires_grad_(),
    "a view": lambda: (torch.ones(16, requires_grad=True) * 1).reshape(4, 4),
}


def known_as(f, make):
    """What autograd knows of each result; then which others a write changes the version of."""
    x = make()
    results = f(x)
    everything = [*results, x]
    bases = [[i for i, o in enumerate(everything) if o is t._base] for t in results]
    known = [(t.requires_grad, t.grad_fn is None, t.is_leaf) for t in results]
    versions = []
    for t in results:
        before = [o._version for o in everything]
        with torch.no_grad():
            t.add_(0)
        versions.append([o._version - v for o, v in zip(everything, before, strict=True)])
    return bases, known, versions


def written(f, make, i):
    x = make()
    t = f(x)[i]
    try:
        t.mul_(x.detach().mean().requires_grad_())
    except RuntimeError as e:
        return re.sub("of (View|Slice) is", "of a view is", str(e))
    return t


@pytest.mark.parametrize("make", INPUTS.values(), ids=INPUTS.keys())
@pytest.mark.parametrize("f", VIEWS, ids=lambda f: f.__name__)
def test_views(f, make):
    g = oxyfuel.compile(f, fullgraph=True)
    assert known_as(g, make) == known_as(f, make)
    for i in range(len(f(make()))):
        assert not first_difference(written(g, make, i), written(f, make, i))


def test_a_detached_view_that_is_written_behind_a_break():
    def f(x, w):
        h = x * 2
        d = h[:2].detach()
        torch._dynamo.graph_break()
        d.mul_(w)
        return h, d

    found = []
    for g in (f, oxyfuel.compile(f)):
        x, w = torch.ones(4), torch.ones(2, requires_grad=True)
        h, d = g(x, w)
        found.append((h.requires_grad, d.requires_grad, h.detach(), d.detach()))
    assert not first_difference(found[1], found[0])
