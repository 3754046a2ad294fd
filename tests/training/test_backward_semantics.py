"""Training steps do what they do in eager: hooks, accumulation, aliases, modes, threads, sizes."""

import copy
import threading

import pytest
import torch
from model_check import first_difference
from torch import nn
from torch.autograd.graph import save_on_cpu, saved_tensors_hooks
from torch.utils.checkpoint import checkpoint

import oxyfuel


def leaf(*shape, dtype=torch.float32):
    return torch.randn(shape, dtype=dtype).requires_grad_()


def both(step, fn, **options):
    """What `step` gives with the function and with the function compiled."""
    results = []
    for f in (fn, oxyfuel.compile(fn, **options)):
        torch.manual_seed(0)
        results.append(step(f))
    return results


def compare(step, fn, breaks=0, **options):
    """The step gives the same, with the function in graphs."""
    expected, found = both(step, fn, **options)
    assert not first_difference(found, expected)
    stats = oxyfuel.stats()
    assert stats["graphs"] >= 1 and stats["graph_breaks"] == breaks
    assert stats["unsupported"] == stats["grad_fallbacks"] == 0


def compare_modules(make, step):
    """The step with a module in eager and compiled gives the same, parameters' gradients too."""
    results = []
    for wrap in (lambda m: m, oxyfuel.compile):
        torch.manual_seed(0)
        module = make()
        out = step(module, wrap(module))
        gradients = {n: p.grad for n, p in module.named_parameters()}
        results.append([out, gradients, dict(module.named_buffers())])
    assert not first_difference(results[1], results[0])
    stats = oxyfuel.stats()
    assert stats["graphs"] >= 1 and stats["unsupported"] == stats["grad_fallbacks"] == 0


# ---- hooks ----


def test_hook_of_an_input():
    def step(f):
        x = leaf(3)
        inner = x * 2
        inner.register_hook(lambda g: g * 10)
        f(inner).sum().backward()
        return x.grad

    compare(step, lambda x: x.sin())


def test_hook_of_a_leaf_and_an_output():
    def step(f):
        heard = []
        x = leaf(3)
        x.register_hook(lambda g: heard.append(g.clone()))
        x.register_post_accumulate_grad_hook(lambda p: heard.append(p.grad.clone()))
        out = f(x)
        out.register_hook(lambda g: g + 1)
        out.sum().backward()
        return x.grad, heard

    compare(step, lambda x: x.sin())


def test_retained_gradient():
    def step(f):
        x = leaf(3)
        inner = x * 2
        inner.retain_grad()
        out = f(inner)
        out.retain_grad()
        (out * 3).sum().backward()
        return x.grad, inner.grad, out.grad

    compare(step, lambda x: x.exp())


def test_hooks_of_the_node():
    def step(f):
        x = leaf(3)
        out = f(x)
        heard = []
        out.grad_fn.register_hook(lambda into, out_of: heard.append(out_of[0].clone()))
        out.grad_fn.register_prehook(lambda out_of: (out_of[0] * 2,))
        out.sum().backward()
        return x.grad, heard

    compare(step, lambda x: x.sin())


def test_hook_inside():
    def fn(x):
        y = x * 2
        if y.requires_grad:
            y.register_hook(lambda g: g * 10)
        return y.sin()

    def step(f):
        x = leaf(3)
        f(x).sum().backward()
        return x.grad

    expected, found = both(step, fn)
    assert not first_difference(found, expected)


def test_module_hooks():
    def step(module, f):
        heard = []
        module[0].register_forward_hook(lambda m, args, out: out * 2)
        module.register_forward_pre_hook(lambda m, args: (args[0] + 1,))
        module.register_full_backward_hook(lambda m, i, o: heard.append((i, o)))
        x = leaf(2, 4)
        f(x).sum().backward()
        return x.grad, heard

    results = []
    for wrap in (lambda m: m, oxyfuel.compile):
        torch.manual_seed(0)
        module = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
        results.append([step(module, wrap(module)), [p.grad for p in module.parameters()]])
    assert not first_difference(results[1], results[0])


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


def test_tied_weights():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(10, 4)
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


# ---- outputs ----


@pytest.mark.parametrize("used", [(0,), (1,), (0, 2), (0, 1, 2)])
def test_unused_outputs(used):
    def step(f):
        x, y = leaf(3), leaf(3)
        out = f(x, y)
        sum(out[i].sum() for i in used).backward()
        return x.grad, y.grad

    compare(step, lambda x, y: (x.sin(), y.cos(), x * y))


def test_one_output_after_the_other():
    def step(f):
        x, y = leaf(3), leaf(3)
        a, b = f(x, y)
        a.sum().backward(retain_graph=True)
        first = x.grad.clone(), y.grad
        b.sum().backward()
        return first, x.grad, y.grad

    compare(step, lambda x, y: (x.sin(), x * y))


def test_input_as_output():
    def step(f):
        x, y = leaf(3), leaf(3) * 1
        out = f(x, y)
        same = out[0] is x, out[1] is y
        (out[2] * out[1] + out[0]).sum().backward()
        return same, x.grad

    compare(step, lambda x, y: (x, y, x * y))


def test_views_of_inputs_as_outputs():
    def step(f):
        x = leaf(3, 4)
        a, b, c = f(x)
        (a.sum() + b.square().sum() + c.sum()).backward()
        return a._is_view(), a._base is x, b._base is x, x.grad

    compare(step, lambda x: (x.t(), x[1], x.sin()))


def test_a_view_of_an_input_is_written():
    def step(f):
        x = leaf(3, 4)
        inner = x * 1
        view, out = f(inner)
        view.mul_(3)
        (inner.sum() + view.square().sum() + out.sum()).backward()
        return x.grad, inner

    compare(step, lambda x: (x[0], x + 1))


def test_outputs_alias_each_other():
    def step(f):
        x = leaf(3, 4)
        a, b, c = f(x)
        shared = a.data_ptr() == b.data_ptr()
        (a.sum() + 2 * b.square().sum() + 3 * c.sum()).backward()
        return shared, c is a, a, b, x.grad

    def fn(x):
        y = x.sin()
        return y, y.t(), y

    compare(step, fn)


def test_view_outputs_of_an_intermediate_are_written():
    def step(f):
        x = leaf(3, 4)
        rows = f(x)
        rows[1].mul_(5)
        sum(r.sum() for r in rows).backward()
        return x.grad, rows

    def fn(x):
        y = x.sin()
        return y[0], y[1:]

    compare(step, fn)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("written", [True, False])
def test_views_of_what_linear_has_reshaped(bias, written):
    """Autograd knows the memory in three dimensions; the product has two."""
    layer = nn.Linear(4, 6, bias=bias)

    def step(f):
        x = leaf(2, 3, 4)
        layer.zero_grad()
        a, b, c = f(x)
        shared = [t.untyped_storage().data_ptr() == a.untyped_storage().data_ptr() for t in (b, c)]
        if written:
            b.mul_(5)
        (a.sum() + 2 * b.square().sum() + 3 * c.sum()).backward()
        return shared, a, b, c, x.grad, [p.grad for p in layer.parameters()]

    def fn(x):
        y = layer(x)
        return y[..., :2], y[:, 1], y.view(2, 3, 2, 3).transpose(1, 2)

    compare(step, fn)


def test_chunks_of_a_product_with_swapped_dimensions():
    def step(f):
        x, w = leaf(2, 3, 4), leaf(6, 4)
        q, k = f(x, w)
        (q.exp().sum() + k.square().sum()).backward()
        return q, k, x.grad, w.grad

    def fn(x, w):
        heads = nn.functional.linear(x, w).view(2, 3, 2, 3).permute(0, 2, 1, 3)
        return heads.chunk(2, dim=-2)

    compare(step, fn)


def test_detached_outputs():
    def step(f):
        x = leaf(3)
        out = f(x)
        out[0].sum().backward()
        return [t.requires_grad for t in out], out[1].data_ptr() == out[0].data_ptr(), x.grad

    def fn(x):
        y = x.sin()
        return y, y.detach(), (y > 0), y.argmax(), y.int()

    compare(step, fn)


def test_structure_of_outputs():
    def step(f):
        x = leaf(3)
        out = f(x)
        (out["a"][0] * out["b"]).sum().backward()
        return out["a"][1:], x.grad

    compare(step, lambda x: {"a": (x.sin(), 3, None, "text"), "b": x * 2})


def test_constants_as_outputs():
    def step(f):
        x = leaf(3)
        out = f(x)
        out[1].sum().backward()
        return [t.requires_grad for t in out], out[0], x.grad

    compare(step, lambda x: (torch.ones(3), x * 2, torch.arange(3)))


# ---- inputs ----


def test_inputs_are_no_leaves():
    def step(f):
        x, w = leaf(3, 4), leaf(4, 5)
        out = f(x.sin(), w.t().contiguous().t())
        out.relu().sum().backward()
        return x.grad, w.grad

    compare(step, lambda x, w: x @ w)


def test_chain_of_compiled_graphs():
    def step(f):
        x = leaf(3, 3)
        f(f(f(x))).sum().backward()
        return x.grad

    compare(step, lambda x: (x @ x).tanh())


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x[1:],
        lambda x: x.t(),
        lambda x: x[:, ::2],
        lambda x: x[0].expand(4, -1),
        lambda x: x.diagonal(),
        lambda x: x.unfold(1, 2, 1),
    ],
)
def test_inputs_are_views(view):
    def step(f):
        x = leaf(4, 6)
        f(view(x)).sum().backward()
        return x.grad

    compare(step, lambda x: x.exp() * x)


def test_a_mutated_input():
    def step(f):
        x, y = leaf(3), leaf(3)
        inner = x * 1
        out = f(inner, y)
        (out * inner).sum().backward()
        return inner, x.grad, y.grad, inner.requires_grad, inner._version > 0

    def fn(a, y):
        a.mul_(y)
        return a.sin()

    expected, found = both(step, fn)
    assert not first_difference(found, expected)


def test_a_mutated_input_without_gradient():
    def step(f):
        x = leaf(3)
        count = torch.zeros(3)
        for _ in range(3):
            f(x, count).sum().backward()
        return x.grad, count

    def fn(x, count):
        count.add_(1)
        return x * 2 + count

    compare(step, fn)


def test_a_buffer_gets_a_history():
    def step(f):
        x, buffer = leaf(3), torch.zeros(4, 3)
        out = f(buffer, x)
        (buffer.sum() + out.sum()).backward()
        return buffer, buffer.requires_grad, x.grad

    def fn(buffer, x):
        buffer[1] = x.exp()
        return buffer * 2

    expected, found = both(step, fn)
    assert not first_difference(found, expected)


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: x.select(-1, 1) * 2,
        lambda x: x.select(-2, -1).exp(),
        lambda x: x[..., -1:].exp(),
        lambda x: x.diagonal(0, -1, -2).sin(),
        lambda x: x.unfold(-1, 2, 1).sin(),
        lambda x: x.unbind(-1)[1].exp(),
        lambda x: x.split(2, -1)[1].exp(),
        lambda x: x.sort(-1)[0].exp() + x.roll(1, -1),
        lambda x: torch.stack([x, x.flip(-1)], -1).exp(),
        lambda x: torch.trapezoid(x, dim=-1),
    ],
)
def test_dimensions_from_the_end(fn):
    def step(f):
        x = leaf(3, 4, 4)
        out = f(x)
        out.backward(torch.randn_like(out))
        return x.grad

    compare(step, fn)


# ---- gradients as they come ----


def test_expanded_tangent():
    def step(f):
        x = leaf(3, 4)
        f(x).sum().backward()
        return x.grad

    compare(step, lambda x: x.sin())
    compare(step, lambda x: x.t().exp())


@pytest.mark.parametrize("lay", [lambda g: g.t().contiguous().t(), lambda g: g[:, :1].expand(3, 4)])
def test_layouts_of_tangents(lay):
    def step(f):
        x = leaf(3, 4)
        f(x).backward(lay(torch.randn(3, 4)))
        return x.grad

    compare(step, lambda x: x.sin())


def test_channels_last():
    def make():
        module = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU())
        return module.to(memory_format=torch.channels_last)

    def step(module, f):
        x = torch.randn(2, 3, 8, 8).to(memory_format=torch.channels_last).requires_grad_()
        out = f(x)
        out.sum().backward()
        return out, x.grad

    compare_modules(make, step)


def test_sparse_gradient_of_an_embedding():
    def step(f):
        w = leaf(10, 4)
        f(w, torch.tensor([1, 1, 3])).sum().backward()
        return w.grad.to_dense()

    def fn(w, i):
        return nn.functional.embedding(i, w, sparse=True) * 2

    expected, found = both(step, fn)
    assert not first_difference(found, expected)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.complex64])
def test_dtypes(dtype):
    def step(f):
        x = leaf(3, 4, dtype=dtype)
        out = f(x)
        out.backward(torch.ones_like(out))
        return x.grad

    compare(step, lambda x: (x * x).sum(-1) * 2)


def test_empty_tensors():
    def step(f):
        x, w = leaf(0, 4), leaf(4, 3)
        f(x, w).sum().backward()
        return x.grad, w.grad

    compare(step, lambda x, w: (x @ w).relu())


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


def test_hooks_that_change_what_is_saved():
    def step(f):
        x = leaf(3)
        with saved_tensors_hooks(lambda t: t.double(), lambda t: t.float()):
            out = f(x)
        out.sum().backward()
        return x.grad

    compare(step, lambda x: x.sin())


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


def test_batch_norm_updates_its_buffers():
    def step(module, f):
        outs = []
        for _ in range(3):
            outs.append(f(torch.randn(6, 4, 5)))
            outs[-1].square().sum().backward()
        module.eval()
        outs.append(f(torch.randn(6, 4, 5)))
        return outs

    compare_modules(lambda: nn.Sequential(nn.BatchNorm1d(4), nn.ReLU()), step)


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


# ---- sizes ----


def test_batches_of_any_size():
    def step(module, f):
        out = []
        for n in (2, 3, 5, 7, 8):
            x = torch.randn(n, 4, requires_grad=True)
            y = f(x)
            y.square().mean().backward()
            out += [y, x.grad]
        return out

    compare_modules(lambda: nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.LayerNorm(8)), step)
    assert oxyfuel.stats()["recompiles"] == 1


def test_marked_dynamic():
    def step(f):
        out = []
        for n in (4, 6, 9):
            x = leaf(n, 3)
            f(x).sum().backward()
            out.append(x.grad)
        return out

    compare(step, lambda x: x.softmax(0) * x.shape[0], dynamic=True)
    assert oxyfuel.stats()["recompiles"] == 0


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


# ---- assignments through masks ----

MASKED = {  # sizes of what is written, of the mask, of the value, whole dimensions in front
    "a row": ((2, 5, 3), (2, 5), (3,), 0),
    "a number": ((2, 5, 3), (2, 5), (), 0),
    "each element": ((4, 5), (4, 5), (), 0),
    "the first dimension": ((4, 5, 2), (4,), (5, 2), 0),
    "a part of it": ((4, 5, 2), (4,), (1, 2), 0),
    "behind a whole dimension": ((4, 5, 2), (5,), (2,), 1),
    "empty": ((0, 5, 2), (0, 5), (2,), 0),
}


@pytest.mark.parametrize("how", ["item", "index_put_", "index_put"])
@pytest.mark.parametrize("name", MASKED)
@pytest.mark.parametrize("chosen", [0.0, 0.5, 1.0])
def test_a_value_with_a_gradient_is_written_by_a_mask(name, how, chosen):
    sizes, of_mask, of_value, whole = MASKED[name]
    mask = torch.rand(of_mask) < chosen
    index = (slice(None),) * whole + (mask,)
    if how != "item" and whole:
        pytest.skip("index_put in Python takes no whole dimensions")

    def step(f):
        x, v = leaf(*sizes), leaf(*of_value)
        y = f(x, v, mask)
        y.square().sum().backward()
        return y, x.grad, v.grad

    def fn(x, v, mask):
        y = x * 2
        if how == "item":
            y[(*index[:-1], mask)] = v
        elif how == "index_put_":
            y.index_put_((mask,), v)
        else:
            y = torch.index_put(y, (mask,), v)
        return y.sin()

    compare(step, fn)


def test_a_view_is_written_by_a_mask():
    mask = torch.tensor([True, False, True])

    def step(f):
        x, v = leaf(4, 3), leaf()
        y = f(x, v)
        y.square().sum().backward()
        return y, x.grad, v.grad, v._version

    def fn(x, v):
        y = x * 2
        y.t()[mask] = v
        y[1][mask] = v * 3
        return y

    compare(step, fn)


def test_what_a_mask_cannot_write():
    mask = torch.tensor([True, False, True])
    x, v = leaf(3), leaf()

    def to_leaf(x, v):
        x[mask] = v
        return x

    def of_another_dtype(x, v):
        y = x * 2
        torch.Tensor.index_put_(y, (mask,), v.double().expand(2))
        return y

    def of_another_shape(x, v):
        y = x * 2
        y[mask[:2]] = v
        return y

    for f in (to_leaf, of_another_dtype, of_another_shape):
        with pytest.raises((RuntimeError, IndexError)) as expected:
            f(x, v)
        with pytest.raises(expected.type) as found:
            oxyfuel.compile(f)(x, v)
        assert str(found.value) == str(expected.value)


# ---- layouts of gradients ----


@pytest.mark.parametrize("format_", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("batch", "of", "to", "groups", "kernel"),
    [
        (2, 8, 8, 8, 3),  # by channel: weights with one dimension of size 1
        (2, 8, 16, 8, 7),
        (2, 1, 4, 1, 3),
        (1, 8, 1, 1, 1),  # a kernel of ATen's own
        (1, 8, 8, 1, 1),
        (2, 8, 8, 1, 1),
        (2, 8, 4, 2, 3),
    ],
)
def test_gradients_of_convolutions_are_laid_out_as_in_eager(
    batch, of, to, groups, kernel, dtype, format_
):
    weights = torch.randn(to, of // groups, kernel, kernel, dtype=dtype)
    image = torch.randn(batch, 6, 6, of, dtype=dtype).permute(0, 3, 1, 2)
    image = image.contiguous(memory_format=format_)

    def step(f):
        x, w = image.clone().requires_grad_(), weights.clone().requires_grad_()
        y = f(x, w)
        y.square().sum().backward()
        return y, x.grad, w.grad

    padding = kernel // 2
    compare(step, lambda x, w: nn.functional.conv2d(x * 2, w, padding=padding, groups=groups))


def test_a_gradient_that_is_a_piece():
    """AccumulateGrad looks at no stride of a dimension of size 1."""

    def step(f):
        token, x = leaf(1, 1, 4), leaf(1, 3, 4)
        row = leaf(1, 3, 4)
        f(token, x, row).square().sum().backward()
        return token.grad, x.grad, row.grad

    def fn(token, x, row):
        return torch.cat([token.expand(x.shape[0], -1, -1), x], 1).exp() + row[:, :1]

    compare(step, fn)
