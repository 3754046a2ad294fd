"""What Oxyfuel relies on of torch beyond its documented interface, against the torch at hand: a
difference is named here (docs/torch_versions.md). What a compiler can check is in
src/torch_bridge/compat.h."""

from __future__ import annotations

import inspect
import pkgutil
import re
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

import oxyfuel
from oxyfuel import _C, autograd_function

ROOT = Path(__file__).parents[2]

# -------------------------------------------------------------------------- layouts of CPU kernels


def given(function, **options):
    """The function with these options."""
    return lambda *args: function(*args, **options)


def forms(x):
    """A tensor of these sizes in several layouts: row-major, channels-last, with its last two
    dimensions exchanged, with gaps, and an empty one."""
    out = [
        x,
        x.transpose(-1, -2).contiguous().transpose(-1, -2),
        x.repeat_interleave(2, -1)[..., ::2],
    ]
    if x.dim() in (4, 5):
        out.append(
            x.to(memory_format=torch.channels_last if x.dim() == 4 else torch.channels_last_3d)
        )
    return [*out, x[:0]]


def images(channels=4, size=6):
    return forms(torch.rand(2, channels, size, size))


def volumes():
    return forms(torch.rand(2, 4, 4, 4, 4))


def convolutions():
    for x in images()[:-1]:
        for kernel in forms(torch.rand(8, 4, 3, 3))[:-1]:
            yield F.conv2d, x, kernel
    for x in forms(torch.rand(2, 4, 9))[:-1]:
        for kernel in forms(torch.rand(8, 4, 3))[:-1]:
            yield F.conv1d, x, kernel
    for x in volumes()[:-1]:
        yield F.conv3d, x, torch.rand(2, 4, 3, 3, 3)


def unpooled():
    for x in images()[:-1]:
        yield (lambda y, i: F.max_unpool2d(y, i, 2)), *F.max_pool2d(x, 2, return_indices=True)


def drops(x):
    mask = torch.rand_like(x) < 0.5
    return torch.ops.aten.native_dropout_backward.default(x, mask, 2.0)


def each(function, tensors):
    """Calls of a function of one tensor."""
    return [(function, t) for t in tensors]


def pads(mode, rank):
    return each(
        given(F.pad, pad=(1,) * (2 * rank), mode=mode),
        (images, volumes)[rank - 2]()[:-1],
    )


def samples(x):
    return F.grid_sample(x, torch.zeros(2, 3, 3, 2), align_corners=False)


def bce(x, y):
    return F.binary_cross_entropy(x.sigmoid(), y.sigmoid(), reduction="none")


def bce_with_logits(x, y):
    return F.binary_cross_entropy_with_logits(x, y, reduction="none")


def convolved(x, kernel):
    grad = torch.ones(len(x), 8, *((4, 4) if x.dim() == 4 else (7,)))
    ones, zeros = [1] * (x.dim() - 2), [0] * (x.dim() - 2)
    return torch.ops.aten.convolution_backward.default(
        grad, x, kernel, None, ones, zeros, ones, False, zeros, 1, [True, True, False]
    )[:2]


def bags(mode):
    return lambda x: torch.ops.aten._embedding_bag.default(
        x, torch.arange(4), torch.arange(2) * 2, mode=mode
    )


def trained_batch_norm(x):
    return F.batch_norm(x, torch.zeros(4), torch.ones(4), training=True)


# By the op that a recording has: calls of it.
LAYOUTS = {
    "aten._linalg_svd.default": each(torch.linalg.svd, forms(torch.rand(3, 4, 5))),
    "aten.linalg_eig.default": each(torch.linalg.eig, forms(torch.rand(3, 4, 4))),
    "aten.addmv.default": [
        (given(torch.addmv, beta=beta), x, torch.rand(n, k), torch.rand(k))
        for n, k in ((3, 0), (0, 3), (3, 4))
        for x in (torch.tensor(2.0), torch.rand(1), torch.rand(n))
        for beta in (0, 2)
    ],
    "aten.addr.default": [
        (given(torch.addr, beta=beta), x, torch.rand(8)[::2], torch.rand(5))
        for beta in (0, 2)
        for x in (
            torch.rand(4, 5),
            torch.rand(5, 4).t(),
            torch.rand(8, 10)[::2, ::2],
            torch.rand(5),
        )
    ],
    "aten.nonzero_static.default": each(lambda x: torch.nonzero_static(x, size=7), images()),
    "aten.normal.Tensor_Tensor": each(lambda x: torch.normal(x, x), images()),
    "aten.normal.Tensor_float": each(lambda x: torch.normal(x, 2.0), images()),
    "aten.normal.float_Tensor": each(lambda x: torch.normal(2.0, x), images()),
    "aten.pow.Scalar": each(lambda x: 2**x, [x.to(torch.complex64) for x in images()]),
    "aten.isin.Tensor_Tensor": each(lambda x: torch.isin(x, x), images()),
    "aten.isin.Tensor_Scalar": each(lambda x: torch.isin(x, 1.0), images()),
    "aten.convolution.default": list(convolutions()),
    "aten.any.dims": each(given(torch.any, dim=(1, 2)), images()),
    "aten.all.dims": each(given(torch.all, dim=(1, 2)), images()),
    **{
        f"aten.{f.__name__}.default": [
            (f, x.to(torch.complex64), y) for x in images()[:-1] for y in images()[:-1]
        ]
        for f in (torch.logical_and, torch.logical_or, torch.logical_xor)
    },
    "aten.roll.default": [
        (given(torch.roll, shifts=s, dims=d), x)
        for x in [*images(), *volumes()]
        for s, d in (((1,), (2,)), ((1, 2), (1, 3)), ((0,), (0,)), (1, None))
    ],
    "aten.rot90.default": [
        (given(torch.rot90, k=k, dims=(2, 3)), x) for x in images() for k in range(-1, 4)
    ],
    "aten.binary_cross_entropy.default": [
        (bce, x, y) for x in images()[:-1] for y in images()[:-1]
    ],
    "aten.binary_cross_entropy_with_logits.default": [
        (bce_with_logits, x, y) for x in images()[:-1] for y in images()[:-1]
    ],
    "aten.diag_embed.default": each(torch.diag_embed, images()),
    "aten.col2im.default": each(
        given(F.fold, output_size=(4, 5), kernel_size=2),
        [*forms(torch.rand(2, 8, 12))[:-1], *forms(torch.rand(8, 12))[:-1]],
    ),
    "aten.grid_sampler_2d.default": each(samples, images()[:-1]),
    "aten.upsample_bilinear2d.default": each(
        given(F.interpolate, size=9, mode="bilinear"), images()[:-1]
    ),
    "aten.upsample_bicubic2d.default": each(
        given(F.interpolate, size=9, mode="bicubic"), images()[:-1]
    ),
    "aten.max_unpool2d.default": list(unpooled()),
    "aten.reflection_pad2d.default": pads("reflect", 2),
    "aten.reflection_pad3d.default": pads("reflect", 3),
    "aten.replication_pad2d.default": pads("replicate", 2),
    "aten.replication_pad3d.default": pads("replicate", 3),
    "aten.pixel_shuffle.default": each(given(F.pixel_shuffle, upscale_factor=2), images()),
    "aten.pixel_unshuffle.default": each(given(F.pixel_unshuffle, downscale_factor=2), images()),
    "aten.channel_shuffle.default": each(given(F.channel_shuffle, groups=2), images()[:-1]),
    "aten.resize_as.default": [
        (given(torch.ops.aten.resize_as.default, memory_format=form), x, y)
        for form in (None, torch.channels_last, torch.contiguous_format, torch.preserve_format)
        for x in images()
        for y in images()
    ],
    "aten._fft_r2c.default": [
        (given(torch.fft.rfftn, dim=d), x)
        for x in images()[:-1]
        for d in ((3,), (1, 3), (3, 1), (0, 2, 3))
    ],
    "aten._fft_c2c.default": [
        (given(torch.fft.fftn, dim=d), x.to(torch.complex64))
        for x in images()[:-1]
        for d in ((3,), (1, 3), (3, 1), (0, 2, 3), (0, 1, 2, 3))
    ],
    "aten._fft_c2r.default": [
        (given(torch.fft.irfftn, dim=d), x.to(torch.complex64))
        for x in images()[:-1]
        for d in ((3,), (1, 3), (3, 1), (0, 2, 3))
    ],
    "aten.native_group_norm.default": each(
        given(F.group_norm, num_groups=2), [*images()[:-1], *volumes()[:-1]]
    ),
    "aten.native_dropout_backward.default": each(drops, images()),
    "aten.convolution_backward.default": [
        (convolved, x[:n], kernel) for _, x, kernel in convolutions() if x.dim() < 5 for n in (2, 0)
    ],
    "aten._embedding_bag.default": [(bags(mode), torch.rand(4, 5)) for mode in range(3)],
    "aten._native_batch_norm_legit_functional.default": each(trained_batch_norm, images()),
}


def tensors_in(result):
    return [result] if isinstance(result, torch.Tensor) else list(result)


def layout_of(t):
    return t.dtype, tuple(t.shape), t.stride(), t.storage_offset()


def test_every_corrected_layout_is_tested():
    assert set(_C.corrected_ops()) <= set(LAYOUTS)


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
@pytest.mark.parametrize("op", LAYOUTS)
@torch.no_grad()
def test_results_are_laid_out_as_by_torchs_kernel(op):
    recorded = False
    for function, *args in LAYOUTS[op]:
        graph = torch.fx.Graph()
        inputs = [graph.placeholder(f"x{i}") for i in range(len(args))]
        graph.output(graph.call_function(function, tuple(inputs)))
        module = torch.fx.GraphModule({}, graph)
        oxyfuel.reset()
        run = oxyfuel.compile_fx(module, options={"strict": True, "kernels": False})
        expected = [layout_of(t) for t in tensors_in(function(*args))]
        found = [layout_of(t) for t in tensors_in(run(*args))]
        assert found == expected, (op, [layout_of(a) for a in args])
        if oxyfuel.stats()["unsupported"] == 0:
            recorded |= op in _C.record(_C.TorchGraph.from_fx(module), list(args)).text()
    assert recorded, f"{op}: no call has recorded it"


# ------------------------------------------------------------------------------------------ memory


@pytest.mark.parametrize("rank", range(1, 6))
def test_guards_compare_the_memory_of_tensors(rank):
    """Where a tensor's members are not found guards ask torch instead, which takes longer."""
    assert _C.keeps_image(torch.rand((2,) * rank))


# ------------------------------------------------------------------------------- torch's functions

# What capture looks for by name.
LOOKED_FOR = {
    "torch._compile": "_disable_dynamo",
    "torch._dynamo.eval_frame": "_stance",
    "torch._dynamo.trace_rules": "_allowed_callable_ids _disallowed_callable_ids",
    "torch._dynamo.variables.functions": "PolyfilledFunctionVariable._get_polyfill_handlers",
    "torch._C._autograd": "_top_saved_tensors_default_hooks"
    " _saved_tensors_hooks_get_disabled_error_message",
    "torch._C._functorch": "_unwrap_for_grad _add_batch_dim _remove_batch_dim"
    " _vmap_increment_nesting _vmap_decrement_nesting _jvp_increment_nesting"
    " _jvp_decrement_nesting get_unwrapped pop_dynamic_layer_stack_and_undo_to_depth",
    "torch._ops": "HigherOrderOperator",
    "torch.amp.autocast_mode": "_enter_autocast _exit_autocast",
    "torch.autograd": "Function.setup_context",
    "torch.autograd.function": "FunctionMeta",
    "torch.fx._symbolic_trace": "is_fx_symbolic_tracing",
    "torch.fx.experimental.sym_node": "SymNode",
    "torch.nn.modules._functions": "BackwardHookFunction",
    "torch.optim": "LBFGS.step SparseAdam.step",
    "torch.utils._python_dispatch": "TorchDispatchMode",
}


def special_calls(macro):
    """(module, name) of torch's and our functions in the rows of capture's special calls."""
    table = (ROOT / "src/python/capture/special_calls.def").read_text()
    row = macro + r'\("((?:torch|oxyfuel)[\w.]*)",\s*((?:"[^"]+"\s*)+)'
    for module, names in re.findall(row, table):
        yield from ((module, name) for name in names.replace('"', "").split() if name != "*")


def names_in_tables():
    """The functions of torch in capture's tables, in full."""
    folded = (ROOT / "src/python/torch_state.def").read_text().rpartition("#ifdef OXY_FOLDED")[2]
    yield from re.findall(r'"(torch\.[\w.]+)"', folded)
    yield from (f"{module}.{name}" for module, name in special_calls("OXY_SPECIAL"))
    for module, names in LOOKED_FOR.items():
        yield from (f"{module}.{name}" for name in names.split())
    for source in (ROOT / "src/python").rglob("*.cpp"):
        for module, name in re.findall(r'member_of<"(torch[\w.]*)", "(\w+)">', source.read_text()):
            yield f"{module}.{name}"


def is_there(name):
    try:
        pkgutil.resolve_name(name)
    except (AttributeError, ImportError):
        return False
    return True


@pytest.mark.parametrize("name", sorted(set(names_in_tables())))
def test_functions_that_capture_knows_are_there(name):
    assert is_there(name)


@pytest.mark.parametrize("place", special_calls("OXY_SPECIAL_BY_NAME"), ids=".".join)
def test_functions_were_written_where_capture_looks(place):
    module, name = place
    function = inspect.unwrap(pkgutil.resolve_name(f"{module}:{name}"))
    function = getattr(function, "__func__", function)
    own_name = function.__code__.co_name
    assert (function.__globals__["__name__"], function.__qualname__) == place
    assert name.rpartition(".")[2] == own_name


# Of functions whose arguments capture takes apart by position: their parameters in order.
PARAMETERS = {
    "torch.autograd.grad": """
        outputs inputs grad_outputs retain_graph create_graph only_inputs allow_unused
        is_grads_batched materialize_grads""",
    "torch.autograd.backward": """
        tensors grad_tensors retain_graph create_graph grad_variables inputs""",
    "torch.Tensor.backward": "self gradient retain_graph create_graph inputs",
    "torch.optim.optimizer._get_value": "x",
    "torch.optim.optimizer._stack_if_compiling": "x",
}


@pytest.mark.parametrize("name", PARAMETERS)
def test_parameters_are_as_capture_knows_them(name):
    assert [*inspect.signature(pkgutil.resolve_name(name)).parameters] == PARAMETERS[name].split()


def test_contexts_of_autograd_functions_have_what_torchs_have():
    """oxyfuel.autograd_function.Context stands for the context of a call without gradients."""
    theirs = {name for name in vars(torch.autograd.function.FunctionCtx) if name[0] != "_"}
    # The first does nothing, the second is of a real backward: who asks for it breaks.
    left = {"mark_shared_storage", "input_grad_buffers"}
    assert theirs <= {*dir(autograd_function.Context)} | left


def test_a_module_is_one_graph():
    """What nn.Module asks before it calls forward is known."""
    module = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout()).eval()
    with torch.no_grad():
        oxyfuel.compile(module, fullgraph=True)(torch.rand(2, 4))


# ------------------------------------------------------------------------------------------- errors


@torch.library.custom_op("oxyfuel_tests::without_a_fake", mutates_args=())
def without_a_fake(x: torch.Tensor) -> torch.Tensor:
    return x + 1


def strided_view_of_a_view(x):
    y = x.clone()
    y[1:].as_strided((2, 2), (4, 1), 4).add_(1)
    return y


# Calls that torch cannot make without data, though eager makes them.
NEED_DATA = {
    "a custom op without a rule for shapes": lambda x: without_a_fake(x),
    "a write to a strided view of a view": strided_view_of_a_view,
    "a dtype that torch finds no room for in place": lambda x: x.clone().lerp_(x, 0.5),
}


@pytest.mark.parametrize("function", NEED_DATA.values(), ids=NEED_DATA)
@torch.no_grad()
def test_what_torch_cannot_do_without_data_is_left_to_eager(function):
    x = torch.rand(4, 4)
    oxyfuel.reset()
    captured = oxyfuel.compile(lambda x: function(x.sin()).cos(), options={"strict": True})
    for _ in range(2):
        torch.testing.assert_close(captured(x), function(x.sin()).cos())
    assert oxyfuel.stats()["fallbacks"] == 0
    graph = oxyfuel.compile_fx(
        torch.fx.symbolic_trace(lambda x: function(x)), options={"strict": True}
    )
    torch.testing.assert_close(graph(x), function(x))
    assert oxyfuel.stats()["fallbacks"] == 0


# The user's mistakes: eager raises too.
MISTAKES = {
    "sizes": lambda x: x @ x,
    "a view": lambda x: x.T.view(-1),
    "a write of another shape": lambda x: x[0].add_(x),
    "a dimension": lambda x: x.softmax(7),
    "a number beyond 64 bits": lambda x: x.narrow(0, 2**70, 1),
    "an op that is not for this dtype": lambda x: torch.bitwise_and(x, x),
    "its own check": lambda x: torch._check(x.dim() == 7) or x,
}


@pytest.mark.parametrize("fullgraph", [False, True])
@pytest.mark.parametrize("function", MISTAKES.values(), ids=MISTAKES)
@torch.no_grad()
def test_mistakes_get_eagers_error(function, fullgraph):
    x = torch.rand(3, 4)
    with pytest.raises(Exception) as expected:
        function(x)
    captured = oxyfuel.compile(function, fullgraph=fullgraph, options={"strict": True})
    for _ in range(2):
        with pytest.raises(expected.type) as found:
            captured(x)
        assert str(found.value) == str(expected.value)
