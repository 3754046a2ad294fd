"""Custom autograd functions in captured code, forward and backward, against eager."""

import itertools

import pytest
import torch
from model_check import first_difference
from recipes_objectives import Reversal
from torch import nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable

import oxyfuel


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    """Nothing is left from other tests, or for them; failures of Oxyfuel's own are errors."""
    monkeypatch.setenv("OXYFUEL_STRICT", "1")
    oxyfuel.reset()
    torch.manual_seed(0)
    yield
    oxyfuel.reset()


class Scaled(Function):
    """Its gradient is not that of its forward, so that which one ran shows."""

    @staticmethod
    def forward(ctx, x, factor):
        ctx.save_for_backward(x)
        ctx.factor = factor
        return x * factor

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * ctx.factor * 10 + x, None


class Once(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.exp()

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * x.exp() * 3


class Two(Function):
    """One result is not differentiable, and of the arguments only those that need it have
    gradients."""

    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        places = x.argmax(-1)
        ctx.mark_non_differentiable(places)
        return x @ w, places

    @staticmethod
    def backward(ctx, g, unused):
        x, w = ctx.saved_tensors
        gx = g @ w.t() if ctx.needs_input_grad[0] else None
        gw = x.t() @ g if ctx.needs_input_grad[1] else None
        return gx, gw


class WithSetup(Function):
    @staticmethod
    def forward(x, power):
        return x**power

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.power = inputs
        ctx.save_for_backward(x)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * ctx.power * x ** (ctx.power - 1) * 2, None


class NotMaterialized(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.set_materialize_grads(False)
        return x * 2, x * 3

    @staticmethod
    def backward(ctx, a, b):
        out = None
        for g, factor in ((a, 2), (b, 3)):
            if g is not None:
                out = g * factor if out is None else out + g * factor
        return out


def compare(f, *args, fullgraph=True):
    def copies():
        return [
            a.detach().clone().requires_grad_(a.requires_grad) if isinstance(a, torch.Tensor) else a
            for a in args
        ]

    compiled = oxyfuel.compile(f, fullgraph=fullgraph)
    for _ in range(2):
        mine, others = copies(), copies()
        found, expected = compiled(*mine), f(*others)
        torch.testing.assert_close(found, expected)
        assert found.requires_grad == expected.requires_grad
        if not expected.requires_grad:
            continue
        found.square().sum().backward()
        expected.square().sum().backward()
        for a, b in zip(mine, others, strict=True):
            if isinstance(a, torch.Tensor):
                assert (a.grad is None) == (b.grad is None)
                if b.grad is not None:
                    torch.testing.assert_close(a.grad, b.grad)


def leaf(*shape):
    return torch.randn(*shape, requires_grad=True)


def test_the_users_backward_is_the_gradient():
    compare(lambda x: Scaled.apply(x.sin(), 2.0).cos(), leaf(4, 3))


def test_once_differentiable():
    compare(lambda x: Once.apply(x) + 1, leaf(5))


@pytest.mark.parametrize("needs", [(True, True), (True, False), (False, True)])
def test_needed_gradients_and_results_without_one(needs):
    def f(x, w):
        y, places = Two.apply(x, w)
        return y * (1 + places.unsqueeze(-1))

    x, w = torch.randn(3, 4), torch.randn(4, 5)
    compare(f, x.requires_grad_(needs[0]), w.requires_grad_(needs[1]))


def test_setup_context():
    compare(lambda x: WithSetup.apply(x, 3), leaf(4))


def test_gradients_that_are_not_materialized():
    compare(lambda x: NotMaterialized.apply(x)[1], leaf(4))


def test_two_calls_of_one_function():
    compare(lambda x: Scaled.apply(Scaled.apply(x, 2.0), 3.0), leaf(4))


def test_without_gradients():
    compare(lambda x: Scaled.apply(x, 2.0), torch.randn(4))


def test_a_backward_inside_the_captured_code():
    def f(x):
        (g,) = torch.autograd.grad(Scaled.apply(x, 2.0).sum(), x)
        return g

    x = leaf(4)
    torch.testing.assert_close(oxyfuel.compile(f, fullgraph=True)(x), f(x))


FACTOR = 2.0


class OfGlobals(Function):
    @staticmethod
    def forward(ctx, x):
        return x * FACTOR

    @staticmethod
    def backward(ctx, g):
        return g * FACTOR


def test_globals_of_forward_and_backward_are_guarded(monkeypatch):
    f = oxyfuel.compile(lambda x: OfGlobals.apply(x))
    for factor in (2.0, 5.0):
        monkeypatch.setattr(f"{__name__}.FACTOR", factor)
        x = leaf(3)
        f(x).sum().backward()
        torch.testing.assert_close(x.grad, torch.full((3,), factor))


calls = []


class WithEffects(Function):
    @staticmethod
    def forward(ctx, x):
        calls.append("forward")
        return x * 2

    @staticmethod
    def backward(ctx, g):
        calls.append("backward")
        return g * 2


def test_effects_happen_as_often_as_in_eager():
    f = oxyfuel.compile(lambda x: WithEffects.apply(x) + 1)
    for _ in range(2):
        calls.clear()
        f(leaf(3)).sum().backward()
        assert calls == ["forward", "backward"]


class InPlace(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x.mul_(2)

    @staticmethod
    def backward(ctx, g):
        return g * 7


def test_a_dirty_argument():
    def f(x):
        return InPlace.apply(x + 1)

    compare(f, leaf(3), fullgraph=False)


class DirtyAndSaved(Function):
    @staticmethod
    def forward(x):
        return x.mul_(2)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.mark_dirty(*inputs)
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx, g):
        return g * ctx.saved_tensors[0]


@pytest.mark.parametrize("f", [DirtyAndSaved.apply, lambda x: DirtyAndSaved.apply(x.clone())])
def test_a_dirty_argument_that_is_saved(f):
    x, other = torch.ones(3), torch.ones(3)
    torch.testing.assert_close(oxyfuel.compile(lambda x: f(x))(x), f(other))
    torch.testing.assert_close(x, other)


class WithNoise(Function):
    @staticmethod
    def forward(ctx, x):
        mask = (torch.rand_like(x) > 0.5).to(x.dtype)
        ctx.save_for_backward(mask)
        return x * mask

    @staticmethod
    def backward(ctx, g):
        (mask,) = ctx.saved_tensors
        return g * mask


def test_random_numbers_are_drawn_once():
    f = oxyfuel.compile(lambda x: WithNoise.apply(x))
    for _ in range(2):
        x = leaf(50)
        torch.manual_seed(3)
        found = f(x)
        torch.manual_seed(3)
        expected = WithNoise.apply(x)
        assert torch.equal(found, expected)
        assert torch.equal(
            torch.autograd.grad(found.sum(), x)[0], torch.autograd.grad(expected.sum(), x)[0]
        )


class Sine(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return gradient * x.cos()


def test_in_front_of_a_break():
    """The graph ends while the rest of the code is still to be followed."""

    def f(x):
        y = Sine.apply(x * 2)
        oxyfuel.graph_break()
        return Sine.apply(y) + 1

    x = torch.randn(3, 4, requires_grad=True)
    found, expected = oxyfuel.compile(f)(x), f(x)
    torch.testing.assert_close(found, expected)
    gradients = [torch.autograd.grad(y.exp().sum(), x)[0] for y in (found, expected)]
    torch.testing.assert_close(*gradients)
    stats = oxyfuel.stats()
    assert stats["graphs"] == 2 and stats["graph_breaks"] == 1
    assert stats["unsupported"] == stats["grad_fallbacks"] == stats["fallbacks"] == 0


class Holder:
    factor = 2.0


HOLDER = Holder()


class TimesHeld(Function):
    @staticmethod
    def forward(ctx, x):
        return x * HOLDER.factor

    @staticmethod
    def backward(ctx, gradient):
        return gradient * HOLDER.factor


def note_on(holder):
    holder.noted = getattr(holder, "noted", 0) + 1


@pytest.mark.parametrize(
    ("write", "function", "breaks"),
    [
        (lambda h: note_on(h), Sine, 0),  # which reads nothing of it
        (lambda h: setattr(h, "factor", 3.0), TimesHeld, 1),
        (lambda h: note_on(h), TimesHeld, 1),
        (lambda h: setattr(Holder, "factor", 3.0), TimesHeld, 1),
    ],
)
def test_behind_a_write(write, function, breaks):
    def f(x, holder):
        write(holder)
        y = function.apply(x * 2)
        note_on(holder)
        return y + holder.noted

    x = torch.randn(3, 4, requires_grad=True)
    results = []
    for run in (f, oxyfuel.compile(f)):
        vars(HOLDER).clear()
        Holder.factor = 2.0
        try:
            y = run(x, HOLDER)
            results.append((y, torch.autograd.grad(y.exp().sum(), x), dict(vars(HOLDER))))
        finally:
            Holder.factor = 2.0
    torch.testing.assert_close(results[1][:2], results[0][:2])
    assert results[1][2] == results[0][2]
    stats = oxyfuel.stats()
    assert (stats["graph_breaks"] > 0) == bool(breaks)
    assert stats["unsupported"] == stats["grad_fallbacks"] == stats["fallbacks"] == 0


class Weighted(Function):
    """Two results, of which one has no gradient, and an argument that needs none."""

    @staticmethod
    def forward(ctx, x, weight, power):
        ctx.save_for_backward(x, weight)
        ctx.power = power
        place = x.argmax(-1)
        ctx.mark_non_differentiable(place)
        return x @ weight, place

    @staticmethod
    def backward(ctx, gradient, _):
        x, weight = ctx.saved_tensors
        return gradient @ weight.t() * ctx.power, x.t() @ gradient, None


@pytest.mark.parametrize("last", [False, True])
def test_in_a_graph_of_torch_compile(last):
    """TorchDynamo writes each as an op that is given two graphs."""
    layer = torch.nn.Linear(4, 4)

    def f(x):
        y, place = Weighted.apply(layer(x).sin(), layer.weight, 5.0)
        z = Scaled.apply(y, 2.0)
        return (z, place) if last else (z.exp() + place.unsqueeze(1), place)

    x = torch.randn(3, 4, requires_grad=True)
    results = []
    for run in (f, torch.compile(f, backend="oxyfuel")):
        layer.zero_grad()
        x.grad = None
        y, place = run(x)
        y.square().sum().backward()
        results.append([y, place, x.grad, *(p.grad for p in layer.parameters())])
    torch._dynamo.reset()
    torch.testing.assert_close(*results)
    stats = oxyfuel.stats()
    assert stats["graphs"] == stats["plans"] == 1
    assert stats["unsupported"] == stats["fallbacks"] == stats["graph_breaks"] == 0


class Reversed(Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, g):
        return -g


class Same(Function):
    @staticmethod
    def forward(ctx, x, flag=True):
        return x if flag else x * 2

    @staticmethod
    def backward(ctx, g):
        return g * 10, None


@pytest.mark.parametrize("function", [Reversed, Same])
def test_a_view_with_a_gradient_of_its_own(function):
    """It is what autograd makes of the forward's result, also where it is a view of an input."""
    compare(lambda x: function.apply(x), leaf(4))
    compare(lambda x: function.apply(x)[0], leaf(4))
    compare(lambda x: function.apply(x * 2), leaf(4))
    compare(lambda x: function.apply(x).sin(), leaf(4))
    x = leaf(4)
    for run in (function.apply, oxyfuel.compile(lambda x: function.apply(x), fullgraph=True)):
        y = run(x)
        assert y.data_ptr() == x.data_ptr()
        with pytest.raises(RuntimeError, match="is a view and is being modified inplace"):
            y.mul_(2)


@pytest.mark.parametrize("function", [Reversed, Same])
def test_hooks_of_a_view_see_what_comes_by_others(function):
    def f(x):
        y = function.apply(x)
        return y, y.sin(), x * 2

    compiled = oxyfuel.compile(f, fullgraph=True)
    for used in ((0,), (1,), (0, 1), (2,)):
        seen = []
        for run in (f, compiled):
            x = torch.ones(3, requires_grad=True)
            out = run(x)
            out[0].register_hook(lambda g: seen.append(g))
            sum(out[i].sum() for i in used).backward()
            seen.append(x.grad)
        mine, expected = seen[len(seen) // 2 :], seen[: len(seen) // 2]
        torch.testing.assert_close(mine, expected)


@pytest.mark.parametrize("function", [Reversed, Same])
def test_a_view_without_gradients(function):
    @torch.no_grad()
    def f(x):
        return function.apply(x)

    x = leaf(3)
    found, expected = oxyfuel.compile(f, fullgraph=True)(x), f(x)
    assert found.data_ptr() == expected.data_ptr()
    assert found.requires_grad == expected.requires_grad
    assert found._is_view() == expected._is_view()


def test_a_view_beside_what_it_is_a_view_of():
    def f(x):
        h = x * 2
        return h, Reversed.apply(h)

    x, other = leaf(4), leaf(4)
    other.data.copy_(x)
    for run, of in ((f, other), (oxyfuel.compile(f), x)):
        h, r = run(of)
        assert h.data_ptr() == r.data_ptr()
        (h.sum() + r.square().sum()).backward()
    torch.testing.assert_close(x.grad, other.grad)


class Affine(Function):
    """Not linear in its gradient."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * 3 + x


@pytest.mark.parametrize("used", [0, 1])
@pytest.mark.parametrize(
    "f",
    [
        lambda x, y: (Affine.apply(x), y.sin()),
        lambda x, y: NotMaterialized.apply(x),
    ],
)
def test_results_without_gradients(f, used):
    """The backward of a function runs where gradients arrive, with those that do."""
    results = []
    for run in (f, oxyfuel.compile(f)):
        torch.manual_seed(0)
        x, y = leaf(4), leaf(4)
        run(x, y)[used].sum().backward()
        results.append((x.grad, y.grad))
    assert [g is None for g in results[0]] == [g is None for g in results[1]]
    for a, b in zip(*results, strict=True):
        if a is not None:
            torch.testing.assert_close(b, a)


class Kept(Function):
    """Its gradient is what it has kept, whatever arrives."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * 2, x + 1

    @staticmethod
    def backward(ctx, a, b):
        return ctx.saved_tensors[0]


class First(Function):
    """One argument has no gradient, although the engine goes on to what it was computed by."""

    @staticmethod
    def forward(ctx, x, y):
        return x + y, x - y

    @staticmethod
    def backward(ctx, a, b):
        return a * (1 - b), None


@pytest.mark.parametrize(
    "f",
    [
        lambda x, y: (Affine.apply(x), y.sin()),
        lambda x, y: (Affine.apply(Affine.apply(x) * y), y.sin(), x * 2),
        lambda x, y: (*Kept.apply(x), y * 2),
        lambda x, y: Kept.apply(x * y)[0],
        lambda x, y: (*First.apply(x, Affine.apply(y)), x * y),
        lambda x, y: First.apply(First.apply(x, y)[0].sin(), y),
        lambda x, y: (lambda h: (h, Affine.apply(h), Kept.apply(h)[1]))(Affine.apply(x) + y),
        lambda x, y: (x.round(), y * 2),
    ],
)
def test_which_gradients_arrive(f):
    """A node of autograd runs where a result that leads to it has a gradient, with zeros for
    others."""
    compiled = oxyfuel.compile(f, fullgraph=True)
    x, y = leaf(4), leaf(4)
    out = f(x, y)
    count = len(out) if isinstance(out, tuple) else 1
    for used in itertools.chain.from_iterable(
        itertools.combinations(range(count), n) for n in range(1, count + 1)
    ):
        found, expected = (gradients_by(run, used, x, y, inputs=(0, 1)) for run in (compiled, f))
        torch.testing.assert_close(found[0], expected[0])
        assert [g is None for g in found[1]] == [g is None for g in expected[1]]
        for a, b in zip(found[1], expected[1], strict=True):
            if b is not None:
                torch.testing.assert_close(a, b)


class WithNone(Function):
    @staticmethod
    def forward(ctx, x, y, power=2):
        ctx.save_for_backward(x, y)
        ctx.power = power
        return x * y, None, x + y

    @staticmethod
    def backward(ctx, a, _, b):
        x, y = ctx.saved_tensors
        return a * y * ctx.power + b, a * x + b, None


@pytest.mark.parametrize("named", [{}, {"power": 5}])
def test_none_among_the_results_and_named_arguments(named):
    def f(x, y):
        product, nothing, total = WithNone.apply(x, y, **named)
        assert nothing is None
        return product * total

    compare(f, leaf(4), leaf(4))


class WithDefault(Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x, power=3):
        return x**power

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.power = inputs
        ctx.save_for_backward(x)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * ctx.power * x ** (ctx.power - 1) * 2, None


def test_defaults_of_a_forward():
    compare(lambda x: WithDefault.apply(x), leaf(4))
    compare(lambda x: WithDefault.apply(x), torch.randn(4))


class Noting(Function):
    @staticmethod
    def forward(ctx, x, notes):
        notes.append(1)
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g * 2, None


def test_writes_to_what_the_code_has_made_happen_once():
    def f(x):
        notes = []
        return Noting.apply(x, notes) * len(notes)

    compare(f, leaf(4), fullgraph=False)


class WithRule(Function):
    @staticmethod
    def forward(x):
        return x.sin()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * x.cos() * 3

    @staticmethod
    def vmap(info, in_dims, x):
        return WithRule.apply(x) * (info.batch_size * FACTOR), in_dims[0]


def pullback(f):
    def run(x):
        y, back = torch.func.vjp(f, x)
        return back(y.cos())[0]

    return run


TRANSFORMS = {
    "grad": lambda f: torch.func.grad(lambda x: f(x).sum()),
    "vmap": torch.func.vmap,
    "vmap_second": lambda f: torch.func.vmap(f, in_dims=1, out_dims=1),
    "vmap_grad": lambda f: torch.func.vmap(torch.func.grad(lambda x: f(x).sum())),
    "grad_vmap": lambda f: torch.func.grad(lambda x: torch.func.vmap(f)(x).sum()),
    "vjp": pullback,
    "jacrev": torch.func.jacrev,
}


@pytest.mark.parametrize("needs_gradients", [False, True])
@pytest.mark.parametrize("function", [WithDefault, WithRule])
@pytest.mark.parametrize("transform", TRANSFORMS)
def test_in_a_transform(transform, function, needs_gradients):
    """One graph; the rule of a function for vmap is its own or made of its forward."""
    inner = TRANSFORMS[transform](lambda x: function.apply(x) * 2)
    compare(lambda x: inner(x + 1), torch.randn(3, 2).requires_grad_(needs_gradients))


def test_a_global_of_a_rule_is_guarded(monkeypatch):
    f = oxyfuel.compile(lambda x: torch.func.vmap(WithRule.apply)(x))
    x = torch.randn(3, 2)
    for factor in (2.0, 5.0):
        monkeypatch.setattr(f"{__name__}.FACTOR", factor)
        torch.testing.assert_close(f(x), x.sin() * (3 * factor))


class WholeView(Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x), x * 2

    @staticmethod
    def backward(ctx, a, b):
        return -a * 5 + b


class Itself(Function):
    @staticmethod
    def forward(ctx, x):
        return x, x * 2

    @staticmethod
    def backward(ctx, a, b):
        return -a * 5 + b


class ViewsOfTwo(Function):
    @staticmethod
    def forward(ctx, x, y):
        return x.view_as(x), y[:3]

    @staticmethod
    def backward(ctx, a, b):
        return a * 2, torch.cat([b * 3, a[3:]])


class Halves(Function):
    @staticmethod
    def forward(ctx, x):
        return x[:2], x[2:]

    @staticmethod
    def backward(ctx, a, b):
        return torch.cat([a * 2, b * 3])


class Expanded(Function):
    @staticmethod
    def forward(ctx, x):
        return x.expand(3, 4)

    @staticmethod
    def backward(ctx, g):
        return g.sum(0) * 5


class EverySecond(Function):
    @staticmethod
    def forward(ctx, x):
        return x[::2]

    @staticmethod
    def backward(ctx, g):
        return torch.stack([g * 5, g * 7], 1).flatten()


class Diagonal(Function):
    @staticmethod
    def forward(ctx, x):
        return x.view(2, 2).diagonal()

    @staticmethod
    def backward(ctx, g):
        return torch.cat([g * 5, g * 7])


class Strided(Function):
    @staticmethod
    def forward(ctx, x):
        return x.as_strided((2,), (2,))

    @staticmethod
    def backward(ctx, g):
        return torch.cat([g * 5, g * 7])


class Detached(Function):
    @staticmethod
    def forward(ctx, x):
        return x.detach()

    @staticmethod
    def backward(ctx, g):
        return g * 5


class DetachedPart(Function):
    @staticmethod
    def forward(ctx, x):
        return x[:2].detach()

    @staticmethod
    def backward(ctx, g):
        return torch.cat([g * 5, g * 7])


SHARING = {
    "view_of_input": lambda x: WholeView.apply(x)[0],
    "view_of_intermediate": lambda x: WholeView.apply(x + 1)[0],
    "input": lambda x: Itself.apply(x)[0],
    "intermediate": lambda x: Itself.apply(x + 1)[0],
    "halves": Halves.apply,
    "halves_of_intermediate": lambda x: Halves.apply(x + 1),
    "half": lambda x: Halves.apply(x + 1)[1],
    "half_beside_a_detached_one": lambda x: (lambda a, b: (b, x * 2, a.detach()))(*Halves.apply(x)),
    "one_of_two": lambda x: ViewsOfTwo.apply(x, x + 1)[1],
    "beside_one_without_gradients": lambda x: ViewsOfTwo.apply(torch.ones(4), x + 1),
    "of_one_without_gradients": lambda x: ViewsOfTwo.apply(x, torch.ones(4)),
    "beside": lambda x: (lambda h: (h, WholeView.apply(h)[0]))(x.sin()),
    "part_of_view": lambda x: Reversed.apply(x)[1:],
    "parts_of_view": lambda x: (lambda y: (y[1:], y[:1]))(Reversed.apply(x + 1)),
    "expand": lambda x: Expanded.apply(x + 1),
    "expand_unsqueeze": lambda x: Expanded.apply(x + 1).unsqueeze(0),
    "step": lambda x: EverySecond.apply(x + 1),
    "step_of_input": lambda x: EverySecond.apply(x),
    "diagonal": lambda x: Diagonal.apply(x + 1),
    "diagonal_unsqueeze": lambda x: Diagonal.apply(x + 1).unsqueeze(0),
    "as_strided": lambda x: Strided.apply(x + 1),
    "detach": lambda x: Detached.apply(x),
    "detach_beside": lambda x: (Detached.apply(x), x * 2),
    "detach_of_part": lambda x: Detached.apply(x[:2]),
    "detach_of_intermediate": lambda x: Detached.apply(x + 1),
    "detach_beside_its_own": lambda x: (lambda h: (h, Detached.apply(h)))(x + 1),
    "parts_of_detached": lambda x: (lambda y: (y[1:], y[:1]))(Detached.apply(x + 1)),
    "detached_part": lambda x: DetachedPart.apply(x + 1),
    "parts_of_detached_part": lambda x: (lambda y: (y[1:], y[:1]))(DetachedPart.apply(x + 1)),
    "vmap": lambda x: torch.func.vmap(ReversedRows.apply)(x.view(2, 2)),
}


class ReversedRows(Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return x.view_as(x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, g):
        return -g


def gradients_by(run, used, *args, inputs):
    """Of some of the results alone; whether there is one is told as well."""
    mine = [a.detach().clone().requires_grad_(a.requires_grad) for a in args]
    out = run(*mine)
    out = out if isinstance(out, tuple) else (out,)
    sum((i + 2) * out[i].sin().sum() for i in used if i < len(out)).backward()
    return [t.detach().clone() for t in out], [mine[i].grad for i in inputs]


def compare_by(f, *args, results=2):
    compiled = oxyfuel.compile(f)
    for used in ((0,), (1,), (0, 1))[: 3 if results == 2 else 1]:
        found = gradients_by(compiled, used, *args, inputs=range(len(args)))
        expected = gradients_by(f, used, *args, inputs=range(len(args)))
        torch.testing.assert_close(found[0], expected[0])
        for a, b in zip(found[1], expected[1], strict=True):
            assert (a is None) == (b is None)
            if b is not None:
                torch.testing.assert_close(a, b)


@pytest.mark.parametrize("name", SHARING)
def test_results_that_share_memory_keep_their_gradient(name):
    f = SHARING[name]
    x = leaf(4)
    many = isinstance(f(x), tuple)
    compare_by(f, x, results=2 if many else 1)


@pytest.mark.parametrize(
    "of",
    [
        lambda a, b: a * (1 - b),
        lambda a, b: a * b.sigmoid(),
        lambda a, b: a * b.exp(),
        lambda a, b: a + b.cos(),
        lambda a, b: a + b.clamp(min=0.5),
        lambda a, b: torch.where(b > 0, b, 1) + a,
        lambda a, b: a * b.softmax(0),
        lambda a, b: a * b**0,
        lambda a, b: torch.cat([a[:2], b[2:].cos()]),
        lambda a, b: b,
        lambda a, b: a * 2 + b * 3,
    ],
)
def test_some_of_several_gradients(of):
    class Pair(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2, x * 3

        @staticmethod
        def backward(ctx, a, b):
            return of(a, b)

    compare_by(lambda x: Pair.apply(x), leaf(4))
    compare(lambda x: torch.mul(*Pair.apply(x)), leaf(4))


class Raising(Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(y)
        return x * y

    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        return g * y, None


def test_a_saved_tensor_that_is_modified():
    def f(x, y):
        y = y + 1
        out = Raising.apply(x, y)
        y.mul_(2)
        return out

    compiled = oxyfuel.compile(f)
    for run in (f, compiled):
        x, y = leaf(3), torch.ones(3)
        out = run(x, y)
        torch.testing.assert_close(out, x * 2)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            out.sum().backward()


def test_writes_of_a_forward_to_a_tensor_that_the_code_has_made_happen_once():
    class Counting(Function):
        @staticmethod
        def forward(ctx, x, held):
            held[0].add_(1)
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * 2, None

    def f(x):
        h = [torch.zeros(1)]
        y = Counting.apply(x, h)
        return y * h[0]

    compare(f, leaf(3), fullgraph=False)


@pytest.mark.parametrize("kind", ["cell", "dict", "list"])
@pytest.mark.parametrize("method", ["forward", "backward"])
def test_writes_of_a_local_class_happen_once(kind, method):
    def f(x):
        n, d, entries = 0, {"n": 0}, []

        def note():
            nonlocal n
            if kind == "cell":
                n += 1
            elif kind == "dict":
                d["n"] += 1
            else:
                entries.append(1)

        class Local(Function):
            @staticmethod
            def forward(ctx, x):
                if method == "forward":
                    note()
                return x * 2

            @staticmethod
            def backward(ctx, g):
                if method == "backward":
                    note()
                return g * 2

        return Local.apply(x), lambda: (n, d["n"], len(entries))

    for run in (f, oxyfuel.compile(f)):
        y, count = run(leaf(3))
        before = sum(count())
        y.sum().backward()
        assert (before, sum(count())) == ((1, 1) if method == "forward" else (0, 1))


class PairWithRule(Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return x * 2, x * 3

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, a, b):
        return a * (1 - b) + 1


@pytest.mark.parametrize("used", [0, 1])
def test_some_of_several_gradients_in_a_transform(used):
    def several(x):
        return torch.func.vmap(PairWithRule.apply)(x)

    def beside(x):
        return torch.func.vmap(PairWithRule.apply)(x)[0], x * 2

    for f in (several, beside):
        gradients = []
        for run in (f, oxyfuel.compile(f)):
            x = torch.ones(2, 3, requires_grad=True)
            run(x)[used].sum().backward()
            gradients.append(x.grad)
        torch.testing.assert_close(*gradients)


class OfOperators(Function):
    """Operators of a number and a tensor, both ways, and of numbers."""

    @staticmethod
    def forward(ctx, x, rate, shift):
        ctx.rates = rate, 1 - shift
        return (rate - x) / (2.0 * rate) + (x + shift) * -rate + torch.mul(x, shift)

    @staticmethod
    def backward(ctx, g):
        rate, rest = ctx.rates
        return g * rate + rest * g.sum() - g / rate, None, None


class AsksForSign(Function):
    @staticmethod
    def forward(ctx, x, rate):
        ctx.rate = rate
        return x * rate

    @staticmethod
    def backward(ctx, g):
        return g * ctx.rate if ctx.rate > 1 else g, None


class WritesInPlace(AsksForSign):
    @staticmethod
    def backward(ctx, g):
        g = g.clone()
        g *= ctx.rate
        return g, None


class OfGlobal(Function):
    rate = 1.0

    @staticmethod
    def forward(ctx, x, rate):
        return x * rate * OfGlobal.rate

    @staticmethod
    def backward(ctx, g):
        return g * OfGlobal.rate, None


@pytest.mark.parametrize("size", [(3,), ()], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize(
    ("function", "breaks"),
    [(Reversal, 0), (OfOperators, 0), (AsksForSign, 1), (WritesInPlace, 1), (OfGlobal, 1)],
    ids=lambda f: getattr(f, "__name__", None),
)
def test_floats_that_vary(function, breaks, dtype, size):
    def fn(x, rate, shift):
        if function is OfOperators:
            return function.apply(x * 2, rate, shift).tanh()
        return function.apply(x * 2, rate).tanh()

    def train(f):
        torch.manual_seed(0)
        out = []
        for i in range(6):
            x = torch.randn(size, dtype=dtype, requires_grad=True)
            OfGlobal.rate = 1.0 + i / 7
            y = f(x, 0.3 + i / 3, -0.1 * i)
            y.sum().backward()
            out += [y.detach(), x.grad]
        return out

    expected, found = train(fn), train(oxyfuel.compile(fn))
    torch.testing.assert_close(found, expected)
    stats = oxyfuel.stats()
    assert stats["fallbacks"] == 0
    if not breaks:
        assert (stats["graphs"], stats["graph_breaks"]) == (2, 0)


@pytest.mark.parametrize(
    ("function", "breaks"),
    [(Reversal, 0), (OfOperators, 0), (AsksForSign, 1)],
    ids=lambda f: getattr(f, "__name__", None),
)
def test_floats_that_vary_in_graphs_of_torch_compile(function, breaks):
    def fn(x, rate):
        args = (rate, 0.1) if function is OfOperators else (rate,)
        return function.apply(x * 2, *args).tanh()

    def train(f):
        torch.manual_seed(0)
        out = []
        for i in range(5):
            x = torch.randn(3, requires_grad=True)
            y = f(x, 1.3 + i / 3)
            y.sum().backward()
            out += [y.detach(), x.grad]
        return out

    found = train(torch.compile(fn, backend="oxyfuel"))
    torch.testing.assert_close(found, train(fn))
    stats = oxyfuel.stats()
    assert stats["fallbacks"] == 0
    if not breaks:
        assert (stats["graphs"], stats["plans"], stats["graph_breaks"]) == (2, 2, 0)


class ReadsModule(Function):
    @staticmethod
    def forward(ctx, x, module):
        ctx.scale = module.scale
        return x * module.scale

    @staticmethod
    def backward(ctx, g):
        return g * ctx.scale, None


class ReadsModuleLater(Function):
    @staticmethod
    def forward(ctx, x, module):
        ctx.module = module
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g * ctx.module.scale, None


@pytest.mark.parametrize("function", [ReadsModule, ReadsModuleLater])
@pytest.mark.parametrize("requires", [False, True])
def test_tensors_of_a_module_that_the_graph_has_as_well(function, requires):
    class WithScale(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.ones(3), requires_grad=requires)

        def forward(self, x):
            return function.apply(x + self.scale, self)

    def train(wrap):
        module = WithScale()
        run, out = wrap(module), []
        for value in (1.0, 2.0, 3.0):
            module.scale = nn.Parameter(torch.full((3,), value), requires_grad=requires)
            x = torch.ones(3, requires_grad=True)
            y = run(x)
            y.sum().backward()
            out += [y.detach(), x.grad, module.scale.grad]
        return out

    assert not first_difference(train(oxyfuel.compile), train(lambda m: m))
    assert oxyfuel.stats()["unsupported"] == 0


class Holder(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3, bias=False)
        self.register_buffer("offset", torch.ones(3))
        self.listed = [torch.ones(3)]
        self.pair = (1, torch.ones(3))

    def replace(self, value, requires):
        self.linear.weight = nn.Parameter(torch.full((3, 3), value), requires_grad=requires)
        self.offset = torch.full((3,), value)
        self.listed[0] = torch.full((3,), value)
        self.pair = (1, torch.full((3,), value))


HELD = [
    lambda h: h.linear(torch.ones(3)),
    lambda h: sum(p.sum() for p in h.parameters()),
    lambda h: next(h.buffers()),
    lambda h: h.listed[0],
    lambda h: h.pair[1],
]


@pytest.mark.parametrize("read", HELD, ids=["call", "parameters", "buffer", "list", "tuple"])
@pytest.mark.parametrize("later", [False, True], ids=["forward", "backward"])
def test_what_an_argument_holds_after_the_graph_has_read_it(read, later):
    class Reads(Function):
        @staticmethod
        def forward(ctx, x, holder):
            ctx.holder = holder
            return x * 2 if later else x * read(holder)

        @staticmethod
        def backward(ctx, g):
            return g * read(ctx.holder), None

    def train(wrap):
        torch.manual_seed(0)
        holder, out = Holder(), []
        run = wrap(lambda x: Reads.apply(x + read(holder), holder) * 1)
        for value, requires in ((1.0, False), (2.0, False), (3.0, True)):
            holder.replace(value, requires)
            x = torch.ones(3, requires_grad=True)
            y = run(x)
            y.sum().backward()
            out += [y.detach(), x.grad, holder.linear.weight.grad]
        return out

    assert not first_difference(train(oxyfuel.compile), train(lambda f: f))
    assert oxyfuel.stats()["unsupported"] == 0


def test_tensors_in_a_list_that_is_an_argument():
    class OfList(Function):
        @staticmethod
        def forward(ctx, x, tensors):
            ctx.tensors = tensors
            return x * tensors[0]

        @staticmethod
        def backward(ctx, g):
            return g * ctx.tensors[0], None

    def train(wrap):
        tensors, out = [torch.ones(3)], []
        run = wrap(lambda x: OfList.apply(x + tensors[0], tensors) * 1)
        for value in (1.0, 2.0):
            tensors[0] = torch.full((3,), value)
            x = torch.ones(3, requires_grad=True)
            y = run(x)
            y.sum().backward()
            out += [y.detach(), x.grad]
        return out

    assert not first_difference(train(oxyfuel.compile), train(lambda f: f))
    assert oxyfuel.stats()["graph_breaks"] == 0


GIVEN_AS_VIEWS = {
    "itself": lambda x: Identity.apply(x.sin()),
    "part": lambda x: Narrowed.apply(x.sin()),
    "computed of": lambda x: (lambda y: (y, y.exp()))(Identity.apply(x.sin()))[0],
}


class Identity(Function):
    @staticmethod
    def forward(ctx, x):
        return x

    @staticmethod
    def backward(ctx, g):
        return g * 3


class Narrowed(Function):
    @staticmethod
    def forward(ctx, x):
        return x[1:]

    @staticmethod
    def backward(ctx, g):
        return torch.cat([torch.zeros(1), g * 2])


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("name", GIVEN_AS_VIEWS)
def test_writes_to_what_a_function_gives_of_an_intermediate_raise(name, inside):
    def f(x):
        y = GIVEN_AS_VIEWS[name](x)
        return y.mul_(2) if inside else y

    for run in (f, oxyfuel.compile(f)):
        x = torch.arange(4.0, requires_grad=True)
        with pytest.raises(RuntimeError, match="is a view and is being modified inplace"):
            run(x).mul_(2)
    if not inside:
        grads = [torch.autograd.grad(run(x).sum(), x)[0] for run in (f, oxyfuel.compile(f))]
        torch.testing.assert_close(*grads)
