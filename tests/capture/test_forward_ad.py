"""Levels of torch.autograd.forward_ad that captured code enters."""

import pytest
import torch
import torch.autograd.forward_ad as fwd
from model_check import first_difference

import oxyfuel


class OwnRule(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx, g):
        return g * ctx.saved_tensors[0].cos()

    @staticmethod
    def jvp(ctx, t):
        return t * 3


def simple(x, w):
    with fwd.dual_level():
        y = fwd.make_dual(x, w.detach()).sin() * 2
        dual = fwd.unpack_dual(y)
    return dual, y, dual.tangent.clone()


def lives_on(x, w):
    with fwd.dual_level():
        y = fwd.make_dual(x, torch.ones(3)).sin()
    return y * 2


def by_weights(x, w):
    with fwd.dual_level():
        y = torch.tanh(fwd.make_dual(w, x) * x).sum()
        return fwd.unpack_dual(y).tangent, y


def of_both_modes(x, w):
    with fwd.dual_level():
        return fwd.unpack_dual((fwd.make_dual(x, torch.ones(3)) * w).exp().sum()).tangent


def in_place(x, w):
    x = x.clone()
    with fwd.dual_level():
        d = fwd.make_dual(x, torch.ones(3))
        d.mul_(3)
        d[1:].mul_(2)
        return fwd.unpack_dual(d).tangent + 0, d


def without_grad_mode(x, w):
    with torch.no_grad(), fwd.dual_level():
        return fwd.unpack_dual(fwd.make_dual(w * x, x) * 2)


def twice(x, w):
    out = []
    for _ in range(2):
        with fwd.dual_level():
            out.append(fwd.unpack_dual(fwd.make_dual(x, x).cos()).tangent)
    return out


def no_tangent(x, w):
    with fwd.dual_level():
        return x * 2, fwd.unpack_dual(x).tangent


ONE_GRAPH = [simple, lives_on, by_weights, of_both_modes, in_place, without_grad_mode, twice]
ONE_GRAPH += [no_tangent]


def asks_for_data(x, w):
    with fwd.dual_level():
        y = fwd.make_dual(x, torch.ones(3)).sin()
        if y.sum() > -100:
            y = y * 2
        return fwd.unpack_dual(y)


def gradient(x, w):
    x = x.clone().requires_grad_()
    with fwd.dual_level():
        d = fwd.make_dual(x, torch.ones(3))
        (g,) = torch.autograd.grad((d**3).sum(), x, create_graph=True)
        return fwd.unpack_dual(g).tangent.detach()


def function(x, w):
    with fwd.dual_level():
        return fwd.unpack_dual(OwnRule.apply(fwd.make_dual(x, torch.ones(3)))).tangent


def transform(x, w):
    with fwd.dual_level():
        d = fwd.make_dual(x, torch.ones(3))
        return fwd.unpack_dual(torch.func.vmap(lambda a: a * a)(d)).tangent


def nested(x, w):
    with fwd.dual_level():
        try:
            with fwd.dual_level():
                return 1
        except RuntimeError:
            return 2


def in_inference_mode(x, w):
    with torch.inference_mode(), fwd.dual_level():
        return fwd.unpack_dual(fwd.make_dual(x, x).cos()).tangent


def run(f):
    out = []
    torch.manual_seed(0)
    for _ in range(3):
        x, w = torch.randn(3), torch.randn(3, requires_grad=True)
        found = f(x, w)
        out.append(found)
        if torch.is_tensor(found) and found.requires_grad:
            found.sum().backward()
            out.append(w.grad)
    return out


BROKEN = [asks_for_data, gradient, function, transform, nested, in_inference_mode]


@pytest.mark.parametrize("f", ONE_GRAPH + BROKEN, ids=lambda f: f.__name__)
def test_levels(f):
    before = oxyfuel.stats()
    assert not first_difference(run(oxyfuel.compile(f)), run(f))
    stats = {k: n - before[k] for k, n in oxyfuel.stats().items()}
    assert stats["fallbacks"] == stats["grad_fallbacks"] == 0
    if f in ONE_GRAPH:
        assert (stats["graphs"], stats["graph_breaks"]) == (1, 0)


def test_inside_of_a_level():
    """A capture that begins in a level makes no tangents that its graph would lose."""

    def make(x):
        return fwd.make_dual(x, x * 2)

    compiled = oxyfuel.compile(make)
    x = torch.randn(3)
    with fwd.dual_level():
        for f in (compiled, make):
            assert torch.equal(fwd.unpack_dual(f(x)).tangent, x * 2)
