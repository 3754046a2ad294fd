"""Custom autograd functions in captured code, forward and backward, against eager."""

import pytest
import torch
from backward_check import leaf
from function_check import NotMaterialized, compare
from torch.autograd import Function
from torch.autograd.function import once_differentiable

import oxyfuel


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
        y = x + 1
        return InPlace.apply(y).sin() * y

    compare(f, leaf(3))


def test_a_dirty_argument_from_before_the_call():
    def step(f):
        x = torch.ones(3, requires_grad=True)
        y = x * 1
        out = f(y)
        (out.sin() + y).sum().backward()
        return x.grad, y.detach(), out is y

    def f(y):
        return InPlace.apply(y)

    expected, found = step(f), step(oxyfuel.compile(f, fullgraph=True))
    torch.testing.assert_close(found[:2], expected[:2])
    assert found[2] and expected[2]


@pytest.mark.parametrize("part", [lambda y: y, lambda y: y[0], lambda y: y.t()])
def test_a_dirty_view(part):
    def f(x):
        y = x * 1
        z = InPlace.apply(part(y))
        return (y.sin() + z.sum()) * 2

    compare(f, leaf(3, 3))


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


class DirtyAndLost(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x.mul_(2) + 1


@pytest.mark.parametrize("requires_grad", [True, False])
def test_a_dirty_argument_that_is_no_result_is_refused(requires_grad):
    x = torch.ones(3, requires_grad=requires_grad)
    for f in (DirtyAndLost.apply, oxyfuel.compile(lambda x: DirtyAndLost.apply(x))):
        with pytest.raises(RuntimeError, match="were not returned as output"):
            f(x * 1)


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
