"""torch.cond where gradients are needed is in the graph, and its gradient a choice among those of
its branches; torch.while_loop is left to a graph break."""

import pytest
import torch
from model_check import first_difference
from torch import nn

import oxyfuel


def leaf(*shape, dtype=torch.float32):
    return torch.randn(*shape, dtype=dtype).requires_grad_()


def trained(call, leaves, args):
    """Results, what they say of gradients, and gradients."""
    out = call(*args)
    roots = [t for t in torch.utils._pytree.tree_leaves(out) if t.requires_grad]
    torch.manual_seed(1)
    grads = torch.autograd.grad(
        roots, leaves, [torch.randn_like(t) for t in roots], allow_unused=True
    )
    plain = [g if g is None else g.clone(memory_format=torch.contiguous_format) for g in grads]
    return [out, plain]


def in_one_graph(graphs=1):
    stats = oxyfuel.stats()
    assert stats["graph_breaks"] == stats["unsupported"] == stats["grad_fallbacks"] == 0
    assert stats["graphs"] == graphs


def compare(f, leaves, calls, graphs=1):
    """As eager for each of these arguments, in so many graphs."""
    torch._dynamo.reset()
    compiled = oxyfuel.compile(f)
    for args in calls:
        wanted = trained(f, leaves, args)
        assert not first_difference(trained(compiled, leaves, args), wanted)
    in_one_graph(graphs)


W, U = torch.ones(4) * 0.5, torch.ones(4) * 3
W.requires_grad_(), U.requires_grad_()
BOTH_WAYS = [(torch.tensor(True),), (torch.tensor(False),), (torch.tensor(True),)]


def one_operand(p):
    return torch.cond(p, lambda x: x.sin() * x, lambda x: x.exp(), (W,)) * 2


def closed_over(p):
    return torch.cond(p, lambda x: x * U, lambda x: x.cos(), (W,))


def read_by_one_branch(p):
    return torch.cond(p, lambda x, y: x.sin(), lambda x, y: y.cos(), (W, U))


def detached_in_a_branch(p):
    return torch.cond(p, lambda x: x.detach().sin(), lambda x: x.cos(), (W,))


def detached_in_both(p):
    return torch.cond(p, lambda x: x.detach().sin(), lambda x: x.detach().cos(), (W,))


def a_copy_of_an_operand(p):
    return torch.cond(p, lambda x: x.clone(), lambda x: x * 2, (W,))


def the_same_twice(p):
    def both(x):
        y = x.sin()
        return y, y.clone(), x + y

    return torch.cond(p, both, lambda x: (x.cos(), x * 2, x.exp()), (W,))


def gradients_that_are_one_value(p):
    return torch.cond(p, lambda x, y: x + y, lambda x, y: x - y, (W, U))


def a_dict(p):
    yes = lambda x: {"a": x * 2, "b": (x.sin(), x.sum())}
    no = lambda x: {"a": x * 3, "b": (x.cos(), x.prod())}
    return torch.cond(p, yes, no, (W,))


def what_is_no_leaf(p):
    x = (W * U).view(2, 2).t()
    return torch.cond(p, lambda x: x.sin(), lambda x: (x @ x).contiguous().t(), (x,))


def expanded(p):
    x = W.sum().expand(3, 4)
    return torch.cond(p, lambda x: x.sin(), lambda x: x * x, (x,))


def one_within_the_other(p):
    def outer(x):
        return torch.cond(x.sum() > 0, lambda y: y * U, lambda y: y.sin(), (x,))

    return torch.cond(p, outer, lambda x: x.cos(), (W,))


def one_behind_the_other(p):
    x = torch.cond(p, lambda x: x * U, lambda x: x.sin(), (W,))
    return torch.cond(x.sum() > 0, lambda x: x.exp(), lambda x: x * U, (x,)) + x


def by_what_requires_gradients(p):
    return torch.cond((W * p).sum() > 1, lambda x: x.sin(), lambda x: x.cos(), (W,))


def a_constant(p):
    c = torch.arange(4.0)
    return torch.cond(p, lambda x: x * c, lambda x: x + torch.ones(4), (W,))


def half_precision(p):
    x = W.to(torch.bfloat16)
    return torch.cond(p, lambda x: x.sin(), lambda x: x * 2, (x,))


def complex_numbers(p):
    x = torch.complex(W, U)
    return torch.cond(p, lambda x: x * x, lambda x: x.conj().resolve_conj() * 2, (x,))


def in_no_grad(p):
    with torch.no_grad():
        y = torch.cond(p, lambda x: x.sin(), lambda x: x.cos(), (W,))
    return W * y


PROGRAMS = [
    one_operand,
    closed_over,
    read_by_one_branch,
    detached_in_a_branch,
    detached_in_both,
    a_copy_of_an_operand,
    the_same_twice,
    gradients_that_are_one_value,
    a_dict,
    what_is_no_leaf,
    expanded,
    one_within_the_other,
    one_behind_the_other,
    by_what_requires_gradients,
    a_constant,
    half_precision,
    complex_numbers,
    in_no_grad,
]


@pytest.mark.parametrize("f", PROGRAMS, ids=lambda f: f.__name__)
def test_choice(f):
    compare(f, (W, U), BOTH_WAYS)


def test_one_result_is_used():
    def f(p):
        return torch.cond(p, lambda x: (x.sin(), x * U), lambda x: (x.cos(), x * x), (W,))

    torch._dynamo.reset()
    compiled = oxyfuel.compile(f)
    for (p,) in BOTH_WAYS:
        for which in (0, 1):
            grads = [
                torch.autograd.grad(g(p)[which].sum(), (W, U), allow_unused=True)
                for g in (compiled, f)
            ]
            # Ours knows that the other result's operand had no part in it.
            for found, wanted in zip(*grads):
                wanted = torch.zeros_like(W) if wanted is None else wanted
                found = torch.zeros_like(W) if found is None else found
                torch.testing.assert_close(found, wanted)
    in_one_graph()


def test_a_module_of_branches():
    class Choice(nn.Module):
        def __init__(self):
            super().__init__()
            self.yes, self.no = nn.Linear(4, 3), nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 3))

        def forward(self, x):
            return torch.cond(x.sum() > 0, lambda x: self.yes(x), lambda x: self.no(x), (x,))

    model = Choice()
    compiled = oxyfuel.compile(model)
    for sign in (1, -1, 1):
        x = (sign * torch.rand(2, 4)).requires_grad_()
        results = []
        for call in (compiled, lambda x: (model.yes if x.sum() > 0 else model.no)(x)):
            call(x).square().sum().backward()
            results.append([x.grad] + [p.grad for p in model.parameters()])
            x.grad = None
            model.zero_grad()
        for found, wanted in zip(*results):
            torch.testing.assert_close(found, torch.zeros_like(found) if wanted is None else wanted)
    in_one_graph()


def test_sizes_that_vary():
    def f(x, w):
        return torch.cond(
            x.sum() > 0, lambda x: (x * w).sin(), lambda x: x * x.square().sum(-1, True), (x,)
        )

    torch._dynamo.reset()
    compiled = oxyfuel.compile(f)
    graphs = []
    for rows in (3, 5, 8, 4):
        for sign in (1, -1):
            x, w = (sign * torch.rand(rows, 4)).requires_grad_(), leaf(4)
            wanted = trained(f, (x, w), (x, w))
            assert not first_difference(trained(compiled, (x, w), (x, w)), wanted)
        graphs.append(oxyfuel.stats()["graphs"])
    assert graphs[1] == graphs[-1]


def test_a_whole_step():
    def step(w, p):
        y = torch.cond(p, lambda x: x.sin(), lambda x: x * x, (w,))
        y.sum().backward()
        with torch.no_grad():
            w -= 0.1 * w.grad
        w.grad = None
        return w.detach().clone()

    results = []
    for run in (step, oxyfuel.compile(step)):
        w = torch.arange(4.0).requires_grad_()
        results.append([run(w, torch.tensor(i % 2 == 0)) for i in range(4)])
    for found, wanted in zip(*reversed(results)):
        torch.testing.assert_close(found, wanted)


def test_an_operand_that_is_written_behind_it_is_eagers_error():
    def f(p):
        x = W * 2
        y = torch.cond(p, lambda x: x * x, lambda x: x.sin(), (x,))
        x.add_(1)
        return y

    torch._dynamo.reset()
    for call in (f, oxyfuel.compile(f)):
        out = call(torch.tensor(True))
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            out.sum().backward()


def test_behind_torch_compile():
    torch._dynamo.reset()
    compiled = torch.compile(one_behind_the_other, backend="oxyfuel", fullgraph=True)
    for args in BOTH_WAYS:
        wanted = trained(one_behind_the_other, (W, U), args)
        assert not first_difference(trained(compiled, (W, U), args), wanted)
    assert oxyfuel.stats()["unsupported"] == oxyfuel.stats()["grad_fallbacks"] == 0
    torch._dynamo.reset()


def test_a_loop_is_left_to_a_break():
    def f(x, n):
        body = lambda i, y: (i + 1, y * W)
        return torch.while_loop(lambda i, y: i < n, body, (torch.tensor(0), x))[1]

    torch._dynamo.reset()
    compiled = oxyfuel.compile(f)
    for n in (3, 1):
        x = leaf(4)
        args = (x, torch.tensor(n))
        found, wanted = (trained(g, (x, W), args) for g in (compiled, f))
        for a, b in zip(found[1], wanted[1]):
            torch.testing.assert_close(a, b)
    assert oxyfuel.stats()["graph_breaks"] > 0 and oxyfuel.stats()["fallbacks"] == 0
