"""Recording: what a call does, as an ATen graph that gives eager's results, effects and aliases."""

from __future__ import annotations

import operator

import pytest
import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from oxyfuel import _C
from oxyfuel.fx import aten_graph_to_fx, torch_graph_to_fx


def record(fn, *args, mode=torch.no_grad, **options):
    graph = _C.TorchGraph.from_fx(torch.fx.symbolic_trace(fn))
    with mode():
        recording = _C.record(graph, list(args), **options)
    recording.verify()
    return recording


def leaves(result):
    if isinstance(result, torch.Tensor):
        return [result]
    if isinstance(result, (list, tuple)):
        return [t for r in result for t in leaves(r)]
    if isinstance(result, dict):
        return [t for r in result.values() for t in leaves(r)]
    return []


def shares(a, b):
    return a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr() and a.numel() > 0


def check(fn, *args, mode=torch.no_grad):
    """The recorded graph against eager: values, layouts, mutated inputs, identity and sharing of
    memory."""
    recording = record(fn, *args, mode=mode)
    mine, theirs = [[a.clone() for a in args] for _ in range(2)]
    for copy, a in zip(mine + theirs, args * 2, strict=True):
        copy.set_(
            copy.untyped_storage(), 0, a.shape, a.stride()
        ) if copy.stride() != a.stride() else None
    with mode():
        torch.manual_seed(7)
        expected = fn(*theirs)
        torch.manual_seed(7)
        got = aten_graph_to_fx(recording)(*mine)
    assert type(got) is type(expected) or isinstance(expected, tuple)
    wanted, found = leaves(expected), leaves(got)
    assert len(wanted) == len(found)
    for w, f in zip(wanted, found, strict=True):
        torch.testing.assert_close(f, w, rtol=0, atol=0, equal_nan=True)
        assert (f.dtype, f.shape, f.stride()) == (w.dtype, w.shape, w.stride())
    for w, f in zip(theirs, mine, strict=True):
        torch.testing.assert_close(f, w, rtol=0, atol=0, equal_nan=True)
    everything, ours = wanted + theirs, found + mine
    for i in range(len(everything)):
        for j in range(i):
            assert (everything[i] is everything[j]) == (ours[i] is ours[j]), (i, j)
            assert shares(everything[i], everything[j]) == shares(ours[i], ours[j]), (i, j)
    return recording


def targets(recording):
    return [n.target for n in recording.describe(lambda i: i) if n.kind == "op"]


x23, x45 = torch.randn(2, 3), torch.randn(4, 5)


def test_text_of_both_stages():
    def f(x):
        return ((x + 1) * 2).sin()

    graph = _C.TorchGraph.from_fx(torch.fx.symbolic_trace(f))
    text = graph.text(stacks=False)
    assert "call operator.add(%x, 1)" in text and "method sin(%mul)" in text
    assert _C.TorchGraph.parse(text).text(stacks=False) == text
    assert torch.equal(_C.TorchGraph.parse(text).replay([x23]), f(x23))
    recording = record(f, x23)
    assert "%0: f32[2, 3] = aten.add.Tensor(%x, 1, 1)" in recording.text(stacks=False)


PURE = {
    "pointwise": (lambda x: ((x + 1) * 2).sin(), x23),
    "several outputs": (lambda x: (x.sin(), {"a": x.cos(), "b": [x + 1, 3, None]}), x23),
    "views inside": (lambda x: x.t().reshape(-1)[2:4] * 2, x23),
    "split": (lambda x: x.split(2, 1)[0] + 1, x45),
    "cat twice": (lambda x: torch.cat((x, x), -1), x23),
    "promotion": (lambda x: x.int() * 2.5 + True, x23),
    "linear": (lambda x: F.linear(x, x, x[:, 0]), x23),
    "softmax": (lambda x: torch.softmax(x.double(), 1), x45),
    "attention": (lambda q: F.scaled_dot_product_attention(q, q, q), torch.randn(1, 2, 8, 16)),
    "index": (lambda x: x[torch.tensor([0, 1, 1]), 1:], x23),
    "factory": (lambda x: torch.zeros(2, 3) + torch.arange(3) + torch.ones_like(x), x23),
    "dropout": (lambda x: F.dropout(x, 0.5), x45),
    "rand": (lambda x: x + torch.rand_like(x) + torch.randn_like(x), x23),
    "normal_ of a fresh tensor": (lambda x: torch.empty_like(x).normal_() + x, x23),
    "where": (lambda x: torch.where(x > 0, x, -1.0), x23),
    "layer norm": (lambda x: F.layer_norm(x, (5,)), x45),
    "conv": (lambda x: F.conv2d(x, x[:, :, :2, :2]), torch.randn(1, 3, 6, 6)),
    "empty": (lambda x: x[:0].sum(0), x23),
    "zero-dimensional": (lambda x: x.sum() * 2, x23),
    "max with indices": (lambda x: x.max(1), x45),
    "argmax": (lambda x: x.argmax(), x45),
    "constant inside": (lambda x: x + torch.tensor([1.0, 2.0, 3.0]), x23),
    "no bound": (lambda x: x[1:, ::2] + 0, x45),
}


@pytest.mark.parametrize("name", PURE)
def test_pure(name):
    fn, *args = PURE[name]
    recording = check(fn, *args)
    assert recording.mutations() == []


def test_size_result():
    check(lambda x: (x + 1, x.shape), x23)


def add_to_row(x):
    x[0].add_(1)
    return x * 2


def write_slice(x):
    x[:, 1:2].fill_(5)
    return x.sum()


def write_and_return(x):
    x.mul_(2)
    return x, x.t(), x[0]


def write_through_view(x):
    y = x.view(-1)
    y[0].fill_(3)
    y.add_(1)
    return y


def write_intermediate(x):
    y = x + 1
    y.relu_()
    y[0].zero_()
    return y


def write_two(x, y):
    x.copy_(y)
    y.add_(x)
    return x - y


def write_transposed(x):
    x.t().add_(1)
    return None


def write_same(x):
    x.add_(1)
    x.add_(1)


def out_argument(x):
    y = torch.empty_like(x)
    torch.add(x, 1, out=y)
    return y


WRITES = {
    add_to_row: (x23,),
    write_slice: (x45,),
    write_and_return: (x23,),
    write_through_view: (x23,),
    write_intermediate: (x23,),
    write_two: (x23, torch.randn(2, 3)),
    write_transposed: (x23,),
    write_same: (x23,),
    out_argument: (x23,),
}


@pytest.mark.parametrize("fn", WRITES, ids=lambda f: f.__name__)
@pytest.mark.parametrize(
    "mode", [torch.no_grad, torch.inference_mode], ids=["no_grad", "inference"]
)
def test_mutation(fn, mode):
    check(fn, *WRITES[fn], mode=mode)


def test_mutation_keeps_the_layout_of_an_input():
    check(lambda x: x.add_(1), torch.randn(4, 3).t())


def two_views(x):
    y = x + 1
    return y[0], y[1]


def base_and_view(x):
    y = x + 1
    return y.t(), y, y[:, 0]


ALIASES = {
    "input returned": (lambda x: (x, x), x23),
    "view of an input": (lambda x: (x.t(), x[0], x.view(-1)[1:]), x23),
    "the same twice": (lambda x: (lambda y: (y, [y, y]))(x + 1), x23),
    "two views of hidden memory": (two_views, x23),
    "views of an output": (base_and_view, x23),
    "expanded": (lambda x: x.sum(0).expand(4, 3), x23),
    "slice with gaps": (lambda x: (x + 1)[:, :2], x45),
    "transposed": (lambda x: (x + 1).t(), x45),
    "chunks": (lambda x: (x * 2).chunk(2, 0), x45),
    "unsqueezed": (lambda x: (x[None], x + 1), x23),
}


@pytest.mark.parametrize("name", ALIASES)
@pytest.mark.parametrize(
    "mode", [torch.no_grad, torch.inference_mode], ids=["no_grad", "inference"]
)
def test_aliases(name, mode):
    fn, *args = ALIASES[name]
    check(fn, *args, mode=mode)


def graph_of(build):
    """A GraphModule of one input, with what `build(graph, x)` returns as its result."""
    graph = torch.fx.Graph()
    graph.output(build(graph, graph.placeholder("x")))
    return torch.fx.GraphModule(torch.nn.Module(), graph)


def record_module(gm, *args):
    with torch.no_grad():
        recording = _C.record(_C.TorchGraph.from_fx(gm), list(args))
    recording.verify()
    return recording


def test_a_fresh_constant_may_be_written_by_the_caller():
    gm = graph_of(lambda g, x: (x, g.call_function(torch.tensor, ([1.0, 2.0],))))
    again = aten_graph_to_fx(record_module(gm, x23))
    again(x23)[1].add_(1)
    assert torch.equal(again(x23)[1], torch.tensor([1.0, 2.0]))


def test_setitem():
    def build(g, x):
        g.call_function(operator.setitem, (x, (slice(None), slice(1, None, 2)), 5.0))
        return g.call_function(torch.sin, (x,))

    gm = graph_of(build)
    recording = record_module(gm, x45)
    mine, theirs = x45.clone(), x45.clone()
    assert torch.equal(aten_graph_to_fx(recording)(mine), gm(theirs))
    assert torch.equal(mine, theirs)


def test_a_graph_that_leaves_another_grad_mode():
    gm = graph_of(lambda g, x: (g.call_function(torch._C._set_grad_enabled, (True,)), x)[1])
    with pytest.raises(_C.Unsupported, match="grad mode"):
        record_module(gm, x23)
    assert torch.is_grad_enabled()


def test_the_same_tensor_as_two_inputs():
    recording = record(lambda x, y: (x + y, y), x23, x23)
    got = aten_graph_to_fx(recording)(x23, x23)
    assert torch.equal(got[0], x23 + x23) and got[1] is x23
    with pytest.raises(_C.Unsupported, match="shares memory"):
        record(lambda x, y: x.add_(y), x23, x23)


def test_autocast():
    def fn(x):
        return F.linear(x, x) + F.linear(x, x)

    with torch.autocast("cpu", torch.bfloat16):
        recording = record(fn, x23)
        got, wanted = aten_graph_to_fx(recording)(x23), fn(x23)
    assert got.dtype == wanted.dtype == torch.bfloat16 and torch.equal(got, wanted)


def test_inputs_that_require_gradients():
    weight = torch.nn.Parameter(torch.randn(4, 3))
    check(lambda x, w: (F.linear(x, w), w.t()), x23, weight.detach().requires_grad_())
    recording = record(lambda x, w: F.linear(x, w), x23, weight, mode=torch.enable_grad)
    assert "tangent %tangents_1: f32[2, 4]" in recording.text()
    assert recording.text().count("gradient") == 2


def test_inputs_with_offset_and_strides():
    base = torch.randn(6, 7)
    view = base[1:4, ::2]
    recording = record(lambda x: (x + 1, x[1]), view)
    got = aten_graph_to_fx(recording)(view)
    assert torch.equal(got[0], view + 1) and torch.equal(got[1], view[1])
    assert got[1].data_ptr() == view[1].data_ptr()


def test_inference_tensors():
    with torch.inference_mode():
        x = torch.randn(2, 3)
    assert targets(record(lambda x: x.sin() + 1, x)) == ["aten.sin.default", "aten.add.Tensor"]
    assert targets(record(lambda x: F.linear(x, x), x, mode=torch.inference_mode))
    assert record(lambda x: x.add_(1), x, mode=torch.inference_mode).mutations()
    with pytest.raises(_C.Unsupported, match="inference tensor"):
        record(lambda x: x.add_(1), x)


def test_parameters_are_attributes_and_read_anew():
    module = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU()).eval()
    graph = _C.TorchGraph.from_fx(torch.fx.symbolic_trace(module))
    with torch.no_grad():
        recording = _C.record(graph, [x23])
        assert torch.equal(aten_graph_to_fx(recording)(x23), module(x23))
        module[0].weight = torch.nn.Parameter(torch.randn(4, 3))
        assert torch.equal(graph.replay([x23]), module(x23))
        assert torch.equal(aten_graph_to_fx(_C.record(graph, [x23]))(x23), module(x23))


def test_what_cannot_be_recorded():
    def reason(fn, *args, match):
        with pytest.raises(_C.Unsupported, match=match):
            record(fn, *args)

    reason(lambda x: x.nonzero(), x23, match="data-dependent")
    reason(lambda x: x[x > 0], x23, match="data-dependent")
    reason(lambda x: x.sum().item(), x23, match="data-dependent")
    reason(lambda x: torch.unique(x), x23, match="data-dependent")
    reason(lambda x: x.tolist(), x23, match="memory")
    reason(lambda x: x.numpy(), x23, match="memory")
    reason(lambda x: x.data_ptr(), x23, match="memory")
    reason(lambda x: x + 1, x23.to_sparse(), match="layout")
    base = torch.randn(4)
    reason(lambda x, y: x.add_(y), base[:3], base[1:], match="shares memory")


def test_data_of_fakes_is_out_of_reach():
    seen = []

    def peek(x):
        for access in (
            lambda: x.data_ptr(),
            lambda: x.numpy(),
            lambda: x.untyped_storage().data_ptr(),
        ):
            with pytest.raises(RuntimeError):
                access()
            seen.append(1)
        return x + 1

    gm = graph_of(lambda g, x: g.call_function(peek, (g.call_function(torch.sin, (x,)),)))
    record_module(gm, x23)
    assert len(seen) == 3


def test_errors_of_the_user_pass_through():
    with pytest.raises(RuntimeError, match="size|shape|broadcast"):
        record(lambda x, y: x + y, x23, torch.randn(4, 5))
    with pytest.raises(TypeError):
        record(lambda x: torch.sin(x, 1, 2), x23)


def test_the_thread_is_left_as_found():
    def state():
        return (
            torch.is_grad_enabled(),
            torch.is_inference_mode_enabled(),
            torch.is_autocast_cache_enabled(),
            _get_current_dispatch_mode_stack(),
            torch._C._dispatch_tls_is_dispatch_key_included(torch._C.DispatchKey.Functionalize),
            torch._C._dispatch_tls_is_dispatch_key_included(torch._C.DispatchKey.Python),
        )

    before = state()
    record(lambda x: x + 1, x23)
    assert state() == before
    for bad in (lambda x: x.nonzero(), lambda x: x + torch.ones(7), lambda x: x.no_such_method()):
        with pytest.raises((RuntimeError, AttributeError)):
            record(bad, x23)
        assert state() == before
    assert torch.equal(x23 + 1, x23.add(1))


def test_the_mode_can_be_seen_from_python():
    seen = []

    def look(x):
        seen.extend(type(m).__name__ for m in _get_current_dispatch_mode_stack())
        return x + 1

    record_module(graph_of(lambda g, x: g.call_function(look, (x,))), x23)
    assert seen == ["RecordingMode"]


def test_a_tensor_from_elsewhere_ends_the_recording():
    elsewhere = torch.randn(2, 3)
    gm = graph_of(lambda g, x: g.call_function(lambda t: elsewhere, (x,)))
    with pytest.raises(_C.Unsupported, match="did not make"):
        record_module(gm, x23)


@torch.library.custom_op("oxyfuel_test::triple", mutates_args=())
def triple(x: torch.Tensor) -> torch.Tensor:
    return x * 3


@triple.register_fake
def _(x):
    return torch.empty_like(x)


@torch.library.custom_op("oxyfuel_test::bump", mutates_args=("x",))
def bump(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x += 1
    return x + y


@bump.register_fake
def _(x, y):
    return torch.empty_like(x)


@torch.library.custom_op("oxyfuel_test::no_fake", mutates_args=())
def no_fake(x: torch.Tensor) -> torch.Tensor:
    return x * 3


@pytest.mark.parametrize(
    "mode", [torch.no_grad, torch.inference_mode], ids=["no_grad", "inference"]
)
def test_custom_op(mode):
    recording = record(lambda x: torch.ops.oxyfuel_test.triple(x + 1) * 2, x23, mode=mode)
    assert targets(recording)[1] == "oxyfuel_test.triple.default"
    assert torch.equal(aten_graph_to_fx(recording)(x23), (x23 + 1) * 3 * 2)


def test_custom_op_that_writes():
    recording = record(lambda x, y: torch.ops.oxyfuel_test.bump(x, y) + x, x23, x23 + 1)
    text = recording.text(stacks=False)
    assert "oxyfuel_test.bump.default[-1, -1](%x, %y)" in text
    assert [m[0] for m in recording.mutations()] == [0]
    # The support for it ends with the recording.
    assert not torch._C._dispatch_has_kernel_for_dispatch_key(
        "oxyfuel_test::bump", torch._C.DispatchKey.Functionalize
    )


def test_custom_op_without_fake():
    with pytest.raises(Exception, match="fake|no_fake"):
        record(lambda x: torch.ops.oxyfuel_test.no_fake(x), x23)


def test_round_trip_to_fx():
    module = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.GELU())
    gm = torch.fx.symbolic_trace(module)
    graph = _C.TorchGraph.from_fx(gm)
    again = torch_graph_to_fx(graph)
    assert torch.equal(again(x23), gm(x23))
    assert [n.op for n in again.graph.nodes] == [n.op for n in gm.graph.nodes]
    assert _C.TorchGraph.from_fx(again).text(stacks=False) == graph.text(stacks=False)


def test_stack_of_the_user():
    captured = []

    def backend(gm, example_inputs):
        captured.append(_C.record(_C.TorchGraph.from_fx(gm), example_inputs))
        return gm

    def fn(x):
        return torch.sin(x) + 1

    torch._dynamo.reset()
    with torch.no_grad():
        torch.compile(fn, backend=backend)(x23)
    assert (
        "test_record.py" in captured[0].text()
        and "in fn: return torch.sin(x) + 1" in captured[0].text()
    )


def test_rules_and_meta_kernels_agree():
    for fn, *args in PURE.values():
        by_rule, by_meta = (
            record(fn, *args, shape_rules=rules).text(stacks=False) for rules in (True, False)
        )
        assert by_rule == by_meta
