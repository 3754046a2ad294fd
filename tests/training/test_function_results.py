"""What custom autograd functions give: views and arguments themselves, several results of which
some get gradients, against eager."""

import itertools

import pytest
import torch
from backward_check import leaf
from function_check import NotMaterialized, compare
from torch.autograd import Function

import oxyfuel


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
