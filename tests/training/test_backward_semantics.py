"""Training steps do what they do in eager: accumulation, modes, threads, saved tensors."""

import copy
import threading
from contextlib import nullcontext
from functools import partial

import pytest
import torch
from backward_check import both, compare, compare_modules, leaf
from model_check import first_difference
from torch import nn
from torch.autograd.graph import save_on_cpu, saved_tensors_hooks
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
    noop_context_fn,
)

import oxyfuel

# ---- accumulation ----


def test_retain_graph():
    def step(f):
        x = leaf(3)
        out = f(x).sum()
        out.backward(retain_graph=True)
        first = x.grad.clone()
        out.backward()
        return first, x.grad

    compare(step, lambda x: x.exp() * x)


def test_accumulation():
    def step(f):
        x = leaf(3)
        x.grad = torch.ones(3)
        kept = x.grad
        for _ in range(3):
            f(x).sum().backward()
        return kept, x.grad, kept is x.grad

    compare(step, lambda x: x.sin())


def test_set_to_none():
    def step(module, f):
        out = []
        for to_none in (True, False):
            for _ in range(2):
                f(torch.ones(2, 4)).sum().backward()
                out.append([p.grad.clone() for p in module.parameters()])
                module.zero_grad(set_to_none=to_none)
                out.append([p.grad for p in module.parameters()])
        return out

    compare_modules(lambda: nn.Linear(4, 4), step)


def test_gradients_are_memory_of_their_own():
    # x + y hands the same gradient to both; a plan must not hand the same memory to both.
    def step(f):
        x, y = leaf(3), leaf(3)
        f(x, y).sum().backward()
        x.grad.add_(1)
        return x.grad, y.grad

    compare(step, lambda x, y: x + y)


def test_a_tangent_is_not_written():
    def step(f):
        x = leaf(3)
        tangent = torch.ones(3)
        f(x).backward(tangent)
        x.grad.mul_(5)
        return tangent, x.grad

    compare(step, lambda x: x + 0)


def test_transposed_parameter():
    def step(f):
        w = torch.randn(3, 4).t().requires_grad_()
        f(w, torch.randn(3, 2)).sum().backward()
        return w.grad

    compare(step, lambda w, x: w @ x)


@pytest.mark.parametrize("stride", [(8, 2), (0, 1), (1, 0)])
def test_leaf_with_gaps(stride):
    def step(f):
        w = torch.randn(40).as_strided((3, 4), stride).requires_grad_()
        f(w).sum().backward()
        return w.grad

    compare(step, lambda w: w.sin())


# ---- who requires gradients ----


@pytest.mark.parametrize("required", [(True, False), (False, True), (True, True), (False, False)])
def test_mixed(required):
    def step(f):
        x, y = (torch.randn(3, 3, requires_grad=r) for r in required)
        out = f(x, y)
        if any(required):
            out[0].sum().backward()
        return x.grad, y.grad, [t.requires_grad for t in out], [t.is_leaf for t in out]

    compare(step, lambda x, y: (x @ y, y * 2, x + 1))


def test_requires_grad_changes():
    def step(f):
        out = []
        for required in (True, False, True):
            x = torch.ones(3, requires_grad=required)
            y = f(x)
            out.append([y.requires_grad, y.detach()])
            if required:
                y.sum().backward()
                out.append(x.grad)
        return out

    compare(step, lambda x: x.sin())


def test_grad_mode_changes():
    def step(f):
        x = leaf(3)
        out = [f(x).requires_grad]
        with torch.no_grad():
            out.append(f(x).requires_grad)
        with torch.inference_mode():
            out.append(f(x).is_inference())
        f(x).sum().backward()
        return out, x.grad

    compare(step, lambda x: x.sin())


def test_frozen_parameters():
    def make():
        module = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 2))
        module[0].requires_grad_(False)
        module[3].bias.requires_grad_(False)
        return module

    def step(module, f):
        out = f(torch.randn(5, 4))
        out.square().sum().backward()
        module[0].requires_grad_(True)
        f(torch.randn(5, 4)).square().sum().backward()
        return out

    compare_modules(make, step)


@pytest.mark.parametrize("padding", [None, 2])
def test_tied_weights(padding):
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(10, 4, padding_idx=padding)
            self.head = nn.Linear(4, 10, bias=False)
            self.head.weight = self.embedding.weight

        def forward(self, i):
            return self.head(self.embedding(i).tanh())

    def step(module, f):
        out = f(torch.tensor([1, 2, 2, 9]))
        out.logsumexp(-1).sum().backward()
        return out

    compare_modules(Tied, step)


def test_the_same_tensor_twice():
    def step(f):
        x = leaf(3)
        f(x, x).sum().backward()
        return x.grad

    compare(step, lambda x, y: x * y.exp())


def test_two_views_of_one_leaf():
    def step(f):
        x = leaf(4, 3)
        f(x[:2], x[1:3]).sum().backward()
        return x.grad

    compare(step, lambda a, b: a * b)


# ---- where backward runs ----


def test_backward_on_another_thread():
    def step(f):
        x = leaf(3)
        out = f(x).sum()
        thread = threading.Thread(target=out.backward)
        thread.start()
        thread.join()
        return x.grad

    compare(step, lambda x: x.exp() * x)


def test_backward_on_many_threads():
    f = oxyfuel.compile(lambda x: (x.exp() * x).sum())
    inputs = [leaf(100) for _ in range(8)]
    threads = [threading.Thread(target=lambda x=x: f(x).backward()) for x in inputs]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for x in inputs:
        a = x.detach()
        torch.testing.assert_close(x.grad, a.exp() * a + a.exp())


@pytest.mark.parametrize("dynamic", (False, True))
def test_first_backwards_at_the_same_time(dynamic):
    """Each by inputs of its own: they are cut and compiled then."""

    def f(x, a, b):
        return (x * a).exp() + b, a.sin() * b

    compiled = oxyfuel.compile(f, dynamic=dynamic)
    inputs = [[leaf(6 + i * dynamic) for _ in range(3)] for i in range(4)]
    outputs = [compiled(*given) for given in inputs]
    together, found = threading.Barrier(len(inputs)), [()] * len(inputs)

    def gradients(i):
        by = inputs[i][: 1 + i % 3]
        together.wait()
        found[i] = torch.autograd.grad(outputs[i][0].sum(), by)

    threads = [threading.Thread(target=gradients, args=(i,)) for i in range(len(inputs))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for given, ours in zip(inputs, found):
        expected = torch.autograd.grad(f(*given)[0].sum(), given[: len(ours)])
        assert ours
        torch.testing.assert_close(ours, expected)


def test_backward_never_called():
    f = oxyfuel.compile(lambda x: x.exp().sin())
    for _ in range(3):
        x = leaf(3)
        assert f(x).requires_grad
    assert x.grad is None


def test_backward_after_the_function_is_gone():
    x = leaf(3)
    out = oxyfuel.compile(lambda x: x.exp())(x)
    oxyfuel.reset()
    out.sum().backward()
    torch.testing.assert_close(x.grad, x.detach().exp())


def test_what_a_call_saves_is_freed():
    import weakref

    f = oxyfuel.compile(lambda x, w: (x * w).sin())
    x, w = leaf(3), torch.randn(3)
    gone = weakref.ref(w)
    out = f(x, w)
    del w
    assert gone() is not None
    out.sum().backward()
    assert gone() is None


# ---- saved tensors ----


def test_save_on_cpu():
    def step(f):
        x, w = leaf(3, 4), leaf(4, 4)
        with save_on_cpu():
            out = f(x, w)
        out.sum().backward()
        return x.grad, w.grad

    compare(step, lambda x, w: (x @ w).sin())


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize(
    "function",
    {
        "a view": lambda x, w: nn.functional.linear(x, w).tanh(),
        "itself": lambda x, w: (x @ w).tanh(),
        "a cast": lambda x, w: x.to(torch.bfloat16) @ w.to(torch.bfloat16),
    }.items(),
    ids=lambda f: f[0],
)
def test_data_is_assigned_to_before_the_backward(function, dynamic):
    def step(f):
        x, w = leaf(3, 4), leaf(4, 4)
        out = f(x, w)
        x.data, w.data = torch.zeros(3, 4), w.data * 2
        out.sum().backward()
        return x.grad, w.grad

    compare(step, function[1], dynamic=dynamic)


@pytest.mark.parametrize("dynamic", [False, True])
def test_data_of_another_layout_is_assigned(dynamic):
    def step(f):
        x, w = leaf(3, 4), leaf(3, 4)
        out = f(x, w)
        x.data = torch.arange(12.0).view(4, 3).t()
        out.sum().backward()
        return x.grad, w.grad

    compare(step, lambda x, w: x * w, dynamic=dynamic)


@pytest.mark.parametrize(
    "data", [torch.ones(2, 2), torch.ones(3, 4).double()], ids=["size", "dtype"]
)
def test_data_of_another_size_or_dtype_is_refused(data):
    x, w = leaf(3, 4), leaf(4, 4)
    out = oxyfuel.compile(lambda x, w: x @ w)(x, w)
    x.data = data
    with pytest.raises(RuntimeError):
        out.sum().backward()


def test_saved_tensors_hooks():
    def step(f):
        packed = []

        def pack(t):
            packed.append(t.shape)
            return t.clone()

        x = leaf(3)
        with saved_tensors_hooks(pack, lambda t: t):
            out = f(x)
        kept = len(packed) > 0
        out.sum().backward()
        return kept, x.grad

    compare(step, lambda x: x.exp() * x)


def rounded(t):
    return (t * 4).round()


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize(
    "hooks",
    [(lambda t: t.half(), lambda t: t.float()), (rounded, lambda t: t / 4)],
    ids=["half", "rounded"],
)
def test_hooks_that_change_what_is_saved(hooks, inside):
    """Gradients of what eager's ops save, also where the code enters the hooks, and none behind."""

    def fn(x, w, around):
        with around if inside else nullcontext():
            h = checkpoint(lambda x: nn.functional.gelu(x @ w), x, use_reentrant=False)
            h = h.exp().tanh()
        return h * x

    def step(f):
        out = []
        for around in (saved_tensors_hooks(*hooks), nullcontext()):
            x, w = leaf(3, 3), leaf(3, 3)
            with nullcontext() if inside else around:
                y = f(x, w, around)
            y.sum().backward()
            out += [y, x.grad, w.grad]
        return out

    expected, found = both(step, fn)
    assert not first_difference(found, expected)


def test_hooks_that_keep_values_see_what_the_graph_saves():
    seen = []

    @oxyfuel.keeps_values
    def pack(t):
        seen.append(t.shape)
        return t.clone()

    x = leaf(3)
    with saved_tensors_hooks(pack, lambda t: t):
        y = oxyfuel.compile(lambda x: x.exp().sin() * 2)(x)
    assert seen and oxyfuel.stats()["graphs"] == 1
    assert y.grad_fn.name() == "MulBackward0"  # eager's


def test_a_checkpoint_where_hooks_are_not_allowed():
    def fn(x):
        return checkpoint(torch.sin, x, use_reentrant=False)

    compiled = oxyfuel.compile(fn)
    compiled(leaf(3))
    with torch.autograd.graph.disable_saved_tensors_hooks("not here"):
        with pytest.raises(RuntimeError, match="not here"):
            compiled(leaf(3))


@pytest.mark.parametrize("by", ["backward", "grad"])
@pytest.mark.parametrize("inside", [False, True])
def test_hooks_of_what_a_backward_of_the_code_reads(by, inside):
    def fn(x, factor, hooks):
        with hooks if inside else nullcontext():
            out = (x * factor).sum()
            return out.backward() if by == "backward" else torch.autograd.grad(out, x)

    def step(f):
        x, counts = leaf(3), [0, 0]

        def scaled(i, factor, t):
            counts[i] += 1
            return t * factor

        hooks = saved_tensors_hooks(partial(scaled, 0, 2), partial(scaled, 1, 0.25))
        with nullcontext() if inside else hooks:
            found = f(x, torch.ones(3), hooks)
        return found, counts, x.grad

    expected, found = both(step, fn)
    assert not first_difference(found, expected)


def test_hooks_of_saved_tensors_that_are_not_allowed():
    def fn(x):
        with torch.autograd.graph.disable_saved_tensors_hooks("not here"):
            with saved_tensors_hooks(lambda t: t, lambda t: t):
                return x.sin()

    with pytest.raises(RuntimeError, match="not here"):
        oxyfuel.compile(fn)(leaf(3))


def test_a_block_where_hooks_of_saved_tensors_are_not_allowed():
    def fn(x, n):
        with torch.autograd.graph.disable_saved_tensors_hooks("not here"):
            y = x.sin() * x
            if n == 2:
                graph_break()
                y = y + 1
        return y.sum()

    graph_break = oxyfuel.graph_break
    compiled = oxyfuel.compile(fn)
    for n, breaks in ((1, False), (2, True)):
        given = leaf(3)
        expected = given.detach().clone().requires_grad_()
        compiled(given, n).backward()
        fn(expected, n).backward()
        torch.testing.assert_close(given.grad, expected.grad)
        assert (oxyfuel.stats()["graph_breaks"] > 0) == breaks
        assert torch._C._autograd._saved_tensors_hooks_is_enabled()


def test_hooks_of_saved_tensors_that_stay_forbidden():
    def fn(x):
        torch._C._autograd._saved_tensors_hooks_disable("from here on")
        return x.sin()

    x = leaf(3)
    try:
        torch.testing.assert_close(oxyfuel.compile(fn)(x), x.sin())
        assert not torch._C._autograd._saved_tensors_hooks_is_enabled()
    finally:
        torch._C._autograd._saved_tensors_hooks_enable()


hears_nodes = pytest.mark.skipif(
    not hasattr(torch.autograd.graph, "node_creation_hook"), reason="torch has it since 2.15"
)


@hears_nodes
@pytest.mark.parametrize("first", [False, True])
def test_who_hears_of_nodes_hears_of_eagers(first):
    def names(f, x):
        heard = []
        with torch.autograd.graph.node_creation_hook(lambda node: heard.append(node.name())):
            f(x)
        return heard

    def fn(x):
        return (x * 2).sin()

    f = oxyfuel.compile(fn)
    x = leaf(3)
    if first:
        f(x)
    assert names(f, x) == names(fn, x) != []
    assert "Oxyfuel" in f(x).grad_fn.name()


@hears_nodes
def test_hooks_of_nodes_in_the_code():
    def step(f):
        return f(leaf(3))

    def fn(x):
        heard = []
        y = x.exp()
        with torch.autograd.graph.node_creation_hook(lambda node: heard.append(node.name())):
            y = y.sin()
        return heard, y.cos()

    expected, found = both(step, fn)
    assert expected[0] == ["SinBackward0"]
    assert not first_difference(found, expected)


def test_checkpoint_around_a_compiled_call():
    def step(f):
        x = leaf(3)
        checkpoint(f, x, use_reentrant=False).sum().backward()
        return x.grad

    compare(step, lambda x: x.exp().sin())


# ---- modes inside ----


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoints_in_a_graph_of_torch_compile(reentrant):
    """TorchDynamo writes each as an op that calls a graph."""
    layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))
    shift = torch.randn(4)

    def inner(x, y):
        return nn.functional.dropout(layers[1](x), 0.3) * y, x + shift

    def outer(x, y):
        a, b = checkpoint(inner, layers[0](x).tanh(), y, use_reentrant=reentrant)
        return a + b.sin()

    def fn(x, y):
        once = checkpoint(outer, x, y, use_reentrant=reentrant)
        return layers[2](once) + checkpoint(torch.cos, x, use_reentrant=reentrant)

    results = []
    for f in (fn, torch.compile(fn, backend="oxyfuel")):
        torch.manual_seed(0)
        x, y = leaf(3, 4), leaf(3, 4)
        layers.zero_grad()
        out = f(x, y)
        out.square().sum().backward()
        results.append([out, x.grad, y.grad, [p.grad for p in layers.parameters()], torch.rand(2)])
    torch._dynamo.reset()
    assert not first_difference(*results)
    stats = oxyfuel.stats()
    assert stats["graphs"] == 1 and stats["unsupported"] == stats["fallbacks"] == 0


def counting_contexts():
    counts = {}

    def policy(ctx, op, *args, **kwargs):
        counts[op] = counts.get(op, 0) + 1
        odd = op == torch.ops.aten.mm.default and counts[op] % 2
        return CheckpointPolicy.MUST_SAVE if odd else CheckpointPolicy.PREFER_RECOMPUTE

    return create_selective_checkpoint_contexts(policy)


class Doubled(torch.overrides.TorchFunctionMode):
    """A context that changes what is computed."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        return out * 2 if func is torch.sin else out


@pytest.mark.parametrize(
    ("contexts", "breaks"),
    [
        (partial(create_selective_checkpoint_contexts, [torch.ops.aten.mm.default]), 0),
        (counting_contexts, 0),
        (noop_context_fn, 0),
        (lambda: (nullcontext(), nullcontext()), 0),
        (lambda: (Doubled(), Doubled()), 1),
        (partial(create_selective_checkpoint_contexts, [torch.mm]), 0),
    ],
    ids=["ops", "policy", "none", "null", "another", "refused"],
)
def test_contexts_of_a_checkpoint(contexts, breaks):
    def step(f):
        x, w = leaf(3, 4), leaf(4, 4)
        try:
            out = f(x, w)
        except ValueError as e:
            return str(e)
        out.sum().backward()
        return out, x.grad, w.grad

    def fn(x, w):
        h = checkpoint(lambda h: (h @ w).sin() @ w, x * 2, use_reentrant=False, context_fn=contexts)
        return h.exp()

    expected, found = both(step, fn)
    assert not first_difference(found, expected)
    assert bool(oxyfuel.stats()["graph_breaks"]) == bool(breaks)


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize(
    ("writes", "breaks"), [("statistics", True), ("attribute", True), ("nothing", False)]
)
def test_what_a_checkpoint_writes_is_written_again(reentrant, writes, breaks):
    """By eager's backward, which computes it again."""

    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = torch.nn.BatchNorm1d(4, track_running_stats=writes == "statistics")
            self.calls = 0

        def forward(self, x):
            if writes == "attribute":
                self.calls += 1
            return self.norm(x)

    def step(f):
        torch.manual_seed(0)
        layer, x = Layer(), leaf(5, 4)
        f(layer, x).square().sum().backward()
        return layer.state_dict(), layer.calls, x.grad

    def fn(layer, x):
        return checkpoint(layer, x.sin(), use_reentrant=reentrant)

    expected, found = both(step, fn)
    assert not first_difference(found, expected)
    assert bool(oxyfuel.stats()["graph_breaks"]) == breaks


@pytest.mark.parametrize(("rate", "breaks"), [(0.5, True), (0.0, False)])
def test_a_checkpoint_that_draws_other_numbers_again(rate, breaks):
    def fn(x, w):
        return checkpoint(
            lambda h: torch.dropout(h @ w, rate, rate > 0).sin(),
            x * 2,
            use_reentrant=False,
            preserve_rng_state=False,
        )

    def step(f):
        x, w = leaf(3, 4), leaf(4, 4)
        f(x, w).sum().backward()
        return x.grad, w.grad, torch.rand(2)

    expected, found = both(step, fn)
    assert not first_difference(found, expected)
    assert bool(oxyfuel.stats()["graph_breaks"]) == breaks


def test_no_grad_inside():
    def fn(x):
        with torch.no_grad():
            scale = x.abs().max()
        return x / scale

    def step(f):
        x = leaf(3)
        f(x).sum().backward()
        return x.grad

    compare(step, fn)


def test_enable_grad_inside():
    def fn(x):
        y = x.sin()
        with torch.enable_grad():
            z = x.cos()
        return y, z

    def step(f):
        x = leaf(3)
        with torch.no_grad():
            y, z = f(x)
        z.sum().backward()
        return y.requires_grad, z.requires_grad, x.grad

    compare(step, fn)


def test_enable_grad_inside_of_what_makes_views():
    def fn(x, buffer):
        with torch.enable_grad():
            seen = x[1:]
            y = x * 2
            part = y[1:]
            buffer.add_(y)
        return seen, y, part, x[:2], y[:2], x * 3

    def step(f):
        x, buffer = leaf(4), torch.zeros(4)
        with torch.no_grad():
            out = f(x, buffer)
        for t in (*out[:3], buffer):
            t.sum().backward(retain_graph=True)
        return [(t.requires_grad, t._is_view()) for t in out], buffer.requires_grad, x.grad

    compare(step, fn)


def test_enable_grad_inside_without_results_of_it():
    def fn(x):
        for _ in range(2):
            with torch.enable_grad():
                at = x.detach().requires_grad_()
                (g,) = torch.autograd.grad(at.pow(3).sum(), at)
            x = x - 0.1 * g
        return x

    def step(f):
        with torch.no_grad():
            y = f(leaf(3))
        return y, y.requires_grad

    compare(step, fn)


def test_inference_mode_inside():
    def fn(x):
        with torch.inference_mode():
            n = x.abs().sum() > 0
        return x.exp(), n

    def step(f):
        x = leaf(3)
        y, n = f(x)
        y.sum().backward()
        return x.grad, bool(n)

    expected, found = both(step, fn)
    assert not first_difference(found, expected)


def test_detach_inside():
    def fn(x):
        y = x.exp()
        return y * y.detach()

    def step(f):
        x = leaf(3)
        f(x).sum().backward()
        return x.grad

    compare(step, fn)


def test_requires_grad_inside():
    def fn(x):
        y = x.detach().requires_grad_()
        return (y * 2).requires_grad, x * 2

    def step(f):
        x = leaf(3)
        required, out = f(x)
        out.sum().backward()
        return required, x.grad

    expected, found = both(step, fn)
    assert not first_difference(found, expected)


def test_backward_inside():
    def fn(x, w):
        loss = (x * w).sin().sum()
        (g,) = torch.autograd.grad(loss, w)
        return loss, g

    def step(f):
        return f(torch.randn(3), leaf(3))

    expected, found = both(step, fn)
    assert not first_difference(found, expected)


@pytest.mark.parametrize("inside", [False, True])
def test_autocast(inside):
    layer = nn.Linear(4, 4)

    def fn(x):
        with torch.autocast(
            "cpu", torch.bfloat16, enabled=inside or torch.is_autocast_enabled("cpu")
        ):
            return layer(layer(x).relu())

    def step(f):
        layer.zero_grad()
        x = leaf(2, 4)
        with torch.autocast("cpu", torch.bfloat16, enabled=not inside):
            out = f(x)
        out.float().sum().backward()
        return out, x.grad, layer.weight.grad

    expected, found = both(step, fn)
    for a, b in zip(found, expected):
        assert a.dtype == b.dtype
        torch.testing.assert_close(a.float(), b.float(), rtol=2e-2, atol=2e-2)


def test_dropout_draws_what_eager_draws():
    def step(f):
        x = leaf(20, 20)
        outs = [f(x) for _ in range(2)]
        sum(o.sum() for o in outs).backward()
        return outs, x.grad, torch.rand(3)

    compare(step, lambda x: nn.functional.dropout(x, 0.4) * 2)


@pytest.mark.parametrize("required", [False, True])
@pytest.mark.parametrize(
    "lay",
    [
        lambda x: x.mT,
        lambda x: x.transpose(0, 1),
        lambda x: x.contiguous(memory_format=torch.channels_last),
        lambda x: x[:, :, :1].transpose(1, 2),
        lambda x: x[:0].transpose(0, 1),
    ],
)
def test_dropout_of_what_is_not_row_major(lay, required):
    def step(f):
        x = lay(torch.randn(3, 4, 5, 6)).clone().requires_grad_(required)
        out = f(x)
        if required:
            out.sum().backward()
        return out, x.grad, torch.rand(3)

    compare(step, lambda x: nn.functional.dropout(x, 0.3) + 1)


@pytest.mark.parametrize("options", [{}, {"momentum": None}, {"momentum": None, "affine": False}])
def test_batch_norm_updates_its_buffers(options):
    def step(module, f):
        outs = []
        for _ in range(3):
            outs.append(f(torch.randn(6, 4, 5)))
            outs[-1].square().sum().backward()
        module.eval()
        outs.append(f(torch.randn(6, 4, 5)))
        return outs

    first = nn.Linear(5, 5)
    norm = lambda: nn.BatchNorm1d(4, **options)  # noqa: E731
    compare_modules(lambda: nn.Sequential(copy.deepcopy(first), norm(), nn.ReLU()), step)
    assert oxyfuel.stats()["graph_breaks"] == 0


def test_custom_function():
    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * 2

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return g * 7 * x

    def step(f):
        x = leaf(3)
        f(x).sum().backward()
        return x.grad

    expected, found = both(step, lambda x: Twice.apply(x.sin()) + 1)
    assert not first_difference(found, expected)


def test_a_graph_break_between():
    def fn(x):
        y = x.sin()
        print(end="")
        torch._dynamo.graph_break()
        return y * x

    def step(f):
        x = leaf(3)
        f(x).sum().backward()
        return x.grad

    expected, found = both(step, fn)
    assert not first_difference(found, expected)
    assert oxyfuel.stats()["grad_fallbacks"] == 0


# ---- the other entrance ----


def test_torch_compile():
    torch._dynamo.reset()
    torch.manual_seed(0)
    eager = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))
    other = copy.deepcopy(eager)
    compiled = torch.compile(other, backend="oxyfuel")
    results = []
    for module, f in ((eager, eager), (other, compiled)):
        torch.manual_seed(1)
        optimizer = torch.optim.SGD(module.parameters(), 0.1)
        losses = []
        for _ in range(4):
            optimizer.zero_grad()
            loss = f(torch.randn(6, 4)).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        results.append([losses, dict(module.state_dict())])
    torch._dynamo.reset()
    assert not first_difference(results[1], results[0])
    stats = oxyfuel.stats()
    assert stats["graphs"] >= 1 and stats["grad_fallbacks"] == stats["unsupported"] == 0


class WithoutGradients(nn.Module):
    def __init__(self, gives):
        super().__init__()
        self.linear, self.gives = nn.Linear(3, 3), gives

    def forward(self, x):
        with torch.no_grad():
            y = self.linear(x)
        return self.gives(x, y)


@pytest.mark.parametrize(
    "gives",
    [lambda x, y: y, lambda x, y: (x * 2, y), lambda x, y: [x * 2], lambda x, y: y.argmax()],
    ids=["one", "among others", "in a list", "an integer"],
)
def test_reentrant_checkpoint_of_what_has_no_gradients(gives):
    module = WithoutGradients(gives)

    def step(f):
        x = torch.ones(2, 3, requires_grad=True)
        out = f(x)
        results = torch.utils._pytree.tree_leaves(out)
        found = [t.requires_grad for t in results]
        try:
            sum(t.sum() for t in results).backward()
        except RuntimeError as error:
            return found, str(error)
        return found, x.grad.tolist()

    def f(x):
        return checkpoint(module, x, use_reentrant=True)

    assert step(oxyfuel.compile(f)) == step(f)
