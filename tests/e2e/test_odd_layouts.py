"""Strides of results where those of the operands are odd: gaps, any order of dimensions, any stride
where a size is 1."""

from __future__ import annotations

import random
import sys
import warnings
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))

from op_cases import all_cases

import oxyfuel
from oxyfuel import _C

GROUPS = 6


def laid_out(t: torch.Tensor, sizes: dict[int, int], rng: random.Random) -> torch.Tensor:
    shape = [sizes.get(s, s) for s in t.shape]
    order = list(range(len(shape)))
    if rng.random() < 0.5:
        rng.shuffle(order)
    stride, step = [0] * len(shape), rng.choice((1, 1, 1, 2))
    for d in reversed(order):
        if rng.random() < 0.05:
            continue
        if shape[d] == 1 and rng.random() < 0.5:
            stride[d] = rng.choice((1, 2, 3, 7, 68, 100))
            continue
        stride[d] = step
        step *= max(shape[d], 1) + (3 if rng.random() < 0.1 else 0)
    elements = 1 + sum(max(s - 1, 0) * t for s, t in zip(shape, stride))
    flat = t.reshape(-1) if t.numel() else torch.zeros(1, dtype=t.dtype)
    base = flat.repeat(elements // flat.numel() + 1)[:elements].clone()
    return base.as_strided(shape, stride)


def each(value, visit):
    if isinstance(value, (list, tuple)):
        return type(value)(each(v, visit) for v in value)
    return visit(value) if isinstance(value, torch.Tensor) else value


def tells_of_sizes(arg) -> bool:
    """Whether an argument of a gradient goes with the sizes of the others: indices, sizes. Eager
    takes it for granted that it does, and would write anywhere."""
    if isinstance(arg, (list, tuple)):
        return all(isinstance(a, int) and not isinstance(a, bool) for a in arg)
    return isinstance(arg, torch.Tensor) and arg.dtype == torch.int64


def recorded(op, name: str, args) -> list[tuple]:
    """Sizes and strides that the recording predicts for the call of the op; nothing where it makes
    other calls of it."""
    tensors, graph = [], torch.fx.Graph()

    def node(t):
        tensors.append(t)
        return graph.placeholder(f"x{len(tensors)}")

    graph.output(graph.call_function(op, each(tuple(args), node)))
    module = torch.fx.GraphModule(torch.nn.Module(), graph)
    recording = _C.record(_C.TorchGraph.from_fx(module), tensors)
    calls = [n for n in recording.describe(lambda *a: a) if n.target == name]
    types = [recording.type_of(value) for value in calls[-1].outputs] if calls else []
    return [(tuple(t[1]), tuple(t[2])) for t in types if t]


# Whose strides are others than eager's today, where dimensions of one element have unusual strides
# or an operand is expanded.
OTHER_STRIDES = {
    "aten.soft_margin_loss_backward.default",
    "aten.huber_loss.default",
    "aten.ldexp.Tensor",
    "aten.native_batch_norm_backward.default",
}


@pytest.mark.parametrize("group", range(GROUPS))
def test_strides_as_in_eager(group):
    rng, wrong, compared = random.Random(group), [], 0
    for name, args in list(all_cases())[group::GROUPS]:
        namespace, op, overload = name.split(".")
        op = getattr(getattr(getattr(torch.ops, namespace), op), overload)
        if any(w in name for w in ("rand", "bernoulli", "empty")):
            continue
        if name in OTHER_STRIDES or ("_backward" in name and any(map(tells_of_sizes, args))):
            continue  # tests/e2e/test_gradient_rules.py has them
        found: set[int] = set()
        each(tuple(args), lambda t: found.update(t.shape))
        sizes = {s: 1 if rng.random() < 0.35 else s for s in found}
        given = each(tuple(args), lambda t: laid_out(t, sizes, rng))
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                result = op(*given)
            except (RuntimeError, IndexError, ValueError):
                continue  # of sizes that do not fit
            try:
                ours = recorded(op, name, given)
            except (RuntimeError, _C.Unsupported):
                continue
        results = [result] if isinstance(result, torch.Tensor) else list(result)
        eager = [(tuple(t.shape), t.stride()) for t in results if isinstance(t, torch.Tensor)]
        if len(ours) != len(eager):
            continue
        compared += 1
        if ours != eager:
            layouts = []
            each(given, lambda t: layouts.append((tuple(t.shape), t.stride())))
            wrong.append(f"{name} of {layouts}: {ours}, in eager {eager}")
    assert not wrong, "\n".join(wrong)
    assert compared > 300


IN_PLACE = {
    "sub_": lambda x, y: x.sub_(y),
    "mul_ number": lambda x, y: x.mul_(2),
    "clamp_min_": lambda x, y: x.clamp_min_(0),
    "neg_": lambda x, y: x.neg_(),
    "copy_": lambda x, y: x.copy_(y),
    "fill_": lambda x, y: x.fill_(1.0),
    "masked_fill_": lambda x, y: x.masked_fill_(y > 0, 1.0),
    "cumsum_": lambda x, y: x.cumsum_(-1),
    "index_put_": lambda x, y: x.index_put_((torch.tensor([0]),), torch.tensor(1.0)),
    "add out=": lambda x, y: torch.add(x, y, out=x),
    "a row": lambda x, y: x[0].add_(1),
    "transposed": lambda x, y: x.t().mul_(y.t()),
    "all of it": lambda x, y: x[:].mul_(y),
    "a slice": lambda x, y: x[:, :2].mul_(y[:, :2]),
}


UNARY = (
    "isinf isnan isfinite isposinf isneginf isreal signbit sign abs neg square sqrt exp acos tan "
    "angle sigmoid tanh erf i0 sinc logit reciprocal floor trunc round relu nan_to_num clone "
    "positive logical_not zeros_like ones_like bitwise_not digamma rad2deg diag_embed"
)
BINARY = (
    "add sub mul div true_divide floor_divide remainder fmod pow atan2 hypot maximum minimum fmin "
    "eq lt logical_and logical_or xlogy copysign heaviside logaddexp nextafter bitwise_xor "
    "bitwise_left_shift float_power gcd"
)


@pytest.mark.parametrize("name", UNARY.split() + BINARY.split())
def test_strides_of_converted_operands(name):
    """Operands of other dtypes than the op computes in: eager converts them before it looks at
    their strides."""
    op, rng = getattr(torch, name), random.Random(name)
    count = 1 if name in UNARY.split() else 2
    compiled = oxyfuel.compile(lambda *tensors: op(*tensors))
    with torch.no_grad():
        for _ in range(25):
            shape = [rng.choice((0, 1, 1, 2, 3)) for _ in range(rng.randint(1, 4))]
            dtypes = rng.choices((torch.int32, torch.bool, torch.float32, torch.bfloat16), k=count)
            tensors = [
                laid_out(torch.ones([rng.choice((s, s, s, 1)) for s in shape], dtype=d), {}, rng)
                for d in dtypes
            ]
            try:
                expected = op(*tensors)
            except RuntimeError:
                continue
            found = compiled(*tensors)
            oxyfuel.reset()
            what = [(t.dtype, tuple(t.shape), t.stride()) for t in tensors]
            assert found.dtype == expected.dtype, what
            assert found.shape == expected.shape, what
            assert found.stride() == expected.stride(), what


@pytest.mark.parametrize("name", IN_PLACE)
def test_a_write_keeps_strides(name, monkeypatch):
    monkeypatch.setenv("OXYFUEL_STRICT", "1")
    rng = random.Random(name)

    def function(x, y):
        own = x.clone()
        IN_PLACE[name](own, y)
        seen = own * 1.0
        IN_PLACE[name](x, y)
        return own, seen, x.t(), own + x

    for _ in range(25):
        shape = rng.choice([(1, 31), (3, 1), (1, 1), (4, 5), (5, 4)])
        x, y = (laid_out(torch.randn(shape), {}, rng) for _ in range(2))
        if 0 in x.stride():
            continue
        oxyfuel.reset()
        expected, ours = (torch.empty_strided(x.shape, x.stride()).copy_(x) for _ in range(2))
        with torch.no_grad():
            theirs, mine = function(expected, y), oxyfuel.compile(function)(ours, y)
        for a, b in zip((*mine, ours), (*theirs, expected), strict=True):
            assert a.stride() == b.stride()
            assert torch.equal(a, b)


UPSAMPLED = {3: "nearest nearest-exact linear", 4: "nearest nearest-exact bilinear bicubic"}
UPSAMPLED[5] = "nearest nearest-exact trilinear"


@pytest.mark.parametrize(
    "rank, mode", [(rank, mode) for rank in UPSAMPLED for mode in UPSAMPLED[rank].split()]
)
def test_upsampled_images(rank, mode):
    rng = random.Random(f"{rank} {mode}")
    with torch.no_grad():
        for _ in range(12):
            places = [rng.choice((1, 2, 3, 7)) for _ in range(rank - 2)]
            shape = [rng.choice((1, 2)), rng.choice((1, 2, 5)), *places]
            x = torch.randn(shape)
            if rng.random() < 0.5:
                x = laid_out(x, {}, rng)
            elif rank > 3:
                formats = {4: torch.channels_last, 5: torch.channels_last_3d}
                x = x.contiguous(memory_format=formats[rank])
            size = [rng.choice((1, 2, 5, 8)) for _ in places]
            expected = torch.nn.functional.interpolate(x, size, mode=mode)
            grown = oxyfuel.compile(lambda x: torch.nn.functional.interpolate(x, size, mode=mode))
            found = grown(x)
            oxyfuel.reset()
            assert found.stride() == expected.stride(), (x.shape, x.stride(), size)
            torch.testing.assert_close(found, expected)


# ---- ops that torch's own rules answer for, which are Python code

ANSWERED_BY_TORCH = {
    "randn_like": torch.randn_like,
    "rand_like": torch.rand_like,
    "randint_like": lambda x: torch.randint_like(x, 9),
    "abs": lambda x: torch.complex(x, x).abs(),
    "conjugate": lambda x: torch.complex(x, x).conj_physical(),
    "angle": lambda x: torch.complex(x, x).angle(),
    "roots": lambda x: torch.complex(x, x).sqrt(),
    "product": lambda x: torch.complex(x, x) * 2,
    "lcm": lambda x: torch.lcm(x.long(), x.long()),
    "gammainc": lambda x: torch.special.gammainc(x.abs() + 1, x.abs() + 1),
    "sort": lambda x: x.sort(-1)[0],
    "norm": lambda x: torch.linalg.vector_norm(x, dim=-1, keepdim=True),
    "bernoulli": lambda x: x.sigmoid().bernoulli(),
    "dropout": torch.nn.functional.dropout,
}


def with_sizes_1():
    b = torch.randn(4, 6, 8)
    yield from (b[:, :1], b[..., :1], b[:1, :, :4], b[:1, :1, :1], b[:1].transpose(1, 2))
    yield torch.randn(1, 6).chunk(2, 1)[0]
    for sizes, strides in (((1, 3), (7, 1)), ((5, 1), (1, 7)), ((1,), (7,))):
        yield b.as_strided(sizes, strides)


@pytest.mark.parametrize("name", ANSWERED_BY_TORCH)
def test_sizes_1_of_ops_that_torch_answers_for(name, monkeypatch):
    monkeypatch.setenv("OXYFUEL_STRICT", "1")
    op = ANSWERED_BY_TORCH[name]
    for x in with_sizes_1():
        for function in (op, lambda x: op(x * 2), lambda x: op(x) * 2):
            oxyfuel.reset()
            torch.manual_seed(0)
            expected = function(x)
            torch.manual_seed(0)
            found = oxyfuel.compile(function)(x)
            assert found.stride() == expected.stride(), (tuple(x.shape), x.stride())
            torch.testing.assert_close(found, expected, equal_nan=True)


@pytest.mark.parametrize("dynamic", (False, True))
@pytest.mark.parametrize("gradients", (False, True))
def test_max_pool1d_with_gradients_is_a_pool_of_images(gradients, dynamic):
    def fn(x):
        return torch.nn.functional.max_pool1d(x, 3, 2, 1)

    x = torch.randn(3, 4, 6, 5).to(memory_format=torch.channels_last).flatten(2)
    x.requires_grad_(gradients)
    found, wanted = oxyfuel.compile(fn, dynamic=dynamic)(x), fn(x)
    torch.testing.assert_close(found, wanted)
    assert found.stride() == wanted.stride()


@pytest.mark.parametrize("training", [False, True])
def test_results_of_rrelu_are_row_major(training):
    rrelu = torch.nn.functional.rrelu

    def call(x):
        return rrelu(x, training=training), rrelu(x * 1, training=training, inplace=True)

    for x in (torch.randn(3, 4).t(), torch.randn(2, 3, 4).permute(1, 2, 0), torch.randn(3, 4)):
        torch.manual_seed(0)
        expected = call(x)
        torch.manual_seed(0)
        for got, wanted in zip(oxyfuel.compile(call)(x), expected, strict=True):
            assert torch.equal(got, wanted) and got.stride() == wanted.stride()


@pytest.mark.parametrize("name", ["fftn", "ifftn", "rfftn", "irfftn", "hfftn"])
def test_transforms_of_many_dimensions(name):
    rng, transform = random.Random(name), getattr(torch.fft, name)
    for _ in range(12):
        rank = rng.randint(3, 6)
        order, dims = rng.sample(range(rank), rank), rng.sample(range(rank), rng.randint(1, rank))
        dtype = torch.float32 if name == "rfftn" else torch.complex64
        x = torch.randn([rng.randint(2, 4) for _ in range(rank)], dtype=dtype).permute(order)

        def call(x, dims=dims):
            return transform(x, dim=dims)

        for dynamic in (False, True):
            found = oxyfuel.compile(call, dynamic=dynamic)(x)
            assert found.stride() == call(x).stride(), (x.stride(), dims)
            torch.testing.assert_close(found, call(x))
        oxyfuel.reset()
