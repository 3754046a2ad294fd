"""Hooks of tensors, nodes and modules around a compiled call do what they do in eager."""

import pytest
import torch
from backward_check import both, compare, leaf
from model_check import first_difference
from torch import nn

import oxyfuel


def test_hook_of_an_input():
    def step(f):
        x = leaf(3)
        inner = x * 2
        inner.register_hook(lambda g: g * 10)
        f(inner).sum().backward()
        return x.grad

    compare(step, lambda x: x.sin())


def test_hook_of_a_leaf_and_an_output():
    def step(f):
        heard = []
        x = leaf(3)
        x.register_hook(lambda g: heard.append(g.clone()))
        x.register_post_accumulate_grad_hook(lambda p: heard.append(p.grad.clone()))
        out = f(x)
        out.register_hook(lambda g: g + 1)
        out.sum().backward()
        return x.grad, heard

    compare(step, lambda x: x.sin())


def test_retained_gradient():
    def step(f):
        x = leaf(3)
        inner = x * 2
        inner.retain_grad()
        out = f(inner)
        out.retain_grad()
        (out * 3).sum().backward()
        return x.grad, inner.grad, out.grad

    compare(step, lambda x: x.exp())


def test_hooks_of_the_node():
    def step(f):
        x = leaf(3)
        out = f(x)
        heard = []
        out.grad_fn.register_hook(lambda into, out_of: heard.append(out_of[0].clone()))
        out.grad_fn.register_prehook(lambda out_of: (out_of[0] * 2,))
        out.sum().backward()
        return x.grad, heard, isinstance(out.grad_fn, torch.autograd.graph.Node)

    compare(step, lambda x: x.sin())


@pytest.mark.parametrize("inside", [False, True])
def test_hooks_of_a_leafs_node(inside):
    # The leaf knows its node weakly: a local of the frame keeps it.
    def fn(x):
        node = x.view_as(x).grad_fn.next_functions[0][0]
        node.register_prehook(lambda gradients: (gradients[0] / 5,))
        out = x.sin().sum()
        return out.backward() if inside else out

    def step(f):
        x = leaf(3)
        out = f(x)
        if not inside:
            out.backward()
        return x.grad

    expected, found = both(step, fn)
    assert not first_difference(found, expected)


@pytest.mark.parametrize("register", ["register_forward_hook", "register_backward_hook"])
def test_hooks_of_a_module_that_nobody_uses_any_more(register):
    def fn(x):
        module = nn.Sigmoid()
        handle = getattr(module, register)(
            lambda *given: tuple(g * 2 for g in given[1]) if "backward" in register else None
        )
        module(x).sum().backward()
        print(end="")
        handle.remove()
        return handle.id in handle.hooks_dict_ref()

    def step(f):
        x = leaf(3)
        return f(x), x.grad

    expected, found = both(step, fn)
    assert not first_difference(found, expected)


def test_hooks_of_a_view_whose_memory_is_written():
    def fn(x):
        heard = []
        base = x.clone()
        first, second = base[:], base[:]
        first.register_hook(lambda gradient: heard.append("old"))
        second.register_hook(lambda gradient: heard.append("old"))
        first.mul_(2)
        second.register_hook(lambda gradient: heard.append(gradient.tolist()))
        (first + second).sum().backward()
        return heard

    def step(f):
        x = leaf(1)
        return f(x), x.grad

    expected, found = both(step, fn)
    assert not first_difference(found, expected)


def test_a_gradient_of_a_view_whose_memory_is_written():
    def fn(x):
        base = torch.ones(5)
        view = base[1]
        base.add_(x)
        return torch.autograd.grad(view * 3, x)

    compare(lambda f: f(leaf(1)), fn)


def test_views_without_grad_mode_are_written():
    # Eager refuses to give one of them a history, and nobody asks for it.
    def fn(x):
        with torch.no_grad():
            first, second = x.view(3, 1), x.view(1, 3)
            first.mul_(2)
            second.add_(1).mul_(3)
        return x * 2

    def step(f):
        x = leaf(3)
        f(x).sum().backward()
        return x.detach(), x.grad

    compare(step, fn)


def test_a_backward_behind_gradients_of_a_batch():
    def fn(x):
        rows = torch.eye(3)
        (of_rows,) = torch.autograd.grad(x.exp(), x, rows, create_graph=True, is_grads_batched=True)
        of_rows.sum().backward()

    def step(f):
        x = leaf(3)
        f(x)
        return x.grad

    compare(step, fn)


@pytest.mark.parametrize("of", ["view", "view_of_view", "product"])
def test_gradients_by_a_view_behind_a_break(of):
    def fn(x):
        view = x.view_as(x)
        other = {"view": view * 2, "view_of_view": view.view(3, 1), "product": view * x}[of]
        print(end="")
        return torch.autograd.grad((other * 2).sum(), view, allow_unused=True)

    expected, found = both(lambda f: f(leaf(3)), fn)
    assert not first_difference(found, expected)


def test_hook_inside():
    def fn(x):
        y = x * 2
        if y.requires_grad:
            y.register_hook(lambda g: g * 10)
        return y.sin()

    def step(f):
        x = leaf(3)
        f(x).sum().backward()
        return x.grad

    expected, found = both(step, fn)
    assert not first_difference(found, expected)


def test_module_hooks():
    def step(module, f):
        heard = []
        module[0].register_forward_hook(lambda m, args, out: out * 2)
        module.register_forward_pre_hook(lambda m, args: (args[0] + 1,))
        module.register_full_backward_hook(lambda m, i, o: heard.append((i, o)))
        x = leaf(2, 4)
        f(x).sum().backward()
        return x.grad, heard

    results = []
    for wrap in (lambda m: m, oxyfuel.compile):
        torch.manual_seed(0)
        module = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
        results.append([step(module, wrap(module)), [p.grad for p in module.parameters()]])
    assert not first_difference(results[1], results[0])


def logged(seen, name):
    def hook(gradient):
        seen.append((name, gradient.tolist()))
        return gradient * 2

    return hook


def of_an_input(x, w, seen):
    v = w.view(2, 2)
    v.register_hook(logged(seen, "v"))
    return v, (w * v.flatten()).sum()


def of_a_result(x, w, seen):
    y = x * w
    v = y.view(2, 2)
    v.register_hook(logged(seen, "v"))
    return v, y, (v * y.view(2, 2)).sum()


def of_base_and_view(x, w, seen):
    y = x * w
    v = y.view(2, 2).t()
    y.register_hook(logged(seen, "y"))
    v.register_hook(logged(seen, "v"))
    return v, y, v.exp().sum()


def of_a_view_of_a_view(x, w, seen):
    v = w.view(2, 2)
    u = v[1:]
    v.register_hook(logged(seen, "v"))
    u.register_hook(logged(seen, "u"))
    return v, u, (u * u).sum()


def of_nothing_but_a_view(x, w, seen):
    v = (x * w)[1:3]
    v.register_hook(logged(seen, "v"))
    return (v,)


def of_what_is_written_behind(x, w, seen):
    y = x * w
    v = y.view(2, 2)
    v.register_hook(logged(seen, "v"))
    v.mul_(2)
    return v, y


@pytest.mark.parametrize(
    "function",
    [of_an_input, of_a_result, of_base_and_view, of_a_view_of_a_view, of_nothing_but_a_view,
     of_what_is_written_behind],
)  # fmt: skip
@pytest.mark.parametrize("fullgraph", [True, False])
@pytest.mark.parametrize("leaf", [True, False])
def test_hooks_of_views_that_are_returned(function, fullgraph, leaf):
    def step(f, all_of_them):
        seen, x, w = [], torch.arange(1.0, 5.0), torch.arange(2.0, 6.0).requires_grad_()
        out = f(x, w if leaf else w * 1, seen)
        if all_of_them:
            sum(t.sum() for t in out).backward()
        else:
            out[-1].sum().backward(retain_graph=True)
            out[0].sum().backward()
        return sorted(map(str, seen)), w.grad.tolist()

    if fullgraph and function is of_what_is_written_behind:
        with pytest.raises(oxyfuel.GraphBreak, match="a hook of what is written"):
            step(oxyfuel.compile(function, fullgraph=True), True)
        return
    compiled = oxyfuel.compile(function, fullgraph=fullgraph)
    for all_of_them in (True, False):
        assert step(compiled, all_of_them) == step(function, all_of_them)
