"""Ops of torch.library with gradients of their own."""

import pytest
import torch
from model_check import first_difference

import oxyfuel


@torch.library.custom_op("oxyfuel_training::scaled", mutates_args=())
def scaled(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x * y, x + 1


@scaled.register_fake
def _(x, y):
    return torch.empty_like(x), torch.empty_like(x)


def _keep(ctx, inputs, output):
    ctx.save_for_backward(*inputs)


def _gradient(ctx, by_product, by_sum):
    x, y = ctx.saved_tensors
    return by_product * y * 10 + by_sum, by_product * x * 10


scaled.register_autograd(_gradient, setup_context=_keep)

PROGRAMS = {
    "alone": lambda x, y: scaled(x, y),
    "one result": lambda x, y: scaled(x, y)[0],
    "among others": lambda x, y: scaled(x * 2, y)[1].sin(),
    "a view": lambda x, y: scaled(x, y)[0].view(3, 1),
    "in no_grad": lambda x, y: torch.no_grad()(lambda: scaled(x, y)[0])(),
}


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_gradients(name, frozen):
    f = PROGRAMS[name]
    x, y = torch.randn(3).requires_grad_(), torch.randn(3).requires_grad_(not frozen)
    results = []
    for call in (oxyfuel.compile(f), f):
        out = call(x, y)
        roots = [t for t in torch.utils._pytree.tree_leaves(out) if t.requires_grad]
        grads = None
        if roots:
            wanted = [t for t in (x, y) if t.requires_grad]
            ones = [torch.ones_like(t) for t in roots]
            grads = torch.autograd.grad(roots, wanted, ones, allow_unused=True)
        results.append([out, grads])
    assert not first_difference(*results)
    assert oxyfuel.stats()["unsupported"] == oxyfuel.stats()["grad_fallbacks"] == 0


OUTSIDE = torch.randn(3)


@torch.library.custom_op("oxyfuel_training::shifted", mutates_args=())
def shifted(x: torch.Tensor) -> torch.Tensor:
    return x * OUTSIDE


@shifted.register_fake
def _(x):
    return torch.empty_like(x)


shifted.register_autograd(lambda ctx, g: g * OUTSIDE)


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("twice", [False, True])
def test_a_gradient_that_reads_a_tensor_from_outside(whole, twice):
    oxyfuel.reset()

    def f(x):
        y = shifted(x.sin()) * 2
        return (shifted(y) if twice else y).cos()

    def step(x, f=f):
        out = f(x)
        out.sum().backward()
        return out.detach()

    compiled = oxyfuel.compile(f)
    run = oxyfuel.compile(step) if whole else lambda x: step(x, compiled)
    for _ in range(3):
        x = torch.randn(3).requires_grad_()
        y = x.detach().clone().requires_grad_()
        assert not first_difference([run(x), x.grad], [step(y), y.grad])
        OUTSIDE.neg_()
    stats = oxyfuel.stats()
    assert stats["unsupported"] == stats["grad_fallbacks"] == stats["fallbacks"] == 0
    assert stats["graphs"] >= 2 and stats["recompiles"] == 0


@pytest.mark.parametrize("asked", [False, True])
def test_a_graph_breaks_in_front_of_the_op_whose_gradient_raises(asked):
    def f(x):
        y = scaled(x, x)[0].sin()
        z = shifted(y).cos()
        return torch.autograd.grad(z.sum(), x)[0] if asked else z

    x = torch.randn(3).requires_grad_()
    first = oxyfuel.explain(f)(x).break_reasons[0]
    assert f"line {f.__code__.co_firstlineno + 2}, in f" in str(first)
    assert not first_difference(oxyfuel.compile(f)(x), f(x))


def test_views_of_an_input_in_no_grad_require_what_eagers_do():
    x = torch.randn(3).requires_grad_()

    def f(x):
        with torch.no_grad():
            return x.view(3, 1), x.detach(), x * 2

    def told(results):
        return [(t.requires_grad, t.grad_fn, t._base is x) for t in results]

    assert told(oxyfuel.compile(f)(x)) == told(f(x))


@torch.library.custom_op("oxyfuel_training::doubled", mutates_args=("x",))
def doubled(x: torch.Tensor, by: float) -> None:
    x.mul_(by)


@pytest.mark.parametrize("compiler", ("torch", "oxyfuel"))
def test_an_op_that_writes_at_many_sizes(compiler, monkeypatch):
    monkeypatch.setenv("OXYFUEL_STRICT", "1")

    def fn(x, b):
        y = x + 1
        torch.ops.oxyfuel_training.doubled(b[1:], 2.0)
        torch.ops.oxyfuel_training.doubled(y, 3.0)
        return y + b

    make = {"torch": lambda f, **k: torch.compile(f, backend="oxyfuel", **k)}
    compiled = make.get(compiler, oxyfuel.compile)(fn, dynamic=True)
    for n in (4, 5, 2, 9, 6):
        x, b = torch.randn(n, 3), torch.randn(n, 3)
        same = b.clone()
        torch.testing.assert_close(compiled(x, b), fn(x, same))
        torch.testing.assert_close(b, same)
    stats = oxyfuel.stats()
    assert stats["static_captures"] == stats["unsupported"] == 0
    assert stats["plans"] <= 2, stats


FAILS = []


@torch.library.custom_op("oxyfuel_training::passed", mutates_args=())
def passed(x: torch.Tensor) -> torch.Tensor:
    return x.clone()


@torch.library.custom_op("oxyfuel_training::passed_back", mutates_args=())
def passed_back(g: torch.Tensor) -> torch.Tensor:
    if FAILS:
        raise ValueError("not today")
    return g.clone()


passed.register_fake(torch.empty_like)
passed_back.register_fake(torch.empty_like)
passed.register_autograd(lambda ctx, g: passed_back(g))


@pytest.mark.parametrize("first", [True, False])
def test_an_op_of_a_backward_that_raises(first):
    compiled = oxyfuel.compile(lambda x: (passed(x.sin()) * 2).cos().sum())
    x = torch.ones(3, requires_grad=True)
    if not first:
        compiled(x).backward()
    FAILS.append(1)
    try:
        with pytest.raises(ValueError, match="not today"):
            compiled(x).backward()
    finally:
        FAILS.clear()
    compiled(x).backward()


LIBRARY = torch.library.Library("oxyfuel_kernels", "DEF")
for _name, _key in (("backend", "CPU"), ("explicit", "CompositeExplicitAutograd")):
    LIBRARY.define(f"{_name}(Tensor x) -> Tensor")
    LIBRARY.impl(_name, lambda x: x.sin() * 2, _key)
torch.library.register_fake("oxyfuel_kernels::backend", torch.empty_like, lib=LIBRARY)


@pytest.mark.filterwarnings("ignore:.*autograd kernel was not registered")
@pytest.mark.parametrize("name", ["backend", "explicit"])
def test_an_op_without_a_formula_has_the_gradient_of_its_kernels_code(name):
    op = getattr(torch.ops.oxyfuel_kernels, name)

    def f(x):
        return op(x * 2) * x

    def step(f):
        x = torch.arange(3.0, requires_grad=True)
        y = f(x)
        y.sum().backward()
        return y, x.grad

    compiled = oxyfuel.compile(f)
    assert not first_difference(step(compiled), step(f))
    oxyfuel.reset()
    with torch.no_grad():
        oxyfuel.compile(f, fullgraph=True)(torch.ones(3))
