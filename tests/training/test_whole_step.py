"""backward(), torch.autograd.grad and whole training steps in captured code, against eager."""

import copy
import inspect

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import oxyfuel


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    """Nothing is left from other tests, or for them; failures of Oxyfuel's own are errors."""
    monkeypatch.setenv("OXYFUEL_STRICT", "1")
    oxyfuel.reset()
    torch.manual_seed(0)
    yield
    oxyfuel.reset()


def assert_same_gradients(model, other):
    for p, q in zip(model.parameters(), other.parameters(), strict=True):
        assert (p.grad is None) == (q.grad is None)
        if q.grad is not None:
            torch.testing.assert_close(p.grad, q.grad)
            assert p.grad.stride() == q.grad.stride()
            assert not p.grad.requires_grad


def model_of():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 3))


def graphs_and_breaks(f, *args):
    found = oxyfuel.explain(f)(*args)
    return found.graph_count, [str(b) for b in found.break_reasons]


def test_a_gradient_by_an_argument():
    def f(x, w):
        y = (x @ w).sin().sum()
        (g,) = torch.autograd.grad(y, [w])
        return g * 2

    x, w = torch.randn(3, 4), torch.randn(4, 5, requires_grad=True)
    compiled = oxyfuel.compile(f, fullgraph=True)
    for _ in range(2):
        torch.testing.assert_close(compiled(x, w), f(x, w))


def test_a_gradient_by_what_the_code_has_made():
    def f(x):
        h = x * 3
        loss = (h.exp() * x).sum()
        return torch.autograd.grad(loss, (h, x), allow_unused=True)

    x = torch.randn(5, requires_grad=True)
    found, expected = oxyfuel.compile(f, fullgraph=True)(x), f(x)
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b)


def test_a_gradient_penalty():
    def f(x, w):
        y = (x @ w).tanh()
        (g,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        return y.mean() + (g**2).sum()

    x = torch.randn(3, 4, requires_grad=True)
    w = torch.randn(4, 2, requires_grad=True)
    found = oxyfuel.compile(f, fullgraph=True)(x, w)
    gradients = torch.autograd.grad(found, (x, w))
    expected = f(x, w)
    torch.testing.assert_close(found, expected)
    for a, b in zip(gradients, torch.autograd.grad(expected, (x, w)), strict=True):
        torch.testing.assert_close(a, b)


def test_no_gradient_is_none():
    def f(x, w):
        return torch.autograd.grad((x * 2).sum(), (x, w), allow_unused=True)

    x, w = torch.randn(3, requires_grad=True), torch.randn(3, requires_grad=True)
    found = oxyfuel.compile(f)(x, w)
    torch.testing.assert_close(found[0], f(x, w)[0])
    assert found[1] is None


def test_a_gradient_goes_on_in_front_of_the_call():
    def f(h, x):
        return torch.autograd.grad((h * h).sum(), x)

    x = torch.randn(3, requires_grad=True)
    compiled = oxyfuel.compile(f)
    torch.testing.assert_close(compiled(x.sin(), x), f(x.sin(), x))


def test_backward_sets_and_adds():
    model, other = model_of(), model_of()
    x = torch.randn(4, 6)

    def f(m):
        loss = m(x).square().mean()
        loss.backward()
        return loss.detach()

    compiled = oxyfuel.compile(f, fullgraph=True)
    for _ in range(4):
        torch.testing.assert_close(compiled(model), f(other))
        assert_same_gradients(model, other)


def test_gradients_are_added_where_they_are():
    model = model_of()
    x = torch.randn(4, 6)

    @oxyfuel.compile
    def f():
        model(x).sum().backward()

    f()
    held = [p.grad for p in model.parameters()]
    f()
    assert all(p.grad is g for p, g in zip(model.parameters(), held, strict=True))


def test_leaves_do_not_share_a_gradient():
    def f(a, b):
        (a + b).sum().backward()

    a, b = torch.randn(3, requires_grad=True), torch.randn(3, requires_grad=True)
    oxyfuel.compile(f)(a, b)
    assert a.grad.data_ptr() != b.grad.data_ptr()
    assert torch.equal(a.grad, torch.ones(3)) and torch.equal(b.grad, torch.ones(3))
    assert a.grad.stride() == (1,)


def test_the_gradient_has_the_layout_of_the_leaf():
    def f(w, x):
        (x @ w).sum().backward()

    w = torch.randn(5, 4).t().requires_grad_()
    other = w.detach().clone(memory_format=torch.preserve_format).requires_grad_()
    x = torch.randn(3, 4)
    oxyfuel.compile(f)(w, x)
    f(other, x)
    assert w.grad.stride() == other.grad.stride()
    torch.testing.assert_close(w.grad, other.grad)


def test_a_given_gradient():
    def f(x, v):
        (x * 2).backward(v)
        return v + 1

    x, v = torch.randn(3, requires_grad=True), torch.randn(3)
    other = x.detach().clone().requires_grad_()
    torch.testing.assert_close(oxyfuel.compile(f)(x, v), f(other, v))
    torch.testing.assert_close(x.grad, other.grad)


def test_a_result_whose_graph_was_used_up():
    def f(x):
        loss = (x.exp() * 2).sum()
        loss.backward()
        return loss

    x = torch.randn(3, requires_grad=True)
    other = x.detach().clone().requires_grad_()
    found, expected = oxyfuel.compile(f)(x), f(other)
    torch.testing.assert_close(found.detach(), expected.detach())
    assert found.requires_grad and not found.is_leaf
    messages = []
    for loss in (found, expected):
        with pytest.raises(RuntimeError) as raised:
            loss.backward()
        messages.append(str(raised.value))
    assert messages[0] == messages[1]


def test_a_graph_that_is_kept():
    def f(x):
        loss = (x.exp() * 2).sum()
        loss.backward(retain_graph=True)
        return loss

    x = torch.randn(3, requires_grad=True)
    other = x.detach().clone().requires_grad_()
    oxyfuel.compile(f)(x).backward()
    f(other).backward()
    torch.testing.assert_close(x.grad, other.grad)


def test_backward_twice_raises_as_eager():
    def f(x):
        loss = (x.exp() * 2).sum()
        loss.backward()
        loss.backward()

    x = torch.randn(3, requires_grad=True)
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        oxyfuel.compile(f)(x)


@pytest.mark.parametrize("kind", ["register_hook", "register_post_accumulate_grad_hook"])
def test_hooks_of_a_leaf_run(kind):
    def f(x):
        (x * x).sum().backward()

    x = torch.randn(3, requires_grad=True)
    compiled = oxyfuel.compile(f)
    compiled(x)
    seen = []
    getattr(x, kind)(lambda g: seen.append(1))
    x.grad = None
    compiled(x)
    assert seen == [1]
    torch.testing.assert_close(x.grad, 2 * x.detach())


def test_a_frozen_parameter_and_one_that_is_not_used():
    model, other = model_of(), model_of()
    x = torch.randn(4, 6)
    for m in (model, other):
        m[0].weight.requires_grad_(False)
        m.extra = nn.Parameter(torch.ones(2))

    def f(m):
        y = m[3](m[2](m[1](m[0](x))))
        y.sum().backward()

    compiled = oxyfuel.compile(f)
    for _ in range(2):
        compiled(model)
        f(other)
        assert_same_gradients(model, other)


OPTIMIZERS = {
    "SGD": {"lr": 0.1, "momentum": 0.9},
    "AdamW": {"lr": 0.01},
    "Adam": {"lr": 0.01, "foreach": True},
}


@pytest.mark.parametrize("clip", [None, 1.0])
@pytest.mark.parametrize("name", list(OPTIMIZERS))
def test_a_whole_step(name, clip):
    model, other = model_of(), model_of()
    optimizers = [
        getattr(torch.optim, name)(m.parameters(), **OPTIMIZERS[name]) for m in (model, other)
    ]

    def step(m, optimizer, x, y):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(m(x), y)
        loss.backward()
        if clip is not None:
            nn.utils.clip_grad_norm_(m.parameters(), clip)
        optimizer.step()
        return loss.detach()

    compiled = oxyfuel.compile(step)
    for i in range(10):
        x, y = torch.randn(5, 6), torch.randint(0, 3, (5,))
        found = compiled(model, optimizers[0], x, y)
        torch.testing.assert_close(found, step(other, optimizers[1], x, y))
        for p, q in zip(model.parameters(), other.parameters(), strict=True):
            torch.testing.assert_close(p, q, rtol=1e-5, atol=1e-6)
        if i == 3:
            graphs = oxyfuel.stats()["graphs"]
    assert oxyfuel.stats()["graphs"] == graphs
    assert_same_gradients(model, other)
    count, breaks = graphs_and_breaks(step, model, optimizers[0], x, y)
    assert (count, breaks) == (1, [])


def test_gradient_accumulation():
    model, other = model_of(), model_of()
    x = torch.randn(3, 4, 6)

    def step(m):
        for i in range(3):
            (m(x[i]).square().mean() / 3).backward()
        for p in m.parameters():
            with torch.no_grad():
                p -= 0.1 * p.grad
            p.grad = None

    compiled = oxyfuel.compile(step, fullgraph=True)
    for _ in range(3):
        compiled(model)
        step(other)
        for p, q in zip(model.parameters(), other.parameters(), strict=True):
            torch.testing.assert_close(p, q)
            assert p.grad is None


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoints(reentrant):
    model = model_of()
    other = copy.deepcopy(model)

    def f(m, x):
        h = checkpoint(m[0], x, use_reentrant=reentrant)
        h = checkpoint(lambda t: m[2](m[1](t)), h, use_reentrant=reentrant)
        return m[3](h)

    x = torch.randn(4, 6, requires_grad=True)
    z = x.detach().clone().requires_grad_()
    found, expected = oxyfuel.compile(f, fullgraph=True)(model, x), f(other, z)
    torch.testing.assert_close(found, expected)
    found.sum().backward()
    expected.sum().backward()
    assert_same_gradients(model, other)
    torch.testing.assert_close(x.grad, z.grad)


KNOWN_BY_CHECKPOINT = {*inspect.signature(checkpoint).parameters, "preserve_rng_state"}


@pytest.mark.parametrize("value", [None, False, True])
@pytest.mark.parametrize(
    "name", ["preserve_rng_state", "early_stop", "debug", "respect_saved_tensors_hooks"]
)
def test_settings_of_a_checkpoint(name, value):
    """What this torch's checkpoint does not know goes to the function."""

    def inside(x, **given):
        return x.sin() * (len(given) + 1)

    def f(x):
        return checkpoint(inside, x, use_reentrant=False, **{name: value})

    x = torch.randn(3, requires_grad=True)
    z = x.detach().clone().requires_grad_()
    one_graph = not (name == "debug" and value)
    found, expected = oxyfuel.compile(f, fullgraph=one_graph)(x), f(z)
    torch.testing.assert_close(found, expected)
    assert torch.equal(expected, z.sin() * (1 if name in KNOWN_BY_CHECKPOINT else 2))
    found.sum().backward()
    expected.sum().backward()
    torch.testing.assert_close(x.grad, z.grad)


def test_a_checkpoint_refuses_what_eager_refuses():
    def f(x):
        return checkpoint(torch.sin, x, use_reentrant=True, respect_saved_tensors_hooks=False)

    x = torch.randn(3, requires_grad=True)
    with pytest.raises(ValueError) as expected:
        f(x)
    with pytest.raises(ValueError) as found:
        oxyfuel.compile(f)(x)
    assert str(found.value) == str(expected.value)


def test_a_reentrant_checkpoint_of_what_needs_no_gradient():
    layer = nn.Linear(3, 3)

    def f(x):
        return checkpoint(layer, x, use_reentrant=True)

    x = torch.randn(2, 3)
    found, expected = oxyfuel.compile(f)(x), f(x)
    torch.testing.assert_close(found, expected)
    assert found.requires_grad == expected.requires_grad


@pytest.mark.parametrize(
    ("norm", "dtype"),
    [
        (lambda: nn.BatchNorm1d(4, momentum=None), torch.float32),
        (lambda: nn.BatchNorm1d(4, momentum=None), torch.bfloat16),
        (lambda: nn.BatchNorm1d(4, momentum=None, dtype=torch.bfloat16), torch.bfloat16),
        (lambda: nn.InstanceNorm1d(4, affine=True, track_running_stats=True), torch.float32),
    ],
)
def test_running_statistics(norm, dtype):
    module = norm()
    other = copy.deepcopy(module)

    def step(m, x):
        m.zero_grad()
        loss = (m(x) * x).sum()
        loss.backward()
        return loss.detach()

    compiled = oxyfuel.compile(step)
    for n in 4, 4, 6, 4, 7:
        x = torch.randn(n, 4, 3, dtype=dtype)
        torch.testing.assert_close(compiled(module, x), step(other, x))
        within = {} if module.weight.dtype == torch.float32 else {"rtol": 1e-2, "atol": 2e-3}
        torch.testing.assert_close(module.state_dict(), other.state_dict(), **within)
        assert_same_gradients(module, other)
    stats = oxyfuel.stats()
    assert stats["graph_breaks"] == stats["fallbacks"] == stats["unsupported"] == 0
    assert stats["graphs"] <= 3


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("clips", "infinite"), [(True, ()), (True, (0,)), (False, (2, 3))])
def test_a_scaler_skips_steps(dtype, clips, infinite):
    def run(wrap):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Dropout(0.3), nn.Linear(6, 2))
        optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
        scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=2)
        xs = [torch.randn(5, 4) for _ in range(5)]
        for i in infinite:
            xs[i][0, 0] = torch.inf

        def step(x):
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=dtype):
                loss = model(x).square().mean()
            scaler.scale(loss).backward()
            if clips:
                scaler.unscale_(optimizer)
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            return loss.detach()

        step = wrap(step)
        found = [(step(x), scaler.state_dict()) for x in xs]
        return found, model.state_dict(), optimizer.state_dict()["state"]

    expected = run(lambda f: f)
    found = run(oxyfuel.compile)
    torch.testing.assert_close(found, expected, equal_nan=True, rtol=5e-3, atol=5e-3)
    stats = oxyfuel.stats()
    assert stats["graph_breaks"] == 0 and stats["graphs"] <= 3
    assert stats["unmet_checks"] == len(infinite)


VIEWS_OF_ZEROS = {
    "view": lambda x: x.view(2, 4).abs(),
    "views": lambda x: (x.view(2, 4) * 2).view(8).abs(),
    "transposed": lambda x: x.view(2, 4).sin().t().flatten().abs(),
    "strided": lambda x: x.as_strided((4, 2), (1, 4)).abs(),
    "linear": lambda x: nn.functional.linear(x, torch.ones(1, 8), torch.ones(1)).abs(),
    "expanded": lambda x: x.view(8, 1).expand(8, 3).abs(),
    "selected": lambda x: x.view(2, 4)[1].abs().unsqueeze(0),
}


@pytest.mark.parametrize("name", VIEWS_OF_ZEROS)
def test_second_gradients_that_are_zeros(name):
    """Those of abs() have no memory in eager."""

    def step(x):
        (g,) = torch.autograd.grad(VIEWS_OF_ZEROS[name](x).sum(), x, create_graph=True)
        return g + g * x

    def run(f):
        x = torch.linspace(-1, 2, 8).requires_grad_()
        g = f(x)
        g.square().sum().backward()
        return g.detach(), x.grad

    torch.testing.assert_close(run(oxyfuel.compile(step)), run(step))
    stats = oxyfuel.stats()
    assert stats["graph_breaks"] == stats["unsupported"] == stats["fallbacks"] == 0


def test_batches_of_any_size_as_wide_as_a_layer():
    """What an optimizer keeps has its parameter's sizes, whatever those of a batch were."""

    def step_of(seed):
        torch.manual_seed(seed)
        judge, maker = torch.nn.Linear(16, 1), torch.nn.Linear(8, 16)
        of_judge = torch.optim.Adam(judge.parameters(), 1e-3)
        of_maker = torch.optim.Adam(maker.parameters(), 1e-3)

        def step(x):
            made = maker(torch.randn(x.shape[0], 8))
            of_judge.zero_grad()
            (judge(made.detach()).mean() - judge(x).mean()).backward()
            of_judge.step()
            of_maker.zero_grad()
            (-judge(made).mean()).backward()
            of_maker.step()

        return step, [*judge.parameters(), *maker.parameters()]

    (ours, our_state), (theirs, their_state) = step_of(0), step_of(0)
    compiled = oxyfuel.compile(ours)
    for n in (16, 16, 16, 6, 7, 8, 9):
        x = torch.randn(n, 16, generator=torch.Generator().manual_seed(n))
        for step in (compiled, theirs):
            torch.manual_seed(n)
            step(x)
    for a, b in zip(our_state, their_state, strict=True):
        torch.testing.assert_close(a, b)
    assert oxyfuel.stats()["static_captures"] == 0 and oxyfuel.stats()["graphs"] <= 3
