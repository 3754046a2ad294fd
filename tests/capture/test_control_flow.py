"""torch.cond and torch.while_loop of tensors: one graph, with graphs of its own for what may
run."""

from __future__ import annotations

import gc
import signal
import weakref

import pytest
import torch
from torch._higher_order_ops import map as mapped
from torch._higher_order_ops import while_loop
from torch._higher_order_ops.wrap import wrap

import oxyfuel
from oxyfuel import _C, compiler
from oxyfuel.fx import aten_graph_to_fx

pytestmark = pytest.mark.usefixtures("strict")

SCALE = torch.arange(1.0, 5.0)


class Gated(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)

    def forward(self, x):
        return torch.cond(x.sum() > 0, self.one, lambda a: self.two(a).relu(), (x,))


def choice(condition, yes, no, operands):
    """torch.cond in Python: what the tests compare with."""
    return yes(*operands) if condition.item() else no(*operands)


def plain_loop(condition, body, carried):
    carried = tuple(carried)
    while condition(*carried).item():
        carried = body(*carried)
    return carried


def simple(x, cond):
    return cond(x.sum() > 0, lambda a: a + 1, lambda a: a - 1, (x,))


def with_trees(x, cond):
    def yes(a, more):
        return {"sum": a + more["k"][0], "both": [a * 2, None]}

    def no(a, more):
        return {"sum": a - more["k"][0], "both": [a.exp(), None]}

    out = cond((x > 0).any(), yes, no, (x, {"k": [x * 3]}))
    return out["sum"] * 2, out["both"][0], out["both"][1]


def with_closures(x, cond):
    y = x * 2
    factor = 3

    def yes():
        return y * SCALE * factor

    return cond(x[0] > 0, yes, lambda: y.cos() - SCALE, ()) + y


def nested(x, cond):
    def inner(a):
        b = a + 1
        return cond(a[0] > 1, lambda t: t * b, lambda t: t - b + x, (a,))

    return cond(x.sum() > 0, inner, lambda a: a.sin(), (x,))


def twice(x, cond):
    y = cond(x.sum() > 0, lambda a: a * 2, lambda a: a + 3, (x,))
    return cond(y.sum() > 4, lambda a, b: a * b, lambda a, b: a / 2, (y, x))


def views(x, cond):
    m = x.reshape(2, 2)
    return cond(m.sum() > 0, lambda a: a.t(), lambda a: (a + 1).t(), (m,)), m


def operands_come_back(x, cond):
    out = cond(x.sum() > 0, lambda a, b: (a, b), lambda a, b: (b + 1, a + 1), (x, x.sin()))
    return out[0].add_(1), out[1]


def written_before(x, cond):
    y = x.clone()
    v = y[1:]
    y.mul_(3)
    return cond(v.sum() > 0, lambda a: a + y[0], lambda a: a * y[1], (v,)), y


def inside_writes(x, cond):
    def yes(a):
        b = a * 1
        b[0] = 7
        b.add_(1)
        return b

    return cond(x.sum() > 0, yes, lambda a: a.clone().zero_(), (x,))


def modes(x, cond):
    def yes(a):
        with torch.autocast("cpu"):
            return (a.reshape(2, 2) @ a.reshape(2, 2)).float()

    def no(a):
        return a.reshape(2, 2) * 1.0

    with torch.no_grad():
        return cond(x.sum() > 0, yes, no, (x,))


def in_autocast(x, cond):
    with torch.autocast("cpu"):
        m = x.reshape(2, 2)
        return cond(x.sum() > 0, lambda a: a @ a, lambda a: a @ (a + 1), (m,))


def numbers(x, cond):
    return cond(x.max() > 2, lambda a: (a > 1).sum(), lambda a: (a < 1).sum() + 1, (x,))


def empty(x, cond):
    return cond(x.sum() > 0, lambda a: a + 1, lambda a: a * 2, (x[:0],)), x + 1


def of_another_size(x, cond):
    return cond(x.sum() > 0, lambda a: a[:2] + 1, lambda a: a[1:3] * 2, (x,))


ONE_GRAPH = (
    simple,
    with_trees,
    with_closures,
    nested,
    twice,
    views,
    operands_come_back,
    written_before,
    inside_writes,
    modes,
    in_autocast,
    numbers,
    empty,
    of_another_size,
)
INPUTS = (
    torch.ones(4),
    -torch.ones(4),
    torch.tensor([3.0, -1.0, 2.0, 0.5]),
    torch.full((4,), -0.5),
)


def same(found, expected):
    if isinstance(expected, torch.Tensor):
        assert found.dtype == expected.dtype and found.stride() == expected.stride()
        torch.testing.assert_close(found, expected, equal_nan=True)
    elif isinstance(expected, (tuple, list)):
        assert type(found) is type(expected) and len(found) == len(expected)
        for a, b in zip(found, expected):
            same(a, b)
    else:
        assert found == expected


@pytest.mark.parametrize("backend", ["native", "aot_eager", "eager"])
@pytest.mark.parametrize("function", ONE_GRAPH, ids=lambda f: f.__name__)
def test_one_graph(function, backend):
    compiled = oxyfuel.compile(lambda x: function(x, torch.cond), backend=backend, fullgraph=True)
    for _ in range(2):
        for x in INPUTS:
            given = x.clone()
            same(compiled(given), function(x.clone(), choice))
            assert torch.equal(given, x)
    assert oxyfuel.stats()["graphs"] == 1


def test_a_module_with_branches():
    model = Gated().eval()
    compiled = oxyfuel.compile(model, fullgraph=True)
    with torch.no_grad():
        for x in (torch.ones(2, 4), -torch.ones(2, 4), torch.ones(3, 4)):
            expected = model.one(x) if x.sum() > 0 else model.two(x).relu()
            torch.testing.assert_close(compiled(x), expected)
        model.one.weight.add_(1)
        x = torch.ones(2, 4)
        torch.testing.assert_close(compiled(x), model.one(x))


@pytest.mark.parametrize("function", ONE_GRAPH, ids=lambda f: f.__name__)
def test_inference_mode(function):
    compiled = oxyfuel.compile(lambda x: function(x, torch.cond), fullgraph=True)
    with torch.inference_mode():
        for x in (*INPUTS, INPUTS[0] * 1):
            same(compiled(x.clone()), function(x.clone(), choice))


def test_inference_mode_of_a_module():
    model = Gated()
    compiled = oxyfuel.compile(model, fullgraph=True)
    with torch.inference_mode():
        for x in (torch.ones(2, 4), -torch.ones(2, 4)):
            expected = model.one(x) if x.sum() > 0 else model.two(x).relu()
            torch.testing.assert_close(compiled(x), expected)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.int32])
def test_other_dtypes(dtype):
    def run(x, cond):
        return cond(x.any(), lambda a: (a * 2, a.t()), lambda a: (a * 1, a.t() * 1), (x,))

    compiled = oxyfuel.compile(lambda x: run(x, torch.cond), fullgraph=True)
    for x in (torch.ones(3, 2), torch.zeros(3, 2), torch.ones(3, 4)[:, ::2]):
        same(compiled(x.to(dtype)), run(x.to(dtype), choice))


def test_conjugates():
    def run(x, cond):
        y = cond(x[0] > 0, lambda a: a * 2j, lambda a: a * 3j, (x,))
        return cond(x[0] > 0, lambda a: a.conj(), lambda a: a.conj() * 1, (y,)) + y.conj()

    compiled = oxyfuel.compile(lambda x: run(x, torch.cond))
    for x in INPUTS:
        same(compiled(x), run(x, choice))


def test_results_are_new_tensors():
    compiled = oxyfuel.compile(
        lambda x: torch.cond(
            x.sum() > 0, lambda a: (a, a, a[:2]), lambda a: (a, a * 1, a[:2] * 1), (x,)
        ),
        fullgraph=True,
    )
    for x in (torch.ones(4), -torch.ones(4)):
        out = compiled(x)
        assert len({t.untyped_storage().data_ptr() for t in (*out, x)}) == 4
        same([t.tolist() for t in out], [x.tolist(), x.tolist(), x[:2].tolist()])


KEPT = []


@torch.library.custom_op("oxyfuel_control_flow::keep", mutates_args=())
def keep(x: torch.Tensor) -> torch.Tensor:
    KEPT.append(x[0])
    return x + 1


keep.register_fake(torch.empty_like)


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("branch", ["cond", "loop"])
def test_what_an_op_in_a_branch_keeps_is_not_written_over(branch, dynamic):
    def run(x):
        y = (x * 2).sin()
        if branch == "cond":
            z = torch.cond(x.sum() > 0, lambda y: keep(y), lambda y: y * 2, (y,))
        else:
            _, z = while_loop(lambda i, y: i < 2, lambda i, y: (i + 1, keep(y)), (i, y))
        w = z.cos() @ x
        return (w.sum(0) + w).exp() @ x

    def kept(f):
        KEPT.clear()
        x = torch.linspace(0.1, 1, 64 * 64).view(64, 64)
        f(x), f(x + 1)
        return list(KEPT)

    i = torch.tensor(0)
    same(kept(oxyfuel.compile(run, fullgraph=True, dynamic=dynamic)), kept(run))


def test_only_the_chosen_branch_runs():
    def run(x, i):
        return torch.cond(x.sum() > 0, lambda a, i: a[i], lambda a, i: a[i * 0], (x, i))

    compiled = oxyfuel.compile(run, fullgraph=True)
    far = torch.tensor([9])
    assert compiled(-torch.ones(3), far).tolist() == [-1]
    with pytest.raises(IndexError):
        compiled(torch.ones(3), far)


def test_graphs_of_branches_go_with_the_function():
    class Weight:
        pass

    def make():
        marker = Weight()
        reference = weakref.ref(marker)

        def run(x):
            def yes(a):
                return a + 1 if marker is not None else a

            return torch.cond(x.sum() > 0, yes, lambda a: a - 1, (x,))

        oxyfuel.compile(run, fullgraph=True)(torch.ones(2))
        return reference

    reference = make()
    gc.collect()
    assert reference() is None


def appends(x, cond, log):
    def yes(a):
        log.append("yes")
        return a + 1

    return cond(x.sum() > 0, yes, lambda a: a - 1, (x,)), len(log)


def appends_to_its_own(x, cond, log):
    own = [log]

    def yes(a):
        own.append("yes")
        return a + 1

    return cond(x.sum() > 0, yes, lambda a: a - 1, (x,)), len(own)


def counts(x, cond, log):
    n = 0

    def yes(a):
        nonlocal n
        n += 1
        return a + 1

    return cond(x.sum() > 0, yes, lambda a: a - 1, (x,)), n


def keeps_a_tensor(x, cond, log):
    kept = {}

    def yes(a):
        kept["y"] = a * 2
        return a

    return cond(x.sum() > 0, yes, lambda a: a - 1, (x,)), list(kept)


def writes_an_operand(x, cond, log):
    y = x * 1

    def yes(a):
        a.add_(1)
        return a * 2

    return cond(x.sum() > 0, yes, lambda a: a - 1, (y,)), y


def other_sizes(x, cond, log):
    return cond(x.sum() > 0, lambda a: a[:2] * 1, lambda a: a * 1, (x,))


def other_forms(x, cond, log):
    return cond(x.sum() > 0, lambda a: (a + 1, a), lambda a: a * 2, (x,))


def numbers_as_results(x, cond, log):
    return cond(x.sum() > 0, lambda a: (a + 1, 3), lambda a: (a * 2, 4), (x,))


def breaks(x, cond, log):
    return cond(x.sum() > 0, lambda a: a + a.sum().item(), lambda a: a * 2, (x,))


def raises(x, cond, log):
    def no(a):
        raise ValueError("no")

    try:
        return cond(x.sum() > 0, lambda a: a + 1, no, (x,))
    except ValueError as e:
        return str(e)


def draws(x, cond, log):
    torch.manual_seed(3)
    return cond(x.sum() > 0, lambda a: a + torch.rand(4), lambda a: a * 2, (x,)), torch.rand(2)


LEFT_TO_A_BREAK = (
    appends,
    appends_to_its_own,
    counts,
    keeps_a_tensor,
    writes_an_operand,
    other_sizes,
    other_forms,
    numbers_as_results,
    breaks,
    raises,
    draws,
)


@pytest.mark.parametrize("function", LEFT_TO_A_BREAK, ids=lambda f: f.__name__)
def test_what_cannot_be_in_one_graph_breaks(function):
    compiled = oxyfuel.compile(lambda x, log: function(x, torch.cond, log))
    for _ in range(2):
        for x in INPUTS:
            found, expected = [], []
            a, b = compiled(x.clone(), found), function(x.clone(), choice, expected)
            same(a, b)
            assert found == expected
    assert oxyfuel.stats()["graph_breaks"] > 0
    with pytest.raises(oxyfuel.GraphBreak):
        oxyfuel.compile(lambda x, log: function(x, torch.cond, log), fullgraph=True)(INPUTS[0], [])


def test_explain_shows_the_branches():
    found = oxyfuel.explain(lambda x: simple(x, torch.cond))(INPUTS[0])
    assert found.graph_count == 1 and len(found.inner_graphs) == 2
    assert "inner graph 2: 1 ops" in str(found) and "inner graph 1" in found.to_html()


def test_gradients_of_a_choice_are_eagers():
    x = torch.ones(4, requires_grad=True)
    compiled = oxyfuel.compile(
        lambda x: torch.cond(x.sum() > 0, lambda a: a * 2, lambda a: a * 3, (x * 1,)) + x
    )
    compiled(x).sum().backward()
    assert x.grad.tolist() == [3.0] * 4
    compiled(-x).sum().backward()
    assert x.grad.tolist() == [-1.0] * 4


def test_a_backend_of_the_user_gets_the_graphs():
    seen = []

    def backend(graph, inputs):
        seen.append(graph)
        return graph.forward

    compiled = oxyfuel.compile(lambda x: nested(x, torch.cond), backend=backend, fullgraph=True)
    for x in INPUTS:
        same(compiled(x), nested(x, choice))
    (graph,) = seen
    (call,) = (n for n in graph.graph.nodes if n.target is torch.ops.higher_order.cond)
    yes = getattr(graph, call.args[1].target)
    assert torch.ops.higher_order.cond in {n.target for n in yes.graph.nodes}


@pytest.fixture
def plans(monkeypatch):
    """The plans that are made while the test runs."""
    made = []
    make = compiler.plan

    def keep(*args):
        made.append(make(*args))
        return made[-1]

    monkeypatch.setattr(compiler, "plan", keep)
    return made


@pytest.mark.parametrize("function", ONE_GRAPH, ids=lambda f: f.__name__)
def test_branches_are_steps_of_the_plan(function, plans):
    oxyfuel.compile(lambda x: function(x, torch.cond), fullgraph=True)(INPUTS[0].clone())
    assert " = cond [" in plans[0].text()


def test_kernels_run_inside_of_branches(plans):
    def run(x):
        return torch.cond(x.sum() > 0, lambda a: (a + 1).exp() * 2, lambda a: a.sin() * 3, (x,))

    compiled = oxyfuel.compile(run, fullgraph=True)
    same(compiled(INPUTS[0]), (INPUTS[0] + 1).exp() * 2)
    (plan,) = plans
    assert plan.extern_count() == 0 and plan.kernel_calls() == 3


@pytest.mark.parametrize("function", ONE_GRAPH, ids=lambda f: f.__name__)
def test_recordings_and_replays(function, monkeypatch):
    graphs = []

    def keep(self, graph, example_inputs, freezing=True):
        graphs.append((graph, graph.captured_recording(example_inputs), example_inputs))
        return lambda *inputs: graph.replay(inputs)

    monkeypatch.setattr(oxyfuel.api.Compiler, "compile", keep)
    compiled = oxyfuel.compile(lambda x: function(x, torch.cond), fullgraph=True)
    with torch.no_grad():
        for x in INPUTS:
            same(compiled(x.clone()), function(x.clone(), choice))
        ((graph, taken, inputs),) = graphs
        replayed = _C.record(graph, inputs)
    taken.verify()
    assert "cond(" in graph.text() and "cond(" in taken.text()
    assert taken.text() == replayed.text()
    module = aten_graph_to_fx(taken)
    assert any(n.target is torch.ops.higher_order.cond for n in module.graph.nodes)
    for x in INPUTS:
        same(
            module(*(x.clone() if t is inputs[0] else t for t in inputs)),
            graph.replay(tuple(x.clone() if t is inputs[0] else t for t in inputs)),
        )


def test_a_failure_in_a_branch_changes_nothing():
    def run(x, i):
        x.add_(1)
        return torch.cond(x.sum() > 0, lambda a, i: a[i], lambda a, i: a[i * 0], (x * 2, i))

    compiled = oxyfuel.compile(run, fullgraph=True)
    x = torch.ones(3)
    with pytest.raises(IndexError):
        compiled(x, torch.tensor([9]))
    assert x.tolist() == [2.0] * 3
    assert compiled(x, torch.tensor([1])).tolist() == [6.0]


# ---- loops


def doubling(x, loop):
    return loop(
        lambda i, t: t.sum() < 50, lambda i, t: (i + 1, t * 2 + i), (torch.tensor(0), x.abs() + 0.1)
    )


def closures(x, loop):
    step = x.abs().sum() + 1

    def body(t, n):
        return t + step * SCALE, n - 1

    t, n = loop(lambda t, n: (t.sum() < 40) & (n > 0), body, (x, torch.tensor(20)))
    return t * 2, n, step


def trees(x, loop):
    def body(state):
        return ({"a": state["a"] * 0.5, "n": [state["n"][0] + 1]},)

    (state,) = loop(lambda s: s["a"].abs().sum() > 0.1, body, ({"a": x, "n": [torch.tensor(0)]},))
    return state["a"], state["n"][0]


def carried_as_it_is(x, loop):
    return loop(lambda n, t: n < 3, lambda n, t: (n + 1, t), (torch.tensor(0), x))


def swapped(x, loop):
    return loop(lambda n, a, b: n < 3, lambda n, a, b: (n + 1, b, a), (torch.tensor(0), x, x * 2))


def in_a_loop(x, loop):
    def body(n, t):
        _, inner = loop(lambda k, u: k < n, lambda k, u: (k + 1, u + n), (n * 0, t))
        return n + 1, inner

    return loop(lambda n, t: n < 4, body, (torch.tensor(0), x))


def no_round(x, loop):
    return loop(lambda t: t.sum() > 1000, lambda t: (t * 2,), (x,))


@pytest.mark.parametrize("backend", ["native", "aot_eager", "eager"])
@pytest.mark.parametrize(
    "function",
    [doubling, closures, trees, carried_as_it_is, swapped, in_a_loop, no_round],
    ids=lambda f: f.__name__,
)
def test_a_loop_is_one_graph(function, backend):
    compiled = oxyfuel.compile(lambda x: function(x, while_loop), backend=backend, fullgraph=True)
    for _ in range(2):
        for x in INPUTS:
            out = compiled(x.clone())
            same(out, function(x.clone(), plain_loop))
            assert not any(a is x for a in out)
    assert oxyfuel.stats()["graphs"] == 1


def counts_rounds(x, loop):
    rounds = []

    def body(t):
        rounds.append(1)
        return (t * 2,)

    return loop(lambda t: t.abs().sum() < 50, body, (x,)), len(rounds)


def grows(x, loop):
    return loop(lambda t: t.sum().abs() < 50, lambda t: (torch.cat([t, t]),), (x,))


def python_counts(x, loop):
    return loop(lambda n, t: t.abs().sum() < 50, lambda n, t: (n + 1, t * 2 + n), (0, x))


@pytest.mark.parametrize(
    "function", [counts_rounds, grows, python_counts], ids=lambda f: f.__name__
)
def test_a_loop_that_cannot_be_in_one_graph_breaks(function):
    compiled = oxyfuel.compile(lambda x: function(x, while_loop))
    for _ in range(2):
        for x in INPUTS:
            same(compiled(x.clone()), function(x.clone(), plain_loop))
    assert oxyfuel.stats()["graph_breaks"] > 0


@pytest.mark.parametrize("function", [doubling, closures, in_a_loop], ids=lambda f: f.__name__)
def test_loops_are_steps_of_the_plan(function, plans):
    compiled = oxyfuel.compile(lambda x: function(x, while_loop), fullgraph=True)
    same(compiled(INPUTS[2].clone()), function(INPUTS[2].clone(), plain_loop))
    assert " = loop [" in plans[0].text()


def test_an_interrupt_stops_a_loop():
    """As Ctrl-C: the call raises KeyboardInterrupt, and no eager run begins the loop again."""

    def run(x):
        x.add_(1)
        return while_loop(lambda t: t.sum() > 0, lambda t: (t * 1.5 + 1,), (x,))

    compiled = oxyfuel.compile(run, fullgraph=True)
    assert compiled(-3 * torch.ones(4))[0].tolist() == [-2.0] * 4
    handler = signal.signal(signal.SIGALRM, signal.default_int_handler)
    x = torch.ones(4)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        with pytest.raises(KeyboardInterrupt):
            compiled(x)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
    assert x.tolist() == [1.0] * 4
    assert compiled(-3 * torch.ones(4))[0].tolist() == [-2.0] * 4
    assert oxyfuel.stats()["graphs"] == 1


# ---- sizes that vary


def uses_sizes(x, cond, loop):
    return cond(
        x.sum() > 0, lambda a: a * a.shape[0] + a.shape[1], lambda a: a[: a.shape[0]] / 2, (x,)
    )


def takes_sizes_from_outside(x, cond, loop):
    n = x.shape[0]
    y = x * 2
    return cond(x.sum() > 0, lambda a: a + torch.arange(n)[:, None], lambda a: y - n, (x,)) + n


def of_a_part(x, cond, loop):
    half = x.shape[0] // 2
    out = cond(x.sum() > 0, lambda a: a[:half] + 1, lambda a: a[half : half * 2] * 2, (x,))
    return out, x + 1


def reshapes(x, cond, loop):
    return cond(
        x.mean() > 0,
        lambda a: a.view(a.shape[0] * 2, 2).exp(),
        lambda a: torch.cat([a[:, :2], a[:, 2:]], 0).sin(),
        (x,),
    )


def products(x, cond, loop):
    return cond(x.sum() > 0, lambda a: (a @ a.t()).softmax(-1), lambda a: a @ (a + 1).t(), (x,))


def a_branch_decides(x, cond, loop):
    return cond(x.sum() > 0, lambda a: a * 2 if a.shape[0] > 6 else a * 3, lambda a: a - 1, (x,))


def nested_sizes(x, cond, loop):
    def inner(a):
        return cond(a.sum() > 3, lambda t: t * t.shape[0], lambda t: t + x.shape[0], (a + 1,))

    return cond(x.sum() > 0, inner, lambda a: a.sin(), (x,))


def loop_of_rows(x, cond, loop):
    def body(i, t):
        return i + 1, t * 0.5 + t.shape[0]

    return loop(lambda i, t: i < 3, body, (torch.tensor(0), x))[1]


def loop_by_size(x, cond, loop):
    n = x.shape[0]

    def body(i, t, total):
        return i + 1, t.roll(1, 0), total + t[:1].sum(0)

    return loop(lambda i, t, total: i < n, body, (torch.tensor(0), x, torch.zeros(x.shape[1])))[2]


def loop_of_products(x, cond, loop):
    weights = x.t() @ x

    def body(i, t):
        return i + 1, torch.tanh(t @ weights) + cond(
            t.sum() > 0, lambda a: a * 2, lambda a: a - a.shape[0], (t,)
        )

    return loop(lambda i, t: i < 2, body, (torch.tensor(0), x))


VARYING = (
    uses_sizes,
    takes_sizes_from_outside,
    of_a_part,
    reshapes,
    products,
    nested_sizes,
    loop_of_rows,
    loop_by_size,
    loop_of_products,
)
LENGTHS = (5, 7, 12, 3, 64, 2, 1, 0, 31)


def run_at(function, compiled, lengths):
    for n in lengths:
        for sign in (1, -1):
            torch.manual_seed(n)
            x = (torch.rand(n, 4) - 0.1) * sign
            same(compiled(x.clone()), function(x.clone(), choice, plain_loop))


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("function", [*VARYING, a_branch_decides], ids=lambda f: f.__name__)
def test_sizes_that_vary(function, dynamic):
    compiled = oxyfuel.compile(
        lambda x: function(x, torch.cond, while_loop), fullgraph=True, dynamic=dynamic
    )
    run_at(function, compiled, LENGTHS)
    stats = oxyfuel.stats()
    assert stats["static_captures"] == stats["fallbacks"] == stats["unsupported"] == 0


@pytest.mark.parametrize("function", VARYING, ids=lambda f: f.__name__)
def test_one_capture_for_all_lengths(function):
    compiled = oxyfuel.compile(
        lambda x: function(x, torch.cond, while_loop), fullgraph=True, dynamic=True
    )
    run_at(function, compiled, (5, 7, 12, 64, 31, 9))
    assert oxyfuel.stats()["graphs"] == 1


def test_what_a_branch_decides_is_a_guard():
    compiled = oxyfuel.compile(
        lambda x: a_branch_decides(x, torch.cond, while_loop), fullgraph=True, dynamic=True
    )
    run_at(a_branch_decides, compiled, (5, 9, 3, 12, 6, 7))
    assert oxyfuel.stats()["graphs"] == 2


def test_branches_of_sizes_that_are_equal_now():
    """Results of different expressions are laid out alike for some sizes alone."""

    def run(x, y):
        return torch.cond(x.sum() > 0, lambda a, b: a * 2, lambda a, b: b + 1, (x, y))

    compiled = oxyfuel.compile(run, dynamic=True)
    for n in (5, 8, 3):
        for x in (torch.ones(n, 2), -torch.ones(n, 2)):
            y = torch.randn(n, 2)
            same(
                compiled(x, y), choice(x.sum() > 0, lambda a, b: a * 2, lambda a, b: b + 1, (x, y))
            )
    assert oxyfuel.stats()["graphs"] == 1
    x, y = torch.ones(4, 2), torch.randn(6, 2)
    same(compiled(x, y), x * 2)


def test_an_int_that_varies_in_a_branch():
    def run(x, n):
        return torch.cond(x.sum() > 0, lambda a: a * n + n, lambda a: a[:n].sum() - a, (x,))

    def plain(x, n):
        return choice(x.sum() > 0, lambda a: a * n + n, lambda a: a[:n].sum() - a, (x,))

    compiled = oxyfuel.compile(run, fullgraph=True)
    for n in (3, 4, 2, 7):
        for x in (torch.ones(9), -torch.ones(9)):
            same(compiled(x, n), plain(x, n))
    assert oxyfuel.stats()["graphs"] <= 3


@pytest.mark.parametrize("k", [None, 3])
def test_a_map_is_unrolled(k):
    def f(x, y):
        def step(row, k=2):
            return {"a": row["x"] * k + row["y"], "b": (row["x"].sum(),)}

        return mapped(step, {"x": x, "y": y}, *([] if k is None else [k]))

    compiled = oxyfuel.compile(f, fullgraph=True)
    for n in (3, 2):
        x, y = torch.arange(4.0 * n).view(n, 4), torch.ones(n, 4)
        rows = [x[i] * (k or 2) + y[i] for i in range(n)]
        found = compiled(x, y)
        assert torch.equal(found["a"], torch.stack(rows)) and torch.equal(found["b"][0], x.sum(1))
    with pytest.raises(RuntimeError, match="must be consistent"):
        compiled(torch.ones(3, 4), torch.ones(2, 4))


def test_a_wrapped_call():
    def f(x):
        return wrap(lambda y, k, more=0: (y * k + more + x, y), x + 1, 2, more=5)

    x = torch.arange(3.0)
    out, y = oxyfuel.compile(f, fullgraph=True)(x)
    assert torch.equal(out, (x + 1) * 2 + 5 + x) and torch.equal(y, x + 1)
