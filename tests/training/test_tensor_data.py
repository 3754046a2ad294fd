"""Tensor.data: what leaves a call has a version of its own, and memory that is given to another
tensor stays with it."""

import pytest
import torch
import torch.nn.functional as F

import oxyfuel

CASES = {
    "of an input": lambda x: (x, x.data, x * x),
    "a view": lambda x: (x, x.data[1:], x * x),
    "a view of its memory": lambda x: (x, x.view(2, 2).data, x * x),
    "of a result": lambda x: (y := x.sin(), y.data, y * y),
    "a view of that of a result": lambda x: (y := x.sin(), y.data[::2], y * y),
    "two of them": lambda x: (x, x.data, x * x, x.data),
}


def identity(f):
    return f


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("grad", [True, False])
def test_version_of_what_leaves_a_call(name, grad):
    def step(wrap):
        leaf = torch.arange(4.0).requires_grad_(grad)
        y, data, product, *others = wrap(CASES[name])(leaf * 1)
        data.add_(1)
        if grad:
            product.sum().backward()
        assert [y._version, data._version, *(o._version for o in others)][:2] == [0, 1]
        return leaf.grad, y.tolist(), data.tolist(), [o._version for o in others]

    expected = step(identity)
    for options in {}, {"fullgraph": True}:
        assert str(step(lambda f: oxyfuel.compile(f, **options))) == str(expected)  # noqa: B023


def given_and_taken(v, x, y, u):
    v.data = x
    r = u * v
    x.data = y
    return r


def given(v, x, y, u):
    v.data = x
    return u * v


def given_to_a_copy(v, x, y, u):
    w = v * 1
    w.data = x
    return u * w


@pytest.mark.parametrize("function", [given_and_taken, given, given_to_a_copy])
@pytest.mark.parametrize("leaf", [True, False])
def test_memory_given_to_another_tensor(function, leaf):
    def step(wrap):
        v, x, y, u = (torch.arange(3.0) * i for i in range(1, 5))
        v.requires_grad_(leaf), u.requires_grad_()
        r = wrap(function)(v, x, y, u)
        x.data = y
        r.sum().backward()
        return r.tolist(), v.tolist(), x.tolist(), u.grad.tolist(), v.grad

    expected = step(identity)
    assert str(step(lambda f: oxyfuel.compile(f, fullgraph=True))) == str(expected)


def test_data_in_a_graph_of_torch_compile():
    """What `data` has given is not the tensor itself, whose memory may be another one behind."""

    def step(wrap):
        x, u = (torch.arange(3.0) * i for i in (1, 2))
        x.requires_grad_(), u.requires_grad_()
        r = wrap(lambda u, x: u * x.data)(u, x)
        x.data = torch.ones(3)
        r.sum().backward()
        return u.grad.tolist(), x.grad

    assert step(lambda f: torch.compile(f, backend="oxyfuel")) == step(identity)


READ_TWICE = {
    "product": lambda u, x: (u * x) * x.sin(),
    "exp": lambda u, x: (u * x).exp() * x,
    "layer norm": lambda u, x: F.layer_norm(x, (3,)) * x * u,
    "cosine of both": lambda u, x: x.sin() + x.cos() * u,
    "a view": lambda u, x: x.view(3, 1) * x * u,
    "softmax": lambda u, x: F.softmax(x * u, 0) * x,
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", READ_TWICE)
def test_an_input_is_given_other_memory(name, dynamic):
    """Formulas of eager read what the tensor has by then, where they have kept it; values that were
    kept, and are computed again here, are those of the forward."""

    def step(wrap, grad, backwards):
        u, x = torch.ones(3) * 2, torch.arange(3.0) + 1
        u.requires_grad_(), x.requires_grad_(grad)
        r = wrap(READ_TWICE[name])(u, x).sum()
        for _ in range(backwards - 1):
            r.backward(retain_graph=True)
        x.data = torch.tensor([10.0, 20.0, 30.0])
        r.backward()
        return [u.grad, x.grad] if grad else [u.grad]

    for grad in (True, False):
        for backwards in (1, 2):
            expected = step(identity, grad, backwards)
            ours = step(lambda f: oxyfuel.compile(f, dynamic=dynamic), grad, backwards)
            torch.testing.assert_close(ours, expected)


def read_behind(x, p):
    p.data = x
    return (p * p) * p.sin()


def read_in_front(x, p):
    y = p * p
    p.data = x
    return y


def read_on_both_sides(x, p):
    y = p * p
    p.data = x
    return p.sin() * y


def given_back(x, p):
    old = p.data
    p.data = x
    r = (p * p).sum()
    p.data = old
    return r * p


def the_old_as_well(x, p):
    old = p.data
    p.data = x * 2
    return p * old * p, x * x


def given_twice(x, p):
    p.data = x
    y = p * p
    p.data = x + 1
    return y * p


def read_without_gradients(x, p):
    with torch.no_grad():
        p.data = x
        return p * 2


@pytest.mark.parametrize(
    "f",
    [
        read_behind,
        read_in_front,
        read_on_both_sides,
        given_back,
        the_old_as_well,
        given_twice,
        read_without_gradients,
    ],
)
def test_data_that_is_given_again_outside(f):
    def step(call, again):
        x, p = torch.ones(3) * 2, torch.arange(3.0) + 1
        p.requires_grad_()
        results = call(x, p)
        results = results if isinstance(results, tuple) else (results,)
        if again:
            p.data = torch.tensor([10.0, 20.0, 30.0])
        if results[0].requires_grad:
            results[0].sum().backward()
        return *results, p, p.grad

    compiled = oxyfuel.compile(f, fullgraph=True)
    for again in False, True, True:
        torch.testing.assert_close(step(compiled, again), step(f, again))


def written(w, x):
    x.mul_(2)
    return w * x


def written_without_gradients(w, x):
    with torch.no_grad():
        x.mul_(2)
    return w * x * x.view(1, -1)


def written_and_computed_again(w, x):
    with torch.no_grad():
        x.mul_(2)
    return w * x.sin()


@pytest.mark.parametrize("f", [written, written_without_gradients, written_and_computed_again])
@pytest.mark.parametrize("of", ["plain", "leaf", "computed"])
def test_what_was_written_is_given_data(f, of):
    if f is written and of == "leaf":
        return  # eager refuses it

    def step(call, again, n):
        w, x = torch.ones(n).requires_grad_(), torch.arange(float(n)) + 1
        x.requires_grad_(of != "plain")
        given = x * 1 if of == "computed" else x
        r = call(w, given)
        r.sum().backward(retain_graph=True)
        if again:
            given.data = torch.full((n,), 10.0)
        r.sum().backward()
        return r, w.grad, x.grad, given

    compiled = oxyfuel.compile(f, fullgraph=True)
    for again, n in (False, 3), (True, 3), (True, 5), (True, 7):
        torch.testing.assert_close(step(compiled, again, n), step(f, again, n))


def test_what_was_written_is_given_data_and_written_again():
    for f in written, oxyfuel.compile(written):
        w, x = torch.ones(3).requires_grad_(), torch.ones(3)
        r = f(w, x)
        x.data = torch.zeros(3)
        x.add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            r.sum().backward()


def clamped(w, u, y):
    return (w * u).exp().clamp(max=3)


def clamped_view(w, u, y):
    return (w.view(3, 1) * u.view(1, 3).cos()).exp().clamp(max=3)


@pytest.mark.parametrize("f", [clamped, clamped_view])
def test_memory_of_a_leaf_is_written_by_another_tensor(f):
    """Eager has kept what it has computed of it: nothing is computed again."""

    def step(call):
        w, u, y = torch.ones(3) * 0.5, torch.ones(3), torch.arange(3.0)
        w.requires_grad_(), u.requires_grad_()
        u.data = y.detach()
        r = call(w, u, y)
        y.copy_(torch.tensor([5.0, 6.0, 7.0]))
        r.sum().backward()
        return w.grad, u.grad

    torch.testing.assert_close(step(oxyfuel.compile(f)), step(f))


def given_and_written(x, y):
    x.data = y.detach()
    x.mul_(2)


def given_a_copy_and_written(x, y):
    x.data = y.clone()
    x.mul_(2)
    return x + 1


def written_and_given(x, y):
    x.mul_(2)
    x.data = y * 2


@pytest.mark.parametrize("f", [given_and_written, given_a_copy_and_written, written_and_given])
def test_version_of_what_is_given_data(f):
    def step(call):
        x, y = torch.ones(3), torch.arange(3.0)
        found = []
        for _ in range(2):
            call(x, y)
            found += [x._version, x.tolist(), y.tolist()]
        return found

    assert step(oxyfuel.compile(f)) == step(f)


def test_second_derivatives_behind_an_assignment():
    x, p = torch.ones(3) * 2, torch.arange(3.0).requires_grad_()
    r = oxyfuel.compile(read_behind)(x, p)
    (g,) = torch.autograd.grad(r.sum(), p, create_graph=True)
    torch.testing.assert_close(g, torch.autograd.grad(read_behind(x, p).sum(), p)[0])
    with pytest.raises(RuntimeError, match="double backward .an assignment to data"):
        g.sum().backward()


def test_sizes_that_vary():
    """As adversarial training writes it."""

    def attack(x):
        delta = torch.zeros_like(x).requires_grad_(True)
        for _ in range(2):
            (x * delta).sin().sum().backward()
            delta.data = (delta + 0.1 * delta.grad.sign()).clamp(-0.5, 0.5)
            delta.grad.zero_()
        return delta.detach() + x

    compiled = oxyfuel.compile(attack)
    for n in (12, 13, 14, 15):
        x = torch.randn(n, 3)
        torch.testing.assert_close(compiled(x), attack(x))
    stats = oxyfuel.stats()
    assert (stats["graphs"], stats["static_captures"]) == (2, 0)
