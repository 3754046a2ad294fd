"""Arguments that are written in place while gradients are needed: eager's values, histories and
errors."""

import warnings

import pytest
import torch
import torch.nn.functional as F
from model_check import first_difference

import oxyfuel


def leaf(*sizes):
    return torch.randn(*sizes, requires_grad=True)


def products():
    x, w = leaf(4, 5), leaf(4, 5)
    return [x, w], [x * 2, w]


def rows():
    x, w = leaf(4, 5), leaf(5)
    return [x, w], [(x * 2)[1], w]


def buffers():
    w = leaf(5)
    return [w], [torch.zeros(5), w]


def base_of(t):
    return t if t._base is None else t._base


CASES = {
    "product": (lambda y, w: y.mul_(w).sin(), products),
    "relu": (lambda y, w: F.relu(y + w, inplace=True) + y.relu_(), products),
    "result of no op": (lambda y, w: y.mul_(w), products),
    "twice": (lambda y, w: y.mul_(w).add_(w.exp()).cos(), products),
    "a row": (lambda v, w: v.mul_(w).exp(), rows),
    "a row is returned": (lambda v, w: v.mul_(w), rows),
    "required none before": (lambda b, w: b.add_(w * 3), buffers),
    "a view is returned": (lambda b, w: (b.copy_(w.exp()), b[1:])[1], buffers),
    "without gradients": (lambda b, w: (b.copy_(w.detach()), w * b)[1], buffers),
    "part of it": (lambda y, w: (y[1:].mul_(w[1:]), y * w)[1], products),
}


@pytest.mark.parametrize("case", CASES)
def test_values_histories_and_gradients(case, monkeypatch):
    monkeypatch.setenv("OXYFUEL_STRICT", "1")
    f, make = CASES[case]

    def run(g):
        torch.manual_seed(0)
        leaves, args = make()
        out = g(*args)
        (out.sum() + base_of(args[0]).square().sum()).backward()
        written = args[0]
        return (
            [out.detach(), written.detach(), *(x.grad for x in leaves)],
            [out.requires_grad, written.requires_grad, written.is_leaf, out is written],
            written._version > 0,
        )

    compiled = oxyfuel.compile(f)
    for _ in range(2):
        torch.testing.assert_close(run(compiled), run(f))
    assert oxyfuel.stats()["graph_breaks"] == oxyfuel.stats()["unsupported"] == 0


PLACES = {
    "slice": lambda b: b[5:50],
    "view": lambda b: b.view(6, 10),
    "transposed": lambda b: b.view(6, 10).t(),
    "row": lambda b: b.view(6, 10)[2],
    "permuted with gaps": lambda b: b[5:53].view(2, 3, 8).transpose(0, 1)[:, :, ::2],
    "anywhere": lambda b: b.as_strided((3, 2, 4), (8, 24, 2), 5),
}
CHANGES = {
    "relu_": lambda v: v.relu_(),
    "mul_": lambda v: v.mul_(2),
    "copy_": lambda v: v.copy_(v * 2),
    "of a view": lambda v: v[1:].sin_().exp(),
    "nothing returned": lambda v: (v.exp_(), None)[1],
}


def to_leaves(out, leaf, weight):
    (out * weight).sum().backward()


def to_inputs(out, leaf, weight):
    torch.autograd.backward((out * weight).sum(), inputs=[leaf])


def by_grad(out, leaf, weight):
    (leaf.grad,) = torch.autograd.grad((out * weight).sum(), [leaf])


@pytest.mark.parametrize("backward", [to_leaves, to_inputs, by_grad])
@pytest.mark.parametrize("write", CHANGES)
@pytest.mark.parametrize("view", PLACES)
def test_writes_to_views_of_what_is_computed(view, write, backward):
    def run(f):
        torch.manual_seed(0)
        x = torch.randn(60, dtype=torch.float64, requires_grad=True)
        base = x * 1
        v = PLACES[view](base)
        out = f(v)
        out = base if out is None else out
        backward(out, x, torch.randn(out.shape))
        return base.detach(), v.detach(), x.grad

    f = CHANGES[write]
    assert not first_difference(run(f), run(oxyfuel.compile(f)))


def test_leaves_are_refused_as_in_eager():
    def f(x):
        return x.add_(1)

    compiled = oxyfuel.compile(f)
    compiled(leaf(3) * 1)
    x = leaf(3)
    before = x.detach().clone()
    for g in (f, compiled):
        with pytest.raises(RuntimeError, match="a leaf Variable that requires grad is being used"):
            g(x)
    assert torch.equal(x.detach(), before) and x._version == 0


def test_leaves_and_others_are_told_apart():
    def f(x):
        return x + 1 if x.is_leaf else x - 1

    compiled, x = oxyfuel.compile(f), leaf(3)
    for _ in range(2):
        for y in (x, x * 1, x.detach()):
            assert torch.equal(compiled(y), f(y))


WRITES = {
    "data": lambda x, d: x.data.add_(d),
    "views of data": lambda x, d: (x.data[1:].mul_(2), x.data.copy_(x.data * d)),
    "data and itself": lambda x, d: (x.data.add_(d), x.detach().mul_(d)),
    "data and others": lambda x, d: (x.data.add_(d), torch._foreach_mul_([x.detach()], 3.0)),
    "none": lambda x, d: x.detach().mul_(d),
}


@pytest.mark.parametrize("backend", [False, True])
@pytest.mark.parametrize("how", WRITES)
def test_versions_do_not_count_writes_through_data(how, backend):
    def f(x, d):
        WRITES[how](x, d)
        return d * 2

    def run(f):
        leaf_ = torch.arange(4.0).requires_grad_()
        x = leaf_ * 2
        loss = (x * x).sum()
        seen = x._version
        out = f(x, torch.full((4,), 3.0))
        try:
            loss.backward()
        except RuntimeError:
            assert x._version > seen
            return out, x.detach(), torch.zeros(())
        return out, x.detach(), leaf_.grad

    compiled = torch.compile(f, backend="oxyfuel") if backend else oxyfuel.compile(f)
    for _ in range(2):
        torch.testing.assert_close(run(compiled), run(f))


@pytest.mark.parametrize("inside", [False, True])
def test_what_is_saved_is_written_through_data(inside):
    def f(x):
        h = x * 3 if inside else x
        y = h * h
        h.data.add_(1)
        return y, h * 1

    def run(f):
        leaf_ = torch.arange(4.0).requires_grad_()
        y, h = f(leaf_ * 1)
        (y + h).sum().backward()
        return y.detach(), h.detach(), leaf_.grad

    compiled = oxyfuel.compile(f)
    for _ in range(2):
        torch.testing.assert_close(run(compiled), run(f))
    assert oxyfuel.stats()["graph_breaks"] == oxyfuel.stats()["fallbacks"] == 0


def itself(x, y):
    v = y.detach()
    v.mul_(x)
    return (v,)


def by_itself(x, y):
    v = y.detach()
    v.mul_(y)
    return v, y[1:], v * 2


def two_aliases(x, y):
    v, u = y.detach(), y.detach()
    v.mul_(x)
    return u, v, u + v


def views_of_it(x, y):
    v = y.detach()
    before = v[1:]
    v.mul_(x)
    return v, before, v.view(-1), *v.unbind()


def without_grad_mode(x, y):
    v = y.detach()
    v.mul_(x)
    with torch.no_grad():
        u = v.view(-1)
    return v, u


@pytest.mark.parametrize("kind", ["leaf", "made", "view", "plain"])
@pytest.mark.parametrize("f", [itself, by_itself, two_aliases, views_of_it, without_grad_mode])
def test_detached_inputs_get_gradients(f, kind):
    """A write through it gives a detached input a history of its own."""

    def run(function):
        x = torch.arange(1.0, 4.0, requires_grad=True)
        y = torch.arange(2.0, 5.0, requires_grad=kind != "plain")
        given = {"made": y * 1, "view": y.view(3)}.get(kind, y)
        out = function(x, given)
        seen = [(t.requires_grad, t.is_leaf, t._is_view(), t.detach().clone()) for t in out]
        roots = [t for t in out if t.grad_fn is not None]
        torch.autograd.backward(roots, [torch.ones_like(t) for t in roots])
        return seen, x.grad, y.grad, given.detach().clone()

    compiled = oxyfuel.compile(f)
    for _ in range(2):
        assert not first_difference(run(compiled), run(f))


def copied(b, e, w):
    b.copy_(w * 2)
    total = b.pow(2).sum()
    total.backward()
    return total


def multiplied(b, e, w):
    b.mul_(w)
    (b * 2).sum().backward()
    return b.detach() + 1


def by_a_view(b, e, w):
    v = b.view(2, 2)
    v.mul_(w.exp().view(2, 2))
    return v, *torch.autograd.grad(v.sum(), w)


def two_of_them(b, e, w):
    b.copy_(w * 2)
    e.copy_(b.exp())
    total = e.pow(2).sum()
    total.backward()
    return total


def kept(b, e, w):
    b.copy_(w.exp())
    total = b.pow(2).sum()
    total.backward(retain_graph=True)
    return total


def again_and_again(b, e, w):
    b.detach_()
    return copied(b, e, w)


USING_UP = [copied, multiplied, by_a_view, two_of_them, kept]


@pytest.mark.parametrize(
    "function, of_a_view",
    [(f, of_a_view) for f in USING_UP for of_a_view in (False, True)] + [(again_and_again, False)],
)
def test_a_backward_inside_uses_up_the_history_of_an_input(function, of_a_view):
    def second_backward(t):
        try:
            t.sum().backward()
        except RuntimeError as error:
            return str(error)

    def step(f):
        w, base = torch.arange(1.0, 5.0).requires_grad_(), torch.ones(8)
        b, e = (base[:4], torch.ones(4)) if of_a_view else (torch.ones(4), torch.ones(4))
        out = []
        for _ in range(2 if function is again_and_again else 1):
            out.append(f(b, e, w))
        told = [second_backward(t) for t in (b, e)]
        tensors = torch.utils._pytree.tree_leaves((out, b, e, w.grad))
        return told, [t if t is None else (t.requires_grad, t.detach()) for t in tensors]

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not first_difference(step(oxyfuel.compile(function)), step(function))


def beside(a, b, w):
    a.copy_(w)
    return b.sin()


@pytest.mark.parametrize("ends", [(2, 4), (0, 4), (2, 2)])
def test_views_of_one_tensor_come_to_require_gradients_together(ends):
    def step(f):
        base, w = torch.ones(4, 3), torch.ones(3, requires_grad=True)
        a, b = base[: ends[0]], base[ends[0] : ends[1]]
        out = f(a, b, w)
        out.sum().backward()
        return [t.requires_grad for t in (out, a, b, base)], w.grad

    assert not first_difference(step(oxyfuel.compile(beside)), step(beside))
