"""Second and third derivatives through compiled calls: eager's, or torch's error."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.testing._internal.common_methods_invocations import op_db

import oxyfuel


def leaf(*shape):
    return torch.randn(*shape, dtype=torch.float64).requires_grad_()


def module(m):
    return m.double()


def written_views(x):
    y = x.clone()
    y[0] = x[1] * x[2]
    y[1].mul_(x[0])
    return y.pow(2)


def part_without_grad(x):
    with torch.no_grad():
        z = x.sin()
    return x * z * x


def written_without_grad(x):
    y = x.pow(3)
    with torch.no_grad():
        y.clamp_min_(0.1)
    return x / y


def views_met_without_grad(x):
    y = x.clone()
    v = y[0]
    y.mul_(x)
    with torch.no_grad():
        s = v.sum()
    return v * v + s


def broken(x):
    y = x.pow(3)
    torch._dynamo.graph_break()
    return y * x


CRITIC = module(nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1)))
NORM = module(nn.BatchNorm1d(3))
CONVOLUTION = module(nn.Conv2d(1, 2, 2))

PROGRAMS = {
    "product": lambda x: x * x * x,
    "linear": lambda x: F.linear(x, torch.ones(3, 3, dtype=x.dtype)) * x,
    "matrix product": lambda x: (x @ x.t()).tanh(),
    "softmax": lambda x: x.softmax(-1),
    "layer norm": lambda x: F.layer_norm(x, (3,)),
    "batch norm": lambda x: NORM(x).pow(3) * NORM(x * x),
    "a view": lambda x: x.t() * x.t(),
    "a sum of squares": lambda x: x.square().sum(),
    "of an intermediate": lambda x: x.exp().sum(),
    "of several": lambda x: ((x * 2).tanh() * x.sigmoid()).mean(-1),
    "silu": F.silu,  # autograd has another formula with create_graph
    "solve": lambda x: torch.linalg.solve(x @ x.t() + torch.eye(3, dtype=x.dtype), x),
    "convolution": lambda x: CONVOLUTION(x[None, None]).relu() * x.sum(),
    "a layer": lambda x: CRITIC(x),
    "detached": lambda x: x * x.detach() * x,
    "no_grad": part_without_grad,
    "views that are written": written_views,
    "written without grad": written_without_grad,
    "views met without grad": views_met_without_grad,
    "cosine similarity": lambda x: F.cosine_similarity(x, x.sin() + 1),
    "behind a break": broken,
    "two results": lambda x: (x.sum(0) * x.sum(), x.pow(3)),
    "dropout": lambda x: F.dropout(x.pow(3), 0.5) * torch.rand_like(x),
    "complex": lambda x: torch.view_as_real(torch.fft.ifft(x).pow(2)),
    "autograd.grad inside": lambda x: torch.autograd.grad(x.pow(4).sum(), x, create_graph=True)[0],
}


def derivatives(f, x, order):
    """Of sums of sines of what f gives, weighted; each order's, and by the tangents at last."""
    torch.manual_seed(7)
    out, found = f(x), []
    for _ in range(order):
        results = [t.sin() for t in (out if isinstance(out, tuple) else (out,))]
        tangents = [torch.linspace(0.5, 2, r.numel(), dtype=r.dtype).view(r.shape) for r in results]
        tangents = [t.requires_grad_() for t in tangents]
        out = torch.autograd.grad(results, x, tangents, create_graph=True)
        found.append(out[0])
    return [*found, *torch.autograd.grad(out[0].sum(), tangents, allow_unused=True)]


@pytest.mark.parametrize("order", (2, 3))
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name, order):
    x = leaf(3, 3)
    f = PROGRAMS[name]
    wanted = derivatives(f, x, order)
    found = derivatives(oxyfuel.compile(f), x, order)
    torch.testing.assert_close(found, wanted)
    assert [t is None or t.requires_grad for t in found] == [
        t is None or t.requires_grad for t in wanted
    ]


EVERY = [
    op
    for i, op in enumerate(op_db)
    if i % 5 == 0 and op.supports_autograd and op.supports_gradgrad
    if op.supports_dtype(torch.float64, "cpu")
    and "linear_cross_entropy" not in op.name  # a Function
]


@pytest.mark.parametrize("op", EVERY, ids=lambda op: f"{op.name}.{op.variant_test_name}")
def test_ops(op):
    """A fifth of torch's database, the first sample whose gradient has one."""
    for sample in op.sample_inputs("cpu", torch.float64, requires_grad=True):
        leaves = [t for t in (sample.input, *sample.args) if isinstance(t, torch.Tensor)]
        leaves = [t for t in leaves if t.requires_grad and t.is_leaf]

        def second(f, sample=sample, leaves=leaves):
            torch.manual_seed(1)
            out = f(sample.input, *sample.args, **sample.kwargs)
            if isinstance(out, (tuple, list)):
                out = out[0]
            torch.manual_seed(2)
            by = torch.randn_like(out).requires_grad_()
            first = torch.autograd.grad(out, leaves, by, create_graph=True, allow_unused=True)
            first = [t for t in first if t is not None and t.requires_grad]
            weights = [torch.randn_like(t) for t in first]
            return torch.autograd.grad(first, [*leaves, by], weights, allow_unused=True)

        try:
            wanted = second(op.op)
        except (RuntimeError, TypeError, AttributeError):  # it has no gradient, or no second one
            continue
        found = second(oxyfuel.compile(lambda *a, **k: op.op(*a, **k)))
        for a, b in zip(found, wanted, strict=True):
            assert (a is None) == (b is None)
            if a is not None:
                torch.testing.assert_close(a, b)
        return
    pytest.skip("no sample has a second derivative in eager")


def test_gradient_penalty_in_training():
    results = []
    for compiled in (False, True):
        torch.manual_seed(0)
        critic = nn.Sequential(nn.Linear(3, 8), nn.Dropout(0.2), nn.Tanh(), nn.Linear(8, 1))
        optimizer = torch.optim.Adam(critic.parameters())
        call = oxyfuel.compile(critic) if compiled else critic
        for _ in range(4):
            x = torch.randn(5, 3).requires_grad_()
            score = call(x)
            (g,) = torch.autograd.grad(score.sum(), x, create_graph=True)
            optimizer.zero_grad()
            (score.mean() + (g.norm(dim=1) - 1).square().mean()).backward()
            optimizer.step()
        results.append([p.detach().clone() for p in critic.parameters()] + [torch.rand(2)])
    torch.testing.assert_close(*results)


def test_a_first_derivative_that_needs_no_second():
    """A function that is linear: the gradient does not depend on x in eager either."""
    x = leaf(3)
    for f in (lambda x: x * 2, oxyfuel.compile(lambda x: x * 2)):
        (g,) = torch.autograd.grad(f(x).sum(), x, create_graph=True)
        assert torch.equal(g, torch.full((3,), 2.0, dtype=x.dtype))
        assert not g.requires_grad


def test_gradient_penalty_inside():
    """Compiled with the gradient that it is of."""
    x = leaf(4, 3)

    def penalty(x):
        (g,) = torch.autograd.grad(CRITIC(x).sum(), x, create_graph=True)
        return (g.norm(dim=1) - 1).square().mean()

    weights = [CRITIC[0].weight, CRITIC[0].bias, CRITIC[2].weight]
    found, wanted = (
        torch.autograd.grad(f(x), weights, allow_unused=True)
        for f in (oxyfuel.compile(penalty), penalty)
    )
    torch.testing.assert_close(found, wanted)


def test_backward_with_create_graph():
    x = leaf(3)
    oxyfuel.compile(lambda x: x.sin())(x).sum().backward(create_graph=True)
    torch.testing.assert_close(x.grad, x.cos())
    (second,) = torch.autograd.grad(x.grad.sum(), x)
    torch.testing.assert_close(second, -x.sin())


def test_batched():
    x = leaf(3)
    found = []
    for f in (torch.sin, oxyfuel.compile(lambda x: x.sin())):
        rows = torch.eye(3, dtype=x.dtype)
        (g,) = torch.autograd.grad(f(x), x, rows, create_graph=True, is_grads_batched=True)
        found.append((g, *torch.autograd.grad(g.exp().sum(), x)))
    torch.testing.assert_close(*found)


def test_one_primal_computed_from_another():
    """Gradients by each are the direct ones, not by way of the other."""

    def f(x, y):
        return (x.pow(2) * y.pow(3)).sum()

    found = []
    for call in (f, oxyfuel.compile(f)):
        x = torch.tensor([1.0, 2.0]).requires_grad_()
        y = x.exp()
        by_x, by_y = torch.autograd.grad(call(x, y), (x, y), create_graph=True)
        found.append((by_x, by_y, *torch.autograd.grad((by_x * by_y).sum(), (x, y))))
    torch.testing.assert_close(*found)


def test_sizes_that_vary():
    f = oxyfuel.compile(lambda x, n: (x.view(-1, n).softmax(0) * x.shape[0]).pow(2), dynamic=True)
    for rows, n in ((4, 3), (6, 3), (4, 5)):
        x = leaf(rows * n)
        found = derivatives(lambda x: f(x, n), x, 2)
        wanted = derivatives(lambda x: (x.view(-1, n).softmax(0) * x.shape[0]).pow(2), x, 2)
        torch.testing.assert_close(found, wanted)


def test_what_inputs_were_given_without_grad():
    """The vectors of spectral norm, which each call computes of those before."""
    found = []
    for compiled in (False, True):
        torch.manual_seed(0)
        layer = module(nn.utils.parametrizations.spectral_norm(nn.Linear(3, 3)))
        call = oxyfuel.compile(layer) if compiled else layer
        x = leaf(2, 3)
        (first,) = torch.autograd.grad(call(x).pow(3).sum(), x, create_graph=True)
        weight = layer.parametrizations.weight.original
        found.append((first, *torch.autograd.grad(first.pow(2).sum(), (x, weight))))
        out = call(x)
        call(x)
    torch.testing.assert_close(*found)
    (first,) = torch.autograd.grad(out.sum(), weight, create_graph=True)
    with pytest.raises(RuntimeError, match="that was written since"):
        torch.autograd.grad(first.sum(), weight)


def test_written_in_between():
    for f in (lambda x, w: (x * w).exp(), oxyfuel.compile(lambda x, w: (x * w).exp())):
        x, w = leaf(3), torch.ones(3, dtype=torch.float64)
        out = f(x, w)
        w.add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            torch.autograd.grad(out.sum(), x, create_graph=True)


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, g):
        return g * 3 * ctx.saved_tensors[0] ** 2


def hooked(x):
    y = x.sin()
    y.register_hook(lambda g: g * 2)
    return y.exp()


def chosen(x):
    return torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos(), (x,))


@pytest.mark.parametrize("f", (Cube.apply, hooked, chosen), ids=("function", "hook", "cond"))
def test_what_has_none_is_torchs_error_and_never_a_number(f):
    x = leaf(3)
    first, wanted = (
        torch.autograd.grad(g(x).sum(), x, create_graph=True)[0]
        for g in (oxyfuel.compile(lambda x: f(x)), f)
    )
    torch.testing.assert_close(first.detach(), wanted.detach())
    with pytest.raises(RuntimeError, match="does not currently support double backward"):
        torch.autograd.grad(first.sum(), x)


def test_a_result_that_was_written():
    for f in (torch.exp, oxyfuel.compile(torch.exp)):
        x = leaf(3)
        out = f(x)
        out.mul_(2)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            torch.autograd.grad(out.sum(), x, create_graph=True)


def test_an_input_that_nobody_holds():
    f = oxyfuel.compile(lambda y: y.exp())
    x = leaf(3)
    (g,) = torch.autograd.grad(f(x * 2).sum(), x, create_graph=True)  # a small one lives on
    torch.testing.assert_close(torch.autograd.grad(g.sum(), x)[0], 4 * (x * 2).exp())
    large = leaf(1 << 14)
    (g,) = torch.autograd.grad(f(large * 2).sum(), large, create_graph=True)
    with pytest.raises(RuntimeError, match="an input that nobody holds"):
        g.sum().backward()


def test_parameters_that_were_frozen():
    """What a formula keeps of a frozen parameter has no gradient, unless it is the parameter."""
    layer = nn.Linear(3, 3).double()

    def step(run):
        for p in layer.parameters():
            p.requires_grad_(False).grad = None
        x = torch.arange(3, dtype=torch.float64).requires_grad_()
        out = run(x).sin().sum()
        for p in layer.parameters():
            p.requires_grad_(True)
        (first,) = torch.autograd.grad(out, x, create_graph=True)
        (first * first).sum().backward()
        return x.grad, [p.grad for p in layer.parameters()]

    (expected, none), (found, nothing) = step(layer), step(oxyfuel.compile(layer))
    torch.testing.assert_close(found, expected)
    assert none == nothing == [None, None]

    def product(x, w):
        return (x * w).sin().sum()

    x, w = leaf(3), torch.full((3,), 2.0, dtype=torch.float64)
    out = oxyfuel.compile(product)(x, w)
    w.requires_grad_()
    (first,) = torch.autograd.grad(out, x, create_graph=True)
    with pytest.raises(RuntimeError, match="made to require gradients"):
        first.sum().backward()


@pytest.mark.parametrize("inside", [1, 2, 3])
def test_third_derivatives_of_a_determinant(inside):
    """Autograd records it by singular vectors, whose singular values are all 1."""

    def derived(y, x, times):
        for _ in range(times):
            (y,) = torch.autograd.grad((y * y).sum(), x, create_graph=True)
        return y

    x = (torch.eye(3, dtype=torch.float64) + leaf(3, 3) / 4).detach().requires_grad_()

    def f(x):
        return derived(torch.linalg.det(x), x, inside)

    expected = derived(f(x), x, 3 - inside)
    found = derived(oxyfuel.compile(f)(x), x, 3 - inside)
    torch.testing.assert_close(found, expected)
