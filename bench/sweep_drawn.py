"""The sweep's drawn programs: drawn/KIND/SEED/DTYPE.

A seed draws sizes, layouts and ops of a kind; the same name is the same program.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F

from sweep_enlarge import DTYPES, Call

SEEDS = 60  # of a kind and dtype
FLOATS = ("f32", "bf16", "f16", "f64")
INTEGERS = ("i64", "i32", "u8")
Tensor = torch.Tensor
Program = tuple[Callable[..., Any], list[Tensor], str]


def values(rng: random.Random, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Of a tensor, by the torch generator that the seed has set."""
    if dtype == torch.bool:
        return torch.rand(shape) < 0.5
    if not dtype.is_floating_point:
        return torch.randint(1, 100, shape, dtype=dtype)
    return torch.randn(shape).to(dtype)


def laid_out(rng: random.Random, t: Tensor) -> Tensor:
    """The tensor in a drawn layout; contiguous half of the time."""
    kind = rng.choice(("contiguous", "contiguous", "contiguous", "transposed", "sliced", "stepped"))
    if t.dim() < 2 or kind == "contiguous":
        return t
    if kind == "transposed":
        return t.mT.contiguous().mT
    if kind == "sliced":
        room = t.new_zeros((*t.shape[:-1], t.shape[-1] + 24))
        return room[..., 8 : 8 + t.shape[-1]].copy_(t)
    room = t.new_zeros((2 * t.shape[0], *t.shape[1:]))
    return room[::2].copy_(t)


def matrix_shape(rng: random.Random) -> tuple[int, ...]:
    """Of 2 to 4 dimensions and 2^14 to 2^22 elements."""
    elements = 2.0 ** rng.uniform(14, 22)
    columns = rng.choice((7, 16, 50, 64, 100, 128, 256, 500, 768, 1000, 1024, 4096))
    rows = max(1, int(elements / columns))
    parts = rng.choice((1, 1, 2, 3))
    front = [rng.choice((2, 3, 8, 12)) for _ in range(parts - 1)]
    for n in front:
        rows = max(1, rows // n)
    return (*front, rows, columns)


# ---- elementwise, reductions, consumers ----

UNARY = {
    "relu": F.relu, "sigmoid": torch.sigmoid, "tanh": torch.tanh, "gelu": F.gelu, "silu": F.silu,
    "exp": lambda x: torch.exp(-x.abs()), "sqrt": lambda x: x.abs().sqrt(), "abs": torch.abs,
    "neg": torch.neg, "square": lambda x: x * x, "erf": torch.erf, "sin": torch.sin,
    "log1p": lambda x: x.abs().log1p(), "rsqrt": lambda x: (x * x + 1).rsqrt(),
    "clamp": lambda x: x.clamp(-1, 1), "round": torch.round, "hardswish": F.hardswish,
    "leaky_relu": F.leaky_relu, "elu": F.elu, "softplus": F.softplus, "mish": F.mish,
    "scale": lambda x: x * 0.125 + 1, "to_f32": lambda x: x.float() * 2,
}  # fmt: skip
BINARY = {
    "add": torch.add, "mul": torch.mul, "sub": torch.sub, "maximum": torch.maximum,
    "div": lambda x, y: x / (y.abs() + 1), "where": lambda x, y: torch.where(x > y, x, y * 2),
    "masked_fill": lambda x, y: x.masked_fill(y > 0, 0.0), "lerp": lambda x, y: x.lerp(y, 0.3),
    "hypot": lambda x, y: (x * x + y * y).sqrt(), "addcmul": lambda x, y: torch.addcmul(x, x, y),
    "atan2": torch.atan2, "fmod": lambda x, y: torch.fmod(x, y.abs() + 1),
    "logical": lambda x, y: ((x > 0) & (y < 0)).to(x.dtype) * x,
}  # fmt: skip
REDUCTION = {
    "sum": lambda x, d: x.sum(d, keepdim=True), "mean": lambda x, d: x.mean(d, keepdim=True),
    "amax": lambda x, d: x.amax(d, keepdim=True), "amin": lambda x, d: x.amin(d, keepdim=True),
    "var": lambda x, d: x.var(d, keepdim=True), "norm": lambda x, d: x.norm(dim=d, keepdim=True),
    "logsumexp": lambda x, d: x.logsumexp(d, keepdim=True),
    "count": lambda x, d: (x > 0).sum(d, keepdim=True),
    "any": lambda x, d: (x > 3).any(d, keepdim=True),
    "argmax": lambda x, d: x.argmax(d, keepdim=True), "softmax": lambda x, d: x.softmax(d),
    "cumsum": lambda x, d: x.cumsum(d), "prod": lambda x, d: (1 + x * 1e-3).prod(d, keepdim=True),
    "max": lambda x, d: x.max(d, keepdim=True).values,
}  # fmt: skip


def fused(rng: random.Random, dtype: torch.dtype) -> Program:
    """A producer, a reduction in most programs, a consumer that reads both."""
    shape = matrix_shape(rng)
    x, y = (laid_out(rng, values(rng, shape, dtype)) for _ in range(2))
    if rng.random() < 0.3:
        y = values(rng, shape[-1:], dtype)
    first, second = rng.choice(list(UNARY)), rng.choice(list(BINARY))
    reduction = rng.choice([*REDUCTION, None])
    consumer = rng.choice([*BINARY, None])
    dim = rng.choice((-1, -1, 0, -2))

    def program(x: Tensor, y: Tensor) -> Tensor:
        z = BINARY[second](UNARY[first](x), y)
        if reduction is None:
            return z
        r = REDUCTION[reduction](z, dim)
        if consumer is None:
            return r
        return BINARY[consumer](z, r.to(z.dtype))

    return program, [x, y], f"{first} {second} {reduction}({dim}) {consumer}"


def pointwise(rng: random.Random, dtype: torch.dtype) -> Program:
    """One to four elementwise ops."""
    shape = matrix_shape(rng)
    x, y = (laid_out(rng, values(rng, shape, dtype)) for _ in range(2))
    ops = [rng.choice([*UNARY, *BINARY]) for _ in range(rng.randint(1, 4))]

    def program(x: Tensor, y: Tensor) -> Tensor:
        for op in ops:
            x = UNARY[op](x) if op in UNARY else BINARY[op](x, y.to(x.dtype))
        return x

    return program, [x, y], " ".join(ops)


def reduce_one(rng: random.Random, dtype: torch.dtype) -> Program:
    """A reduction alone."""
    x = laid_out(rng, values(rng, matrix_shape(rng), dtype))
    op, dim = rng.choice(list(REDUCTION)), rng.choice((-1, 0, -2))
    return lambda x: REDUCTION[op](x, dim), [x], f"{op}({dim})"


def masked(rng: random.Random, dtype: torch.dtype) -> Program:
    """Masks: of booleans, of lengths, causal; filled, selected, counted, softmaxed."""
    b, n, m = rng.choice((1, 4, 16)), rng.choice((64, 128, 300, 512)), rng.choice((64, 200, 512))
    x = laid_out(rng, values(rng, (b, n, m), dtype))
    mask = torch.rand(rng.choice(((b, n, m), (b, 1, m), (n, m)))) < 0.3
    lengths = torch.randint(1, m + 1, (b,))
    programs = {
        "fill_softmax": lambda x, k, l: x.masked_fill(k, -1e4).softmax(-1),
        "lengths": lambda x, k, l: x * (torch.arange(m)[None, None] < l[:, None, None]),
        "causal": lambda x, k, l: x.masked_fill(k.new_ones(n, m).triu(1), 0).sum(-1),
        "where_sum": lambda x, k, l: torch.where(k, x, x.new_zeros(())).sum(-1) / (k.sum(-1) + 1),
        "logic": lambda x, k, l: ((x > 0) & ~k | (x < -1)).sum(-1),
        "tril": lambda x, k, l: x.tril() + x.triu(1) * 2,
        "count": lambda x, k, l: k.sum(-1) + k.any(-1),
        "cumsum_mask": lambda x, k, l: (k.cumsum(-1) * k).to(torch.int64),
    }  # fmt: skip
    name = rng.choice(list(programs))
    return programs[name], [x, mask, lengths], name


def gathers(rng: random.Random, dtype: torch.dtype) -> Program:
    """Rows and elements by index, some of them behind reductions or in front of one."""
    rows, columns = rng.choice((100, 5000, 30000)), rng.choice((8, 64, 100, 256))
    count = rng.choice((200, 3000, 20000))
    table = values(rng, (rows, columns), dtype)
    index = torch.randint(0, rows, (count,))
    element = torch.randint(0, columns, (rows, rng.choice((1, 4, columns))))
    programs = {
        "embedding": lambda t, i, e: F.embedding(i, t) * 2,
        "index_select_sum": lambda t, i, e: t.index_select(0, i).sum(-1),
        "take_along": lambda t, i, e: t.take_along_dim(e, 1),
        "gather_softmax": lambda t, i, e: t.softmax(-1).gather(1, e),
        "norm_then_rows": lambda t, i, e: (t / (t.abs().amax(-1, keepdim=True) + 1))[i],
        "argmax_gather": lambda t, i, e: t.gather(1, t.argmax(-1, keepdim=True)),
        "index_add": lambda t, i, e: torch.zeros_like(t).index_add(0, i, t[i]),
        "scatter_add": lambda t, i, e: torch.zeros_like(t).scatter_add(1, e, t[:, : e.shape[1]]),
        "scatter_amax": lambda t, i, e: torch.zeros_like(t).scatter_reduce(
            1, e, t[:, : e.shape[1]], "amax"),
        "bag": lambda t, i, e: t[i.view(-1, 4)].sum(1),
        "pairs": lambda t, i, e: t[i] - t[i.flip(0)],
        "columns": lambda t, i, e: t[:, e[0]].sum(0),
    }  # fmt: skip
    name = rng.choice(list(programs))
    if count % 4:
        raise AssertionError(count)
    return programs[name], [table, index, element], f"{name} {rows}x{columns} {count}"


# ---- products and convolutions ----


def products(rng: random.Random, dtype: torch.dtype) -> Program:
    """Small, thin, batched and strided operands; an epilogue behind some."""
    size = lambda: rng.choice((1, 2, 3, 4, 7, 8, 16, 17, 31, 32, 48, 64, 100, 128, 200, 256, 384))
    m, n, k = size(), size(), size()
    thin = rng.choice(("any", "any", "row", "column", "deep", "outer"))
    if thin == "row":
        m, n, k = rng.choice((1, 2, 3)), rng.choice((256, 1000, 2048)), rng.choice((256, 768, 2048))
    elif thin == "column":
        m, n, k = rng.choice((256, 1000, 4096)), rng.choice((1, 2, 3)), rng.choice((64, 256, 1000))
    elif thin == "deep":
        m, n, k = rng.choice((4, 16)), rng.choice((4, 16)), rng.choice((2048, 10000))
    elif thin == "outer":
        m, n, k = rng.choice((500, 1000)), rng.choice((500, 1000)), rng.choice((1, 2, 4))
    batch = rng.choice(((), (), (2,), (8,), (64,), (4, 12)))
    if m * n * k * max(1, *batch, 1) > 1 << 28:
        batch = ()
    a = laid_out(rng, values(rng, (*batch, m, k), dtype))
    b = laid_out(rng, values(rng, (*rng.choice((batch, batch, ())), k, n), dtype))
    bias = values(rng, (n,), dtype)
    programs = {
        "matmul": lambda a, b, c: a @ b,
        "linear": lambda a, b, c: a @ b + c,
        "relu": lambda a, b, c: F.relu(a @ b + c),
        "gelu": lambda a, b, c: F.gelu(a @ b),
        "scaled_softmax": lambda a, b, c: (a @ b * 0.125).softmax(-1),
        "square": lambda a, b, c: (a @ b).square().sum(-1),
        "einsum": lambda a, b, c: torch.einsum("...mk,...kn->...nm", a, b),
        "gate": lambda a, b, c: torch.sigmoid(a @ b) * c,
    }
    name = rng.choice(list(programs))
    return programs[name], [a, b, bias], f"{name} {tuple(a.shape)} {tuple(b.shape)}"


def convolutions(rng: random.Random, dtype: torch.dtype) -> Program:
    """Grouped, depthwise, dilated, transposed; 1d, 2d, 3d; channels-last among them."""
    dims = rng.choice((1, 1, 2, 2, 2, 3))
    length = {1: (64, 400, 2000), 2: (7, 14, 28, 56), 3: (4, 8, 16)}[dims]
    kind = rng.choice(("plain", "plain", "grouped", "depthwise", "dilated", "transposed"))
    batch, channels = rng.choice((1, 2, 8)), rng.choice((3, 16, 32, 64, 96))
    groups = {"grouped": rng.choice((2, 4)), "depthwise": channels}.get(kind, 1)
    if channels % groups:
        channels = 32
    out = channels if kind == "depthwise" else rng.choice((16, 32, 64))
    kernel = rng.choice((1, 3, 3, 5)) if dims < 3 else rng.choice((1, 3))
    stride, dilation = rng.choice((1, 1, 2)), 2 if kind == "dilated" else 1
    padding = dilation * (kernel // 2)
    spatial = tuple(rng.choice(length) for _ in range(dims))
    x = values(rng, (batch, channels, *spatial), dtype)
    shape = (channels, out // groups) if kind == "transposed" else (out, channels // groups)
    w = values(rng, (*shape, *(kernel,) * dims), dtype) * 0.1
    bias = values(rng, (out,), dtype)
    if dims > 1 and rng.random() < 0.4:
        x = x.contiguous(memory_format=torch.channels_last if dims == 2 else torch.channels_last_3d)
    name = ("conv_transpose" if kind == "transposed" else "conv") + f"{dims}d"
    function = getattr(F, name)
    how = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    tail = rng.choice(("none", "none", "relu", "gelu"))
    behind = {"none": lambda x: x, "relu": F.relu, "gelu": F.gelu}[tail]
    text = f"{kind} {name} {tuple(x.shape)} {tuple(w.shape)} /{stride} {tail}"
    return lambda x, w, b: behind(function(x, w, b, **how)), [x, w, bias], text


def integers(rng: random.Random, dtype: torch.dtype) -> Program:
    """Arithmetic of integers: division and remainder by constants and by data, shifts, bits."""
    shape = matrix_shape(rng)
    x, y = (laid_out(rng, values(rng, shape, dtype)) for _ in range(2))
    c = rng.choice((2, 3, 7, 10, 16, 64))
    programs = {
        "remainder": lambda x, y: x % c, "floor_divide": lambda x, y: x // c,
        "remainder_data": lambda x, y: x % y, "divide_data": lambda x, y: x // y,
        "hash": lambda x, y: (x * 31 + y) % c, "bits": lambda x, y: (x & y) ^ (x | c),
        "shift": lambda x, y: (x >> 1) + (y << 1), "compare": lambda x, y: (x > y) & (x != c),
        "sum": lambda x, y: (x + y).sum(-1), "amax": lambda x, y: (x * y).amax(-1),
        "true_divide": lambda x, y: x / y, "clamp": lambda x, y: (x - y).clamp(0, c),
        "fmod": lambda x, y: torch.fmod(x, c), "to_float": lambda x, y: (x.float() - c) * 0.5,
        "where": lambda x, y: torch.where(x % c == 0, x, y), "cumsum": lambda x, y: x.cumsum(-1),
        "bool_sum": lambda x, y: (x == y).sum(-1),
        "trunc": lambda x, y: torch.div(x, c, rounding_mode="trunc"),
        "argmax": lambda x, y: x.argmax(-1), "mean": lambda x, y: x.float().mean(-1),
    }  # fmt: skip
    name = rng.choice(list(programs))
    return programs[name], [x, y], f"{name} {c}"


def windows(rng: random.Random, dtype: torch.dtype) -> Program:
    """Pooling, padding, resampling, normalisation over channels."""
    n, c, h = rng.choice((1, 4)), rng.choice((3, 16, 64)), rng.choice((14, 28, 56, 112))
    x = values(rng, (n, c, h, h), dtype)
    if rng.random() < 0.4:
        x = x.contiguous(memory_format=torch.channels_last)
    w, b = values(rng, (c,), dtype), values(rng, (c,), dtype)
    mean, var = values(rng, (c,), dtype), torch.ones(c).to(dtype)
    programs = {
        "max_pool": lambda x, w, b: F.max_pool2d(x, 3, 2, 1),
        "avg_pool": lambda x, w, b: F.avg_pool2d(x, 2),
        "adaptive": lambda x, w, b: F.adaptive_avg_pool2d(x, 7),
        "global": lambda x, w, b: x.mean((2, 3)),
        "bilinear": lambda x, w, b: F.interpolate(x, scale_factor=2, mode="bilinear"),
        "nearest": lambda x, w, b: F.interpolate(x, scale_factor=2) * 2,
        "pad": lambda x, w, b: F.pad(x, (1, 1, 1, 1)),
        "reflect": lambda x, w, b: F.pad(x, (2, 2, 2, 2), mode="reflect"),
        "batch_norm": lambda x, w, b: F.relu(F.batch_norm(x, mean, var, w, b)),
        "group_norm": lambda x, w, b: F.group_norm(x, 1 if c == 3 else 8, w, b),
        "instance_norm": lambda x, w, b: F.instance_norm(x),
        "shuffle": lambda x, w, b: x.flip(-1).roll(3, -2),
        "unfold": lambda x, w, b: F.unfold(x, 3, padding=1),
        "permute": lambda x, w, b: x.permute(0, 2, 3, 1).contiguous() * 2,
    }  # fmt: skip
    name = rng.choice(list(programs))
    return programs[name], [x, w, b], f"{name} {tuple(x.shape)}"


KINDS: dict[str, tuple[Callable[[random.Random, torch.dtype], Program], tuple[str, ...]]] = {
    "fused": (fused, FLOATS),
    "pointwise": (pointwise, FLOATS),
    "reduce": (reduce_one, FLOATS),
    "masked": (masked, FLOATS),
    "gathers": (gathers, (*FLOATS, "i64")),
    "products": (products, FLOATS),
    "convolutions": (convolutions, ("f32", "bf16", "f16")),
    "integers": (integers, INTEGERS),
    "windows": (windows, ("f32", "bf16", "f64")),
}


def names() -> Iterator[str]:
    """Every row."""
    for kind, (_, dtypes) in KINDS.items():
        for seed, dtype in itertools.product(range(SEEDS), dtypes):
            yield f"drawn/{kind}/{seed}/{dtype}"


def make(rest: list[str]) -> Call:
    """The program of a row."""
    kind, seed, dtype = rest
    rng = random.Random(f"{kind} {seed}")
    torch.manual_seed(int(seed))
    function, tensors, text = KINDS[kind][0](rng, DTYPES[dtype])
    return Call(function, tuple(tensors), {}, text)
