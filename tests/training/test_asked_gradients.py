"""Gradients that captured code asks for itself: by some inputs, of a batch; hooks of tensors."""

import pytest
import torch
import torch.nn.functional as F
from model_check import first_difference

import oxyfuel


def leaf(*shape):
    return torch.randn(*shape, requires_grad=True)


def copies(args):
    return [
        a.detach().clone().requires_grad_(a.requires_grad) if isinstance(a, torch.Tensor) else a
        for a in args
    ]


def compare(f, *args, graphs=1, breaks=0):
    """Results and gradients of two calls are eager's."""
    compiled = oxyfuel.compile(f)
    for _ in range(2):
        mine, others = copies(args), copies(args)
        found, expected = compiled(*mine), f(*others)
        torch.testing.assert_close(found, expected)
        for out in (found, expected):
            loss = [t.square().sum() for t in (out if isinstance(out, tuple) else (out,))]
            if used := [t for t in loss if t.requires_grad]:
                torch.stack(used).sum().backward()
        for a, b in zip(mine, others, strict=True):
            if isinstance(a, torch.Tensor):
                torch.testing.assert_close(a.grad, b.grad)
    stats = oxyfuel.stats()
    assert (stats["graphs"], stats["graph_breaks"]) == (graphs, breaks)
    assert stats["unsupported"] == stats["grad_fallbacks"] == stats["fallbacks"] == 0


@pytest.mark.parametrize("asked", [lambda x, w: (w,), lambda x, w: (x,), lambda x, w: (x, w)])
def test_only_asked_gradients_are_computed(asked, tmp_path):
    def f(x, w):
        return torch.autograd.grad((x @ w).sin().sum(), asked(x, w))

    args = leaf(3, 4), leaf(4, 5)
    compare(f, *args)
    oxyfuel.compile(f, options={"trace": str(tmp_path)})(*args)
    (graph,) = tmp_path.glob("*/aten_graph.txt")
    assert graph.read_text().count("aten.mm") == 1 + len(asked(*args))


@pytest.mark.parametrize("by", [(0, 1), (1,)])
def test_a_gradient_by_what_requires_none(by):
    def f(*args):
        return torch.autograd.grad((args[0].sin() * args[1]).sum(), [args[i] for i in by])

    args = leaf(3), torch.randn(3)
    expected = outcome(lambda: f(*args))
    assert "does not require grad" in expected
    for _ in range(2):
        assert outcome(lambda: oxyfuel.compile(f)(*args)) == expected


def test_backward_of_inputs():
    def f(x, w):
        loss = (x @ w).sin().sum()
        loss.backward(inputs=[w], retain_graph=True)
        loss.backward(inputs=x)
        return loss.detach()

    compare(f, leaf(3, 4), leaf(4, 5))


def test_backward_of_an_input_twice_and_of_one_that_it_does_not_come_to():
    def f(x, w, unused):
        loss = (x @ w).sin().sum()
        torch.autograd.backward(loss, inputs=[w, unused, w])
        return loss.detach()

    compare(f, leaf(3, 4), leaf(4, 5), leaf(2))


def test_backward_of_what_is_no_leaf_or_needs_no_gradient():
    def inner(x, w):
        h = x * 2
        (h @ w).sum().backward(inputs=[h])
        return x.detach()

    compare(inner, leaf(3, 4), leaf(4, 5), graphs=2, breaks=1)
    for run in (inner, oxyfuel.compile(inner)):
        with pytest.raises(RuntimeError, match="requires_grad=False"):
            run(torch.randn(3, 4), leaf(4, 5))


def test_gradients_of_a_batch():
    def f(x, w):
        y = x.sin() * 2
        found = torch.autograd.grad(
            [y], [w, x], [torch.eye(3)], is_grads_batched=True, allow_unused=True
        )
        assert found[0] is None
        return found[1]

    compare(f, leaf(3), leaf(2))


def test_a_batch_of_gradients_reaches_a_compiled_function():
    def f(x, w):
        return (x @ w).sin() * x.sum()

    compiled, w = oxyfuel.compile(f), torch.randn(3, 3)
    x = torch.randn(2, 3)
    jacobians = [
        torch.autograd.functional.jacobian(lambda x, run=run: run(x, w), x, vectorize=True)
        for run in (f, compiled)
    ]
    torch.testing.assert_close(jacobians[1], jacobians[0])
    x.requires_grad_()
    for v in (torch.randn(2, 4, 2, 3), torch.randn(2, 0, 2, 3)):
        rows = []
        for run in (f, compiled):
            y = run(x, w)

            def row(v, y=y):
                return torch.autograd.grad(y, x, v, retain_graph=True)[0]

            rows.append(torch.func.vmap(torch.func.vmap(row))(v))
        torch.testing.assert_close(rows[1], rows[0])


SCALE = 3.0


@pytest.mark.parametrize(
    "hook",
    [lambda g: g * 0.5, lambda g: None, lambda g: g.clamp(-1, 1), lambda g: g * SCALE + 1],
)
def test_a_hook_of_a_tensor(hook):
    def f(x):
        h = x * 2
        h.register_hook(hook)
        return h.sin()

    compare(f, leaf(3, 4))


def test_hooks_run_in_order_and_before_a_backward_inside():
    def f(x):
        h = x * 2
        h.register_hook(lambda g: g * h)
        h.register_hook(lambda g: g.clamp(-1, 1))
        h.exp().sum().backward()
        return x.grad

    compare(f, leaf(3, 4))


def test_a_hook_that_is_removed_or_whose_tensor_lives_on():
    def removed(x):
        h = x * 2
        handle = h.register_hook(lambda g: g * 5)
        y = h.sin()
        handle.remove()
        return y

    def returned(x):
        h = x * 2
        h.register_hook(lambda g: g * 5)
        return h

    compare(returned, leaf(3), graphs=1)
    x, other = copies([torch.ones(3, requires_grad=True)] * 2)
    oxyfuel.compile(removed)(x).sum().backward()
    removed(other).sum().backward()
    torch.testing.assert_close(x.grad, other.grad)


def test_a_hook_with_effects_runs_as_often_as_in_eager():
    seen = []

    def outside(x):
        h = x * 2
        h.register_hook(lambda g: seen.append(g.sum()))
        return h.sin().sum()

    def inside(x):
        kept = {}
        h = x * 2
        h.register_hook(lambda g: kept.update(h=g))
        return h.sin().sum(), kept

    x = leaf(3)
    compiled = oxyfuel.compile(outside)
    for _ in range(2):
        compiled(x).backward()
    assert len(seen) == 2
    loss, kept = oxyfuel.compile(inside)(x)
    assert not kept
    loss.backward()
    torch.testing.assert_close(kept["h"], (x * 2).cos())


@pytest.mark.parametrize("first", [True, False])
def test_a_detached_result_beside_its_own(first):
    def f(x):
        h = x * 2
        return (h.detach(), h) if first else (h, h.detach())

    compare(f, leaf(3))
    a, b = oxyfuel.compile(f)(leaf(3))
    assert (a.requires_grad, b.requires_grad) == (not first, first)
    assert a.data_ptr() == b.data_ptr()


@pytest.mark.parametrize("value", [torch.tensor(2.0), torch.tensor(2.0, dtype=torch.double)])
@pytest.mark.parametrize("inplace", [False, True])
def test_index_fill_with_a_tensor(value, inplace):
    def f(x, v, i):
        y = x.sin()
        return y.index_fill_(1, i, v * 2) if inplace else torch.Tensor.index_fill(y, 1, i, v * 2)

    compare(f, leaf(2, 4), value.requires_grad_(), torch.tensor([0, 2, 0]))
    compare_out_of_range(f, value)


def compare_out_of_range(f, value):
    for run in (f, oxyfuel.compile(f)):
        with pytest.raises((IndexError, RuntimeError), match="out of"):
            run(leaf(2, 4), value, torch.tensor([7]))


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (torch.ones(1), torch.float32),
        (torch.ones(4), torch.float32),
        (torch.ones(3, 4), torch.float32),
        (torch.tensor(2.0), torch.int64),
    ],
)
@pytest.mark.parametrize("inplace", [False, True])
def test_index_fill_with_what_eager_refuses(value, dtype, inplace):
    """Eager lets a write to integers through."""

    def f(x, i, v):
        y = x * 2
        return y.index_fill_(1, i, v) if inplace else y.index_fill(1, i, v)

    args = torch.ones(3, 4, dtype=dtype), torch.tensor([0, 2]), value.requires_grad_()
    for run in (f, oxyfuel.compile(f)):
        if inplace and dtype == torch.int64:
            assert torch.equal(run(*args), torch.full((3, 4), 2))
            continue
        with pytest.raises(RuntimeError):
            run(*args)


def test_a_batch_of_gradients_by_an_unused_input():
    def f(x, w):
        y = x.sin()
        return torch.autograd.grad(
            y, (x, w), torch.eye(3), is_grads_batched=True, materialize_grads=True
        )

    compare(f, leaf(3), leaf(4), graphs=1, breaks=1)


@pytest.mark.parametrize(
    "f", [torch.linalg.cholesky, lambda s: s.T.contiguous(), lambda s: (s @ s).T * s.cos()]
)
def test_a_batch_of_gradients_that_are_computed_in_another_layout(f):
    rows = torch.randn(2, 3, 3)

    def gradients(f):
        s = (torch.ones(3, 3) + 2 * torch.eye(3)).T.requires_grad_()
        return torch.autograd.grad(f(s), s, rows, is_grads_batched=True)[0]

    torch.testing.assert_close(gradients(oxyfuel.compile(f)), gradients(f))


def of_a_step(x, w):
    z = x + 1
    (g,) = torch.autograd.grad((z @ w).sin().sum(), z, create_graph=True)
    return g.pow(2).sum() + z.sum()


def of_steps(x, w):
    z = x + 1
    for _ in range(2):
        z = z - 0.1 * torch.autograd.grad((z**2 @ w).sum(), z, create_graph=True)[0]
    return z.sum()


def of_a_made_leaf(x, w):
    z = (x + 1).detach().requires_grad_()
    (g,) = torch.autograd.grad((z * x).sin().sum(), z, create_graph=True)
    return (g * x).sum()


def of_a_row(x, w):
    row = x[0]
    (g,) = torch.autograd.grad((x.sin() * row).sum(), row, create_graph=True)
    return g.pow(2).sum()


@pytest.mark.parametrize("f", [of_a_step, of_steps, of_a_made_leaf, of_a_row])
def test_gradients_by_what_the_code_has_computed_of_inputs_with_a_history(f):
    def step(f):
        x, w = torch.linspace(-1, 1, 9).view(3, 3).requires_grad_(), torch.eye(3).requires_grad_()
        f(x * w.detach() * 2, w).backward()
        return x.grad, w.grad

    compiled = oxyfuel.compile(f, fullgraph=True)
    for _ in range(2):
        for actual, expected in zip(step(compiled), step(f), strict=True):
            assert (actual is None) == (expected is None)
            if expected is not None:
                torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize("by", [(1,), (0, 1), (1, 2)])
def test_a_gradient_by_leaves_of_the_code_that_nothing_leads_to(by):
    def f(x):
        leaves = [x.detach().clone().requires_grad_() for _ in range(3)]
        return torch.autograd.grad(
            leaves[0].sin().sum(), [leaves[i] for i in by], allow_unused=True
        )

    compiled = oxyfuel.compile(f, fullgraph=True)
    for _ in range(2):
        assert str(compiled(torch.ones(3))) == str(f(torch.ones(3)))


def by_itself(x):
    z = x * 2
    (g,) = torch.autograd.grad(z.exp().sum(), z)
    return g.sum() + z.sum()


def between(x):
    z = x.exp()
    u = z.sin()
    (g,) = torch.autograd.grad(u.exp().sum(), z)
    return g.sum() + z.sum(), u


def by_both(x):
    z = x.exp()
    g, h = torch.autograd.grad(z.exp().sum(), [z, x])
    return (g + h).sum() + z.sum()


@pytest.mark.parametrize("f", [by_itself, between, by_both])
def test_a_gradient_frees_what_leads_to_what_it_is_asked_by(f):
    def step(f):
        x, told = torch.linspace(-1, 1, 3).requires_grad_(), []
        results = f(x)
        for t in results if isinstance(results, tuple) else [results]:
            try:
                t.sum().backward()
                told.append(x.grad.tolist())
            except RuntimeError as error:
                told.append(str(error))
        return told

    compiled = oxyfuel.compile(f)
    for _ in range(2):
        assert str(step(compiled))[:60] == str(step(f))[:60]


def test_an_empty_batch_of_gradients():
    def f(x):
        return torch.autograd.grad(x.sin(), x, torch.zeros(0, 3), is_grads_batched=True)

    for run in (f, oxyfuel.compile(f)):
        with pytest.raises(IndexError):
            run(leaf(3))


def with_statement(x):
    h = x * 2
    with h.register_hook(lambda g: g * 5):
        y = h.sin()
    return y


def with_id(x):
    h = x * 2
    handle = h.register_hook(lambda g: g * 5)
    return h.sin() if handle.id >= 0 else h


@pytest.mark.parametrize("f", [with_statement, with_id])
def test_what_a_handle_has(f, monkeypatch):
    monkeypatch.setenv("OXYFUEL_STRICT", "1")
    x, other = copies([leaf(3)] * 2)
    found, expected = oxyfuel.compile(f)(x), f(other)
    torch.testing.assert_close(found, expected)
    found.sum().backward()
    expected.sum().backward()
    torch.testing.assert_close(x.grad, other.grad)


@pytest.mark.parametrize("strict", ["0", "1"])
def test_a_hook_that_gives_no_tensor(strict, monkeypatch):
    monkeypatch.setenv("OXYFUEL_STRICT", strict)

    def f(x):
        h = x * 1
        h.register_hook(lambda g: 5)
        return h * 2

    x = leaf(3)
    for run in (f, oxyfuel.compile(f)):
        y = run(x)
        torch.testing.assert_close(y, x * 2)
        with pytest.raises(TypeError):
            y.sum().backward()


def test_a_hook_of_a_view():
    def f(x):
        h = (x * 2)[:2]
        h.register_hook(lambda g: g * 5)
        return h[0], h[1]

    def expanded(x):
        h = (x * 2).expand(2, 3)
        h.register_hook(lambda g: g * 5)
        return h[0].unsqueeze(0)

    for g in (f, expanded):
        x, other = copies([leaf(3)] * 2)
        found, expected = oxyfuel.compile(g)(x), g(other)
        torch.cat([torch.atleast_1d(t).flatten() for t in found]).sum().backward()
        torch.cat([torch.atleast_1d(t).flatten() for t in expected]).sum().backward()
        torch.testing.assert_close(x.grad, other.grad)


def test_writes_of_a_hook_to_a_tensor_that_the_code_has_made():
    def f(x):
        t = torch.zeros(4)
        h = x * 1
        h.register_hook(lambda g: (t.add_(g), None)[1])
        return h * 2, t

    for run in (f, oxyfuel.compile(f)):
        y, t = run(leaf(4))
        assert not t.any()
        y.sum().backward()
        torch.testing.assert_close(t, torch.full((4,), 2.0))


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("results", [1, 2])
@pytest.mark.parametrize("asked", [(0,), (1,), (2,), (0, 2), (0, 1, 2)])
def test_a_caller_asks_for_some(results, asked, dynamic):
    """The backward computes those alone, and what a normal one needs stays."""

    def f(x, w, u):
        h = (x @ w).sin()
        return (h @ u, h * 2)[:results]

    args = leaf(3, 4), leaf(4, 5), leaf(5, 6)
    found = []
    for function in (oxyfuel.compile(f, dynamic=dynamic), f):
        mine = copies(args)
        out = function(*mine)
        ones = [torch.ones_like(t) for t in out]
        of = [mine[i] for i in asked]
        first = torch.autograd.grad(out, of, ones, retain_graph=True)
        again = torch.autograd.grad(out[-1], mine[1], ones[-1], retain_graph=True)
        torch.autograd.backward(out, ones, retain_graph=True)
        torch.autograd.backward(out, ones, inputs=of)
        found.append([*first, *again, *(a.grad for a in mine)])
        with pytest.raises(RuntimeError, match="second time"):
            torch.autograd.backward(out, ones)
        with pytest.raises(RuntimeError, match="second time"):
            torch.autograd.grad(out[0], mine[0], ones[0])
    torch.testing.assert_close(*found)
    assert oxyfuel.stats()["fallbacks"] == 0


def test_a_caller_asks_for_what_was_not_used_up():
    def f(x, y):
        a, b = x * 2, y.exp()
        return a + b, b

    for function in (oxyfuel.compile(f), f):
        x, y = leaf(3), leaf(3)
        total, b = function(x, y)
        b.sum().backward()
        (by_x,) = torch.autograd.grad(total.sum(), x, retain_graph=True)
        assert by_x.tolist() == [2, 2, 2]
        with pytest.raises(RuntimeError, match="second time"):
            torch.autograd.grad(total.sum(), y)


def test_what_nobody_asked_for_is_not_used_up():
    def beside(x, y):
        return (x + y.exp(),)

    def behind(x, y):
        first = x - y
        return y * 2 + first, first

    for f, by in ((beside, lambda x, out: x), (behind, lambda x, out: out[1])):
        found = []
        for function in (oxyfuel.compile(f), f):
            x, y = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)
            out = function(x, y)
            (first,) = torch.autograd.grad(out[0].sum(), by(x, out))
            out[0].sum().backward()
            found.append((first, x.grad, y.grad))
            with pytest.raises(RuntimeError, match="second time"):
                torch.autograd.grad(out[0].sum(), y)
        torch.testing.assert_close(*found)


def test_what_another_result_has_used_up():
    def f(x, w):
        h = w.tanh()
        return h - 1, h, x @ h

    for function in (oxyfuel.compile(f), f):
        x, w = leaf(3, 4), leaf(4, 4)
        before, h, product = function(x, w)
        torch.autograd.backward([product, h], [torch.ones(3, 4), torch.ones(4, 4)])
        for result in (h, before):
            with pytest.raises(RuntimeError, match="second time"):
                torch.autograd.grad(result.sum(), w)


def of_branches(x, a, b):
    return (x * a).exp() + (x * b).cos()


def of_products(x, a, b):
    return torch.relu(x @ a) @ b


def of_sums(x, w):
    return x @ x + w, x.cos() + w


def outcome(f):
    try:
        return f()
    except RuntimeError as e:
        return str(e).split("\n")[0]


def same_outcome(found, expected):
    if isinstance(expected, str):
        assert found == expected
    else:
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("retain", [False, True])
@pytest.mark.parametrize("order", [(1, 2), (2, 1), (1, 1)])
@pytest.mark.parametrize("f", [of_branches, of_products])
def test_gradients_by_one_input_after_another(f, order, retain):
    def grad(y, *args):
        first = torch.autograd.grad(y.sum(), args[order[0]], retain_graph=retain)
        return first + torch.autograd.grad(y.sum(), args[order[1]])

    def backward(y, *args):
        loss = y.sum()
        loss.backward(inputs=[args[order[0]]], retain_graph=retain)
        loss.backward(inputs=[args[order[1]]])
        return [a.grad for a in args]

    def left(y, *args):
        loss = y.sum()
        return torch.autograd.grad(loss, args[order[0]], retain_graph=retain), loss

    args = torch.randn(3, 3), leaf(3, 3), leaf(3, 3)
    compiled = oxyfuel.compile(f)
    for then in grad, backward:
        whole = oxyfuel.compile(lambda *args, then=then: then(f(*args), *args))
        for _ in range(2):
            mine, others, third = copies(args), copies(args), copies(args)
            expected = outcome(lambda: then(f(*others), *others))
            same_outcome(outcome(lambda: then(compiled(*mine), *mine)), expected)
            same_outcome(outcome(lambda: whole(*third)), expected)
    part = oxyfuel.compile(lambda *args: left(f(*args), *args))
    for again in args[1], args[2]:
        (_, mine), (_, other) = part(*args), left(f(*args), *args)
        same_outcome(*(outcome(lambda y=y: torch.autograd.grad(y, again)) for y in (mine, other)))


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize(
    "f", [lambda x, w: (x.exp() + w,), lambda x, w: ((x * w).exp() + w, x + w), of_sums]
)
def test_a_gradient_that_reads_nothing_of_what_was_used_up(f, dynamic):
    compiled = oxyfuel.compile(f, dynamic=dynamic)
    orders = [((0, 0), (0, 1)), ((0, 1), (0, 0)), ((-1, 0), (0, 0), (-1, 1))]
    for n, order in enumerate(orders):
        args = leaf(n + 2, n + 2), leaf(n + 2, n + 2)
        mine, other = compiled(*args), f(*args)
        for result, by in order:
            found, expected = (
                outcome(lambda y=y: torch.autograd.grad(y[result].sum(), args[by]))
                for y in (mine, other)
            )
            same_outcome(found, expected)


def test_what_a_backward_has_kept_nothing_of_is_not_used_up():
    def f(x, w):
        y = x + w
        y.sum().backward()
        return y

    compare(f, leaf(3), leaf(3))


@pytest.mark.parametrize(
    ("f", "by"),
    [
        (lambda x, a, b: (x @ a + b).sum(), (0, 1, 2)),
        (lambda x, a, b: x * 2 + a + b, (0, 1, 2)),
        (lambda x, a, b: (x * a).exp() + b, (0, 1, 2)),
        (lambda x, a, b: (x * a).exp() + b.cos(), (0,)),
        (lambda x, a, b: (x + (x * a).exp())[1:] + b.flatten()[:3], (0, 1)),
    ],
)
def test_what_is_left_of_a_result_that_is_used_up(f, by):
    def both(*args):
        y = f(*args)
        return torch.autograd.grad(y.sum(), [args[i] for i in by]), y, y[...]

    compiled = oxyfuel.compile(both, fullgraph=True)
    args = leaf(3, 3), leaf(3, 3), leaf(3, 3)
    for which in 1, 2:
        for again in (0,), (1,), (2,), (0, 2), (0, 1, 2):
            mine, other = compiled(*args), both(*args)
            torch.testing.assert_close(mine[0], other[0])
            inputs = [args[i] for i in again]
            for _ in range(1 if len(again) > 1 else 2):
                found, expected = (
                    outcome(lambda y=y: torch.autograd.grad(y.sum(), inputs))
                    for y in (mine[which], other[which])
                )
                same_outcome(found, expected)


def test_a_view_under_no_grad_of_what_is_used_up():
    def f(x, w):
        y = x.exp() + w
        by_x = torch.autograd.grad(y.sum(), x)
        with torch.no_grad():
            return by_x, y, y[1]

    args = leaf(3, 3), leaf(3, 3)
    mine, other = oxyfuel.compile(f)(*args), f(*args)
    for found, expected in zip(mine[1:], other[1:], strict=True):
        for by in args:
            same_outcome(
                *(outcome(lambda y=y: torch.autograd.grad(y.sum(), by)) for y in (found, expected))
            )


def test_only_what_a_caller_asks_for_is_computed(tmp_path):
    compiled = oxyfuel.compile(lambda x, w: (x @ w).sin(), options={"trace": str(tmp_path)})
    x, w = leaf(3, 4), leaf(4, 5)
    torch.autograd.grad(compiled(x, w).sum(), x)
    graphs = [p.read_text() for p in tmp_path.rglob("aten_graph.txt")]
    assert sorted(text.count("aten.mm") for text in graphs) == [1, 1]


def test_one_gradient_after_another():
    """Of so many questions only the first ones have kernels of their own."""
    values = [leaf(4, 4) for _ in range(24)]

    def f(x, *values):
        for v in values:
            x = (x * v).sin() + v
        return x.sum()

    x = torch.randn(4, 4)
    found, expected = oxyfuel.compile(f)(x, *values), f(x, *values)
    for v in values:
        both = [torch.autograd.grad(y, v, retain_graph=True)[0] for y in (found, expected)]
        torch.testing.assert_close(*both)


def test_a_gradient_by_an_input_that_retains_its_own():
    def f(h, w):
        return torch.autograd.grad((h * w).sum(), h)[0]

    def step(f):
        out = []
        for retains in (False, True):
            x, w = torch.ones(3, requires_grad=True), torch.arange(3.0)
            h = x * 2
            if retains:
                h.retain_grad()
            out += [f(h, w), h.grad if retains else None]
        return out

    assert not first_difference(step(oxyfuel.compile(f)), step(f))


CHANNELS_LAST = torch.channels_last
LAID_OUT = {
    "a convolution": lambda w, x: F.conv2d(x.to(memory_format=CHANNELS_LAST), w).sin(),
    "transposed": lambda w, x: (w.transpose(0, 1) * x[0, :, 0, :2, None, None]).sin(),
    "two of them": lambda w, x: (
        F.conv2d(x.to(memory_format=CHANNELS_LAST), w).sum() + (w * w).sum()
    ),
    "a mean": lambda w, x: w.mean(),
    "sums of rows": lambda w, x: w.sum((0, 2)).sin(),
    "parts of complex numbers": lambda w, x: torch.fft.rfft(w).abs().sin(),
}


@pytest.mark.parametrize("name", LAID_OUT)
@pytest.mark.parametrize("layout", [torch.contiguous_format, CHANNELS_LAST])
def test_layouts_of_asked_gradients(name, layout):
    """What is asked for is laid out as it was computed, what is accumulated as the leaf."""

    def step(f):
        w, x = torch.arange(48.0).view(2, 3, 2, 4)[..., 1:3].div(9), torch.ones(2, 3, 4, 4)
        w = w.contiguous(memory_format=layout).requires_grad_()
        out = torch.autograd.grad(f(w, x).sum(), w)
        f(w, x).sum().backward()
        return out, w.grad

    f = LAID_OUT[name]
    assert not first_difference(step(oxyfuel.compile(f, fullgraph=True)), step(f))


@pytest.mark.parametrize("dynamic", [False, True])
def test_asked_gradients_with_gaps(dynamic):
    """A quarter of a larger matrix, in eager."""
    compiled = oxyfuel.compile(torch.matrix_exp, dynamic=dynamic)
    for n in (3, 4):
        x = torch.arange(2.0 * n * n).view(2, n, n).div(9).requires_grad_()
        found = [torch.autograd.grad(f(x).sum(), x) for f in (compiled, torch.matrix_exp)]
        assert not first_difference(*found)


@pytest.mark.parametrize("by", [F.conv1d, F.conv_transpose1d])
def test_layouts_of_asked_gradients_of_varying_sizes(by):
    def inside(x, w):
        return torch.autograd.grad(by(x, w).sin().sum(), (x, w))

    def behind(f):
        return lambda x, w: torch.autograd.grad(f(x, w).sum(), (x, w))

    both = oxyfuel.compile(inside, dynamic=True), behind(oxyfuel.compile(by, dynamic=True))
    for rows, length in ((2, 7), (3, 9)):
        x = torch.arange(3.0 * rows * length).view(rows, length, 3).transpose(1, 2)
        w = torch.arange(18.0).view(3, 3, 2).div(9).requires_grad_()
        for f, expected in zip(both, (inside, behind(by))):
            x.requires_grad_()
            assert not first_difference(f(x, w), expected(x, w))


@pytest.mark.parametrize("antialias", [False, True])
@pytest.mark.parametrize("layout", [torch.contiguous_format, CHANNELS_LAST])
def test_gradients_that_lie_otherwise_where_a_dimension_has_one_element(layout, antialias):
    """Kernels of torch choose the layout of their result by strides that mean nothing."""

    def shrink(x):
        return F.interpolate(x, size=(1, 1), mode="bilinear", antialias=antialias)

    x = torch.randn(2, 3, 4, 4).contiguous(memory_format=layout).requires_grad_()
    tangent = torch.randn(2, 3, 1, 1)
    compiled = oxyfuel.compile(shrink, fullgraph=True)
    for strides in ((3, 1, 1, 1), (3, 1, 3, 3), (3, 1, 7, 9)):
        given = tangent.as_strided(tangent.shape, strides)
        grads = [torch.autograd.grad(f(x), x, given)[0] for f in (shrink, compiled)]
        torch.testing.assert_close(grads[1], grads[0])
