"""Captures with symbolic sizes: a function is called with several sizes and must do what eager does
each time, by few captures."""

from __future__ import annotations

import copy
import math
import re
import warnings

import pytest
import torch
import torch.nn.functional as F
from torch.fx.experimental import symbolic_shapes

import oxyfuel

SIZES = (5, 7, 12, 3, 64, 2, 1, 0, 31)


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    monkeypatch.setenv("OXYFUEL_STRICT", "1")
    oxyfuel.reset()
    with torch.no_grad():
        yield


def same(actual, expected):
    assert type(actual) is type(expected), (actual, expected)
    if isinstance(expected, torch.Tensor):
        torch.testing.assert_close(actual, expected, equal_nan=True)
        assert actual.shape == expected.shape
        assert actual.numel() == 0 or actual.stride() == expected.stride()
    elif isinstance(expected, (list, tuple)):
        assert len(actual) == len(expected)
        for a, e in zip(actual, expected, strict=True):
            same(a, e)
    elif isinstance(expected, dict):
        assert list(actual) == list(expected)
        for key in expected:
            same(actual[key], expected[key])
    else:
        assert actual == expected or actual != actual


def outcome(fn, *args):
    try:
        return fn(*args)
    except Exception as e:
        return type(e).__name__


def recompiles():
    return oxyfuel.stats()["recompiles"]


# ---- what code does with sizes

PROGRAMS = {
    "view": lambda x: x.view(x.shape[0] * 2, 4) + 1,
    "view_of_tuple": lambda x: x.view(*x.shape[:-1], 2, 4).transpose(1, 2),
    "size_as_a_whole": lambda x: x.reshape((*x.size()[:-1], -1, 2)).sum(-1),
    "shape_sum": lambda x: x.new_zeros(x.shape + (3,)),
    "unpack": lambda x: (lambda b, n: x.reshape(n, b) * b)(*x.shape),
    "numel": lambda x: x * x.numel() + x.shape.numel(),
    "prod": lambda x: x.reshape(math.prod(x.shape)),
    "len": lambda x: x * len(x),
    "floordiv": lambda x: x[: x.shape[0] // 2] * 2,
    "mod": lambda x: x[x.shape[0] % 2 :],
    "ceil": lambda x: x.new_ones(-(-x.shape[0] // 4)),
    "negative": lambda x: x[-min(x.shape[0], 3) :],
    "min_max": lambda x: x[: min(x.shape[0], 6)].sum() + max(1, x.shape[0]),
    "min_of_list": lambda x: x.new_zeros(max([x.shape[0], 4, x.shape[1]])),
    "power": lambda x: x * x.shape[0] ** 2,
    "absolute": lambda x: x * abs(3 - x.shape[0]),
    "true_division": lambda x: x / (x.shape[0] + 1) / 2.5,
    "square_root": lambda x: x / math.sqrt(x.shape[1]),
    "divmod": lambda x: x * sum(divmod(x.shape[0], 4)),
    "bits": lambda x: x * (x.shape[0] & 6) + (x.shape[0] << 1),
    "arange": lambda x: x + torch.arange(x.shape[0])[:, None],
    "arange_bounds": lambda x: torch.arange(1, x.shape[0] + 2, 2),
    "full": lambda x: torch.full((x.shape[0], 2), 1.5) + torch.zeros(2),
    "eye": lambda x: torch.ones(x.shape[0], x.shape[0]).tril(),
    "expand": lambda x: x[:, :1].expand(-1, 5) + x.new_ones(1, 5).expand(x.shape[0], 5),
    "repeat": lambda x: x.repeat(2, x.shape[0] // 4 + 1),
    "cat": lambda x: torch.cat([x, x * 2, x[1:]]),
    "stack": lambda x: torch.stack([x, x + x.shape[0]], 1),
    "pad": lambda x: F.pad(x, (1, 2, 0, x.shape[0])),
    "split": lambda x: [t + 1 for t in x.split(3, 1)],
    "chunk": lambda x: x.chunk(2, 1)[1] * x.chunk(2, 1)[0],
    "narrow": lambda x: x.narrow(1, 2, 3).sum(0),
    "index_last": lambda x: x[-1:] + x[:1],
    "flip": lambda x: x.flip(0) - x,
    "roll": lambda x: x.roll(1, 0),
    "transpose": lambda x: x.t().contiguous().view(-1),
    "permute": lambda x: x.view(-1, 2, 4).permute(2, 0, 1) + 0.5,
    "softmax": lambda x: x.softmax(0) + x.softmax(1),
    "mean": lambda x: (x - x.mean(0)).square().mean(1),
    "argmax": lambda x: x.argmax(1),
    "cumsum": lambda x: x.cumsum(0),
    "sort": lambda x: x.sort(1).values,
    "topk": lambda x: x.topk(3, 1).values,
    "matmul": lambda x: x @ x.t(),
    "linear": lambda x: F.linear(x, torch.ones(4, 8)).relu(),
    "bmm": lambda x: torch.bmm(x.view(1, -1, 8), x.view(1, -1, 8).transpose(1, 2)),
    "einsum": lambda x: torch.einsum("bi,ci->bc", x, x),
    "layer_norm": lambda x: F.layer_norm(x, (8,)),
    "gather": lambda x: x.gather(1, torch.zeros(x.shape[0], 2, dtype=torch.int64)),
    "scatter": lambda x: torch.zeros(x.shape[0], 9).scatter(1, x.long().abs() % 9, 1.0),
    "index": lambda x: x[torch.arange(x.shape[0]), 1],
    "embedding": lambda x: F.embedding(x.long().abs() % 4, torch.ones(4, 3)),
    "masked_fill": lambda x: x.masked_fill(x > 0, x.shape[0]),
    "where": lambda x: torch.where(x > 0, x, x.shape[0]),
    "causal": lambda x: torch.ones(x.shape[0], x.shape[0]).triu(1).bool(),
    "attention": lambda x: F.scaled_dot_product_attention(
        *(x.view(1, -1, 2, 4).transpose(1, 2) for _ in range(3)), is_causal=True
    ),
    "unfold": lambda x: x.unfold(1, 4, 2) + 1,
    "in_place": lambda x: x.clone().add_(x.shape[0]).mul_(2),
    "as_strided": lambda x: x.as_strided((x.shape[0], 4), (8, 2)),
    "size_in_a_list": lambda x: x.reshape([x.shape[1], x.shape[0]]),
    "torch_size": lambda x: torch.zeros(torch.Size([x.shape[0], 2])),
    "sizes_equal": lambda x: x + 1 if x.shape == (x.size(0), 8) else x,
    "membership": lambda x: x * 2 if x.shape[0] in (2, 5, 7) else x * 3,
    "branch": lambda x: x * 2 if x.shape[0] > 6 else x * 3,
    "even": lambda x: x * 2 if x.shape[0] % 2 == 0 else x * 3,
    "truth": lambda x: x * 2 if x.shape[0] else x + 1,
    "assertion": lambda x: x * 2 if (x.shape[0] >= 0 and x.shape[1] == 8) else None,
    "loop": lambda x: sum((x[i] for i in range(x.shape[0])), x.new_zeros(8)),
    "comprehension": lambda x: [r * i for i, r in enumerate(x)],
    "a_text": lambda x: (x, f"{x.shape[0]:>4}|{x.shape}"),
    "a_key": lambda x: {x.shape[0]: x, "n": x.shape[0]},
    "list_of_so_many": lambda x: (x, [0] * x.shape[0]),
    "tuple_index": lambda x: (x, tuple(range(70))[x.shape[0]]),
    "kinds": lambda x: (x, type(x.shape[0]) is int, isinstance(x.size(0), int), x.shape[0].real),
    "results": lambda x: (x.shape, x.shape[0] * 2, x.shape[0] - 1, [x.size()], x.numel()),
    "hash": lambda x: (x, hash(x.shape) == hash(tuple(x.shape)), {x.shape[0]}),
    "sorted": lambda x: (x, sorted([x.shape[1], x.shape[0], 3])),
    "map": lambda x: x.reshape(*map(int, x.shape)),
    "conversions": lambda x: (
        x,
        int(x.shape[0]),
        float(x.shape[0]),
        bool(x.shape[0]),
        str(x.shape[0]),
    ),
    "rounding": lambda x: (x, round(x.shape[0]), math.floor(x.shape[0]), math.ceil(x.shape[0] / 2)),
    "empty_like": lambda x: torch.zeros_like(x) + torch.empty_like(x).fill_(1),
    "to_half": lambda x: x.half() + x.shape[0],
    "as_int": lambda x: x.long() // 2 + x.shape[0],
    "index_put": lambda x: x.index_put((torch.arange(x.shape[0]),), torch.tensor(1.0)),
    "unbind": lambda x: torch.stack(x.unbind(-1), 0)[::2],
    "rows_in_turn": lambda x: sum(row * i for i, row in enumerate(x.mT)),
    "max_pool": lambda x: F.max_pool1d(x[None], 2),
    "conv": lambda x: F.conv1d(x.t()[None], torch.ones(2, 8, 3), padding=1),
    "interpolate": lambda x: F.interpolate(x.t()[None], scale_factor=2.0),
    "one_hot": lambda x: F.one_hot(x.long().abs() % 4, 4),
    "group_norm": lambda x: F.group_norm(x[..., None], 2),
    "meshgrid": lambda x: torch.meshgrid(torch.arange(x.shape[0]), torch.arange(2), indexing="ij"),
    "var": lambda x: x.var(1) + x.std(1, unbiased=False),
    "clamp": lambda x: x.clamp(min=0, max=x.shape[0]),
    "outer": lambda x: x[:, :1] * x[:, 0],
    "flatten": lambda x: x.view(-1, 2, 2, 2).flatten(1, 2).flatten(),
    "squeeze": lambda x: x.unsqueeze(1).squeeze(),
    "rotate": lambda x: torch.stack([-x[:, 1::2], x[:, ::2]], -1).flatten(-2),
    "two_convs": lambda x: F.conv1d(
        F.conv1d(F.pad(x.t()[None], (9, 9)), torch.ones(4, 8, 4), stride=3),
        torch.ones(2, 4, 3),
        stride=2,
    ),
    "arange_by_float": lambda x: torch.arange(x.shape[0], -x.shape[0], -1.0),
    "rot90": lambda x: x.rot90() + 1,
    "aminmax": lambda x: torch.aminmax(x, dim=1),
    "diagonal": lambda x: x.diagonal() + x.diagonal(1)[:1],
    "fftshift": lambda x: torch.fft.fftshift(x, 0) - torch.fft.ifftshift(x, 1),
    "pad_of_a_view": lambda x: F.pad(x.view(1, -1, 2, 4).transpose(1, 2), (0, 0, 0, 3)),
}


def scaled(x, by):
    return x * by + by


# Floats that come from sizes are computed in front of the graph, and their roundings are sizes.
FLOATS = {
    "mean_by_size": lambda x: x.sum() * (1 / x.shape[0]),
    "mean_of_mean": lambda x: (x / x.shape[0]).sum() / (x.shape[0] * x.shape[1] / 2),
    "rsqrt_of_size": lambda x: x * x.shape[0] ** -0.5,
    "sqrt_of_size": lambda x: x / math.sqrt(x.shape[0]),
    "log_of_size": lambda x: x * (math.log(x.shape[0]) / math.log(512) + 0.5),
    "part_of_it": lambda x: x[: int(x.shape[0] * 0.75)] * 2,
    "rounded_up": lambda x: x[: math.ceil(x.shape[0] / 2)] + 1,
    "rounded_down": lambda x: x[-math.floor((x.shape[0] + 1) / 3) :] + 1,
    "towards_zero": lambda x: x * int(-x.shape[0] / 3) + math.trunc((1 - x.shape[0]) * 0.5),
    "float_result": lambda x: (x + 1, x.shape[0] / 3, 2.0 ** float(x.shape[0] % 3)),
    "float_of_size": lambda x: x.sum(0) / float(x.shape[0]) - float(x.shape[0]),
    "through_a_function": lambda x: scaled(x, 1 / x.shape[0]),
    "by_name": lambda x: scaled(x, by=x.shape[0] / 4),
    "alpha": lambda x: x.mul(1 / x.shape[0]).add(x, alpha=1 / x.shape[0]),
    "other_dtypes": lambda x: (x.half() * (1 / x.shape[0]), x.double() * (3 / x.shape[0])),
    "scalars": lambda x: (x.double().sum() * (1 / x.shape[0]), x.sum() / (x.shape[0] / 3)),
    "beside_calls": lambda x: scaled(1 / x.shape[0], scaled(x, x.shape[0] / 3).sum()),
    "in_place_float": lambda x: x.clone().mul_(1 / x.shape[0]),
    "two_floats": lambda x: x * (x.shape[0] / 3 - x.shape[0] * 0.1),
}
PROGRAMS |= FLOATS
PROGRAMS |= {
    "float_of_integers": lambda x: torch.arange(x.shape[0]) * (x.shape[0] / 7),
    "float_of_half": lambda x: x.half().sum() * (1 / x.shape[0]),
    "float_compared": lambda x: x * 2 if x.shape[0] / 2 > 3 else x,
    "float_filled": lambda x: x + torch.full((x.shape[0], 1), 1 / x.shape[0]),
    "float_text": lambda x: (x, str(x.shape[0] / 4)),
    "float_quotient": lambda x: x * (1 / (x.shape[0] / 2)),
    "float_power": lambda x: x * (x.shape[0] - 7) ** 0.5,
    "float_rounded": lambda x: x * round(x.shape[0] / 2),
    "float_in_list": lambda x: (x, [1 / x.shape[0]] * 2, {"a": x.shape[0] / 2}),
    "float_modulo": lambda x: x * (x.shape[0] / 2 % 2),
}


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name, dynamic):
    fn = PROGRAMS[name]
    compiled = oxyfuel.compile(fn, dynamic=dynamic)
    for n in SIZES:
        x = torch.randn(n, 8)
        before = x.clone()
        same(outcome(compiled, x.clone()), outcome(fn, x))
        same(x, before)


# What code does that works for all sizes is captured twice at most: once for the first size, and
# once for all; 0 and 1 apart.
FOR_ALL = [
    "view", "view_of_tuple", "size_as_a_whole", "shape_sum", "unpack", "numel", "prod", "len",
    "floordiv", "mod", "power", "arange", "arange_bounds", "full", "expand", "cat", "stack",
    "pad", "split", "chunk", "narrow", "flip", "transpose", "permute", "softmax", "mean", "argmax",
    "cumsum", "matmul", "linear", "bmm", "einsum", "layer_norm", "gather", "scatter", "index",
    "embedding", "masked_fill", "attention", "in_place", "size_in_a_list", "torch_size",
    "sizes_equal", "assertion", "results", "map", "empty_like", "to_half", "as_int", "rotate",
    "two_convs", "arange_by_float", "rot90", "fftshift", "pad_of_a_view",
    "var", "outer", "flatten", "min_of_list", "where", "causal", "true_division", *FLOATS,
]  # fmt: skip


@pytest.mark.parametrize("name", FOR_ALL)
def test_one_capture_for_all_sizes(name):
    fn = PROGRAMS[name]
    compiled = oxyfuel.compile(fn)
    for n in (5, 17, 12, 9, 64, 31):
        x = torch.randn(n, 8)
        same(compiled(x), fn(x))
    assert recompiles() == 1
    oxyfuel.reset()
    compiled = oxyfuel.compile(fn, dynamic=True)
    for n in (5, 17, 12, 9, 64, 31):
        x = torch.randn(n, 8)
        same(compiled(x), fn(x))
    assert recompiles() == 0


def padded(x, n):
    return F.pad(x, (0, n - x.shape[-1]))


# Of two sizes that come in either order, n also as a number.
PAIRS = {
    "to_the_longer": lambda x, y, n: sum(padded(t, max(len(x), len(y))) for t in (x, y)),
    "to_the_shorter": lambda x, y, n: x[: min(len(x), len(y))] * y[: len(x)][: len(y)],
    "buffer": lambda x, y, n: x.new_zeros(max(len(x), n)) + x[0],
    "buffer_that_is_filled": lambda x, y, n: x.new_zeros(max(len(x), n)).index_fill(
        0, torch.arange(min(n, len(x))), 2.0
    ),
    "index": lambda x, y, n: x[min(n, x.shape[0] - 1)] * 2,
    "slice": lambda x, y, n: x[:n] * 2,
    "difference": lambda x, y, n: x[0] * y.new_ones(abs(len(x) - n) + 2),
    "mask": lambda x, y, n: torch.arange(max(len(x), n))[None] < torch.tensor([len(x), n])[:, None],
    "stacked": lambda x, y, n: torch.stack([padded(t, max(len(x), n, 9)) for t in (x, y)]),
    "multiple": lambda x, y, n: padded(x, (max(len(x), n) + 7) // 8 * 8),
    "number": lambda x, y, n: x * max(len(x), n) + min(len(x), n),
}


@pytest.mark.parametrize("name", PAIRS)
def test_the_order_of_two_sizes(name):
    fn = PAIRS[name]
    compiled = oxyfuel.compile(fn)
    with torch.enable_grad():
        for m, n in ((5, 9), (12, 7), (4, 11), (9, 8), (6, 6), (20, 3), (2, 17)):
            x, y = torch.randn(m), torch.randn(n)
            made = []
            for f in (compiled, fn):
                leaves = [t.clone().requires_grad_() for t in (x, y)]
                out = f(*leaves, n)
                if out.requires_grad:
                    out.square().sum().backward()
                made.append([out.detach(), *[t.grad for t in leaves if t.grad is not None]])
            same(*made)
    assert recompiles() == 1
    assert oxyfuel.stats()["graph_breaks"] == oxyfuel.stats()["static_captures"] == 0


def test_never():
    compiled = oxyfuel.compile(lambda x: x.sum(0) * x.shape[0], dynamic=False)
    for n in (2, 3, 4):
        compiled(torch.ones(n, 2))
    assert recompiles() == 2


@pytest.mark.parametrize("stance", ["default", "eager_then_compile"])
def test_another_rank_has_any_sizes(stance):
    fn = lambda x, y: (x * 2).sum(-1) + y  # noqa: E731
    compiled = oxyfuel.compile(fn)
    shapes = [(3, 4), (2, 3, 4), (5, 6), (7, 8, 9), (4, 5), (9,), (3,), (2, 5, 6), (4, 2, 3, 2)]
    with torch.compiler.set_stance(stance):
        for shape in shapes:
            same(compiled(torch.ones(shape), 1), fn(torch.ones(shape), 1))
    assert recompiles() == (4 if stance == "default" else 3)


def test_sizes_that_were_equal_share_a_symbol_and_others_do_not():
    fn = lambda x, y: x + y  # noqa: E731
    compiled = oxyfuel.compile(fn)
    for n in (3, 5, 9, 12):
        same(compiled(torch.ones(n, 2), torch.ones(n, 2)), fn(torch.ones(n, 2), torch.ones(n, 2)))
    assert recompiles() == 1
    with pytest.raises(RuntimeError, match="must match"):
        compiled(torch.ones(4, 2), torch.ones(5, 2))
    same(compiled(torch.ones(1, 2), torch.ones(6, 2)), fn(torch.ones(1, 2), torch.ones(6, 2)))


def test_strides_and_offsets_are_looked_at():
    fn = lambda x: x * 2 + x.shape[0]  # noqa: E731
    compiled = oxyfuel.compile(fn, dynamic=True)
    base = torch.randn(40, 16)
    for x in (
        base[:9, :8],
        base[3:7, 2:10],
        base.t()[:5],
        base[::2, ::2],
        base[:, :1].expand(40, 5),
    ):
        same(compiled(x), fn(x))
        same(compiled(x.contiguous()), fn(x.contiguous()))


def test_mutated_arguments():
    def fn(x, y):
        x.add_(y.shape[0])
        y[: y.shape[0] // 2] = 0
        return x.shape[0]

    compiled = oxyfuel.compile(fn)
    for n in SIZES:
        x, y = torch.randn(n, 3), torch.randn(n + 1)
        xe, ye = x.clone(), y.clone()
        same(compiled(x, y), fn(xe, ye))
        same(x, xe)
        same(y, ye)


def test_views_of_arguments_come_back():
    fn = lambda x: (x[1:], x.view(-1), x.t())  # noqa: E731
    compiled = oxyfuel.compile(fn)
    for n in (3, 5, 8, 13):
        x = torch.randn(n, 4)
        out = compiled(x)
        same(out, fn(x))
        assert all(o.untyped_storage().data_ptr() == x.untyped_storage().data_ptr() for o in out)


# ---- numbers


def test_ints_that_vary_and_are_looked_at():
    fn = lambda x, n: x[:, :n] * n + x.new_ones(n)  # noqa: E731
    compiled = oxyfuel.compile(fn)
    x = torch.randn(3, 40)
    for n in (3, 4, 7, 20, 2, 40):
        same(compiled(x, n), fn(x, n))
    assert recompiles() == 1


def test_ints_that_decide():
    def fn(x, n):
        if n > 10:
            return x * n
        return x.repeat(n, 1) if n > 0 else x - n

    compiled = oxyfuel.compile(fn)
    x = torch.randn(2, 3)
    for n in (3, 4, 7, 20, 11, 12, 0, -1, -5, 1, 2):
        same(compiled(x, n), fn(x, n))
    assert recompiles() <= 6


class Steps(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.length = 3

    def forward(self, x):
        self.length = self.length + 1
        return x[:, : self.length] + self.length


def test_an_attribute_that_is_counted_and_looked_at():
    eager, module = Steps(), Steps()
    compiled = oxyfuel.compile(module)
    x = torch.randn(2, 60)
    for _ in range(30):
        same(compiled(x), eager(x))
        assert module.length == eager.length and type(module.length) is int
    assert recompiles() <= 2


COUNT = 3


def test_a_global_that_varies():
    global COUNT
    compiled = oxyfuel.compile(lambda x: x[:COUNT] * 2)
    x = torch.randn(50)
    for COUNT in (3, 9, 20, 31, 2):  # noqa: B007
        same(compiled(x), x[:COUNT] * 2)
    assert recompiles() == 1


def test_a_number_too_large_for_a_size():
    fn = lambda x, n: x + (n % 7)  # noqa: E731
    compiled = oxyfuel.compile(fn)
    for n in (3, 4, 2**62, 2**63, 2**80, -(2**63), 5):
        same(compiled(torch.ones(2), n), fn(torch.ones(2), n))


def test_ints_and_bools_are_told_apart():
    fn = lambda x, n: (x[:n], type(n) is bool)  # noqa: E731
    compiled = oxyfuel.compile(fn)
    for n in (2, 3, True, 4, False, 1, 0):
        same(compiled(torch.arange(9), n), fn(torch.arange(9), n))


# ---- marks


def test_mark_dynamic():
    x = torch.randn(6, 4)
    oxyfuel.mark_dynamic(x, 0)
    compiled = oxyfuel.compile(lambda x: x * x.shape[0])
    compiled(x)
    for n in (3, 9, 30):
        same(compiled(torch.ones(n, 4)), torch.ones(n, 4) * n)
    assert recompiles() == 0


def test_torch_marks_are_read():
    import torch._dynamo

    x = torch.randn(6, 4)
    torch._dynamo.mark_dynamic(x, 1, min=3, max=8)
    compiled = oxyfuel.compile(lambda x: x * x.shape[1])
    compiled(x)
    same(compiled(torch.ones(6, 8)), torch.ones(6, 8) * 8)
    assert recompiles() == 0
    same(compiled(torch.ones(6, 9)), torch.ones(6, 9) * 9)
    assert recompiles() == 1


def marked(n, **bounds):
    x = torch.ones(n, 4)
    oxyfuel.mark_dynamic(x, 0, **bounds)
    return x


@pytest.mark.parametrize("n, told", [(4, "4 is not in the range [5, 8]"), (9, "9 is not in")])
def test_a_size_outside_of_its_mark(n, told):
    compiled = oxyfuel.compile(lambda x: x * x.shape[0])
    same(compiled(marked(6, min=5, max=8)), torch.ones(6, 4) * 6)
    for _ in range(2):
        with pytest.raises(oxyfuel.ConstraintViolationError) as caught:
            compiled(marked(n, min=5, max=8))
        assert told in str(caught.value)


def test_a_range_of_which_the_code_leaves_a_part():
    def short(x):
        return x * 2 if x.shape[0] < 10 else x + 1

    compiled = oxyfuel.compile(short)
    for bounds in ({"max": 20}, {"min": 2, "max": 10}):
        with pytest.raises(oxyfuel.ConstraintViolationError, match="Not all values of") as caught:
            compiled(marked(6, **bounds))
        assert "in short" in str(caught.value)
    with pytest.raises(oxyfuel.ConstraintViolationError, match="Not all values of"):
        compiled(marked(16, min=3))
    for x in (marked(6, min=0, max=9), marked(6, max=9), marked(16, min=10), marked(3), marked(12)):
        same(compiled(x), short(x))


def test_a_mark_that_the_code_breaks():
    def specialises(x):
        return x.reshape(2, 3, 4)

    x = torch.randn(6, 4)
    oxyfuel.mark_dynamic(x, 0)
    compiled = oxyfuel.compile(specialises)
    with pytest.raises(oxyfuel.ConstraintViolationError) as caught:
        compiled(x)
    assert "L['x'].size()[0] as dynamic" in str(caught.value)
    assert "in specialises" in str(caught.value)
    assert isinstance(caught.value, symbolic_shapes.ConstraintViolationError)
    y = torch.randn(6, 4)
    oxyfuel.maybe_mark_dynamic(y, 0)
    same(oxyfuel.compile(specialises)(y), specialises(y))


def test_the_chain_of_facts_from_a_mark_that_the_code_breaks():
    def alike(x, y):
        if x.shape[0] == y.shape[0]:
            return x + 1, y.view(3, 2, 4)
        return x, y

    x, y = torch.randn(6, 4), torch.randn(6, 4)
    for t in (x, y):
        oxyfuel.mark_dynamic(t, 0)
    with torch.fx.experimental._config.patch(use_duck_shape=False):
        with pytest.raises(oxyfuel.ConstraintViolationError) as caught:
            oxyfuel.compile(alike)(x, y)
    first, of_x, of_y = re.split("\n  - You marked ", str(caught.value))
    assert "(L['x'].size()[0], L['y'].size()[0])" in first
    for text in (of_x, of_y):
        assert re.findall("s[01] == (?:s1|6)", text) == ["s0 == s1", "s0 == 6"]


def test_a_mark_of_a_size_of_one():
    """It is captured for itself, as in torch.compile."""
    compiled = oxyfuel.compile(lambda x: x + 1)
    for n in (1, 5, 7, 9, 0):
        x = torch.randn(n, 4)
        oxyfuel.mark_dynamic(x, 0)
        same(compiled(x), x + 1)
    assert recompiles() == 2


@pytest.mark.parametrize("name", ["max", "min", "amax", "argmin"])
def test_extremes_of_nothing(name):
    def fn(x):
        return getattr(x, name)(0)

    compiled = oxyfuel.compile(fn, dynamic=True)
    same(compiled(torch.ones(5, 3)), fn(torch.ones(5, 3)))
    for shape in ((0, 3), (0, 0)):
        with pytest.raises(IndexError) as expected:
            fn(torch.ones(shape))
        with pytest.raises(IndexError) as found:
            compiled(torch.ones(shape))
        assert str(found.value) == str(expected.value)


def test_mark_static():
    compiled = oxyfuel.compile(lambda x: x + x.shape[0])
    for n in (3, 4, 5):
        x = torch.ones(n, 2)
        oxyfuel.mark_static(x, 0)
        same(compiled(x), x + n)
    assert recompiles() == 2


def test_bad_marks():
    with pytest.raises(TypeError):
        oxyfuel.mark_dynamic([1], 0)
    with pytest.raises(IndexError):
        oxyfuel.mark_dynamic(torch.ones(2), 1)


def test_objects_that_answer_for_their_class():
    """Who asks whether an object is a symbolic int must not run its code."""

    class Config:
        def __getattribute__(self, name):
            return object.__getattribute__(self, name)

    config = Config()
    config.factor = 3
    compiled = oxyfuel.compile(lambda x: x * copy.deepcopy(config).factor, fullgraph=True)
    for n in (4, 7, 9):
        same(compiled(torch.ones(n)), torch.full((n,), 3.0))
    assert recompiles() == 1


@pytest.mark.parametrize("width", [4, 6])
def test_a_tensor_that_is_new_to_captures(width):
    """A cache that has the length of the first call is a symbol when it is first seen, also beside
    a dimension that is as long and does not grow."""
    state = {}

    def step(x):
        old = state.get("cache", (None, None))
        grown = [x * k if o is None else torch.cat([o, x * k], 1) for k, o in enumerate(old)]
        state["cache"] = tuple(grown)
        return (grown[0] + grown[1]).sum(1)

    compiled, expected = oxyfuel.compile(step), []
    for n in (6, 1, 1, 1, 1):
        x = torch.randn(width, n, 4)
        expected.append(x)
        torch.testing.assert_close(compiled(x), torch.cat(expected, 1).sum(1))
    assert oxyfuel.stats()["graphs"] == 2


def test_settings_of_torch_dynamo():
    import torch._dynamo

    fn = lambda x, n: x[:n] * x.shape[0]  # noqa: E731

    def captures():
        oxyfuel.reset()
        compiled = oxyfuel.compile(fn)
        for n in (3, 4, 5, 6):
            same(compiled(torch.ones(n + 2), n), fn(torch.ones(n + 2), n))
        return oxyfuel.stats()["graphs"]

    assert captures() == 2
    with torch._dynamo.config.patch(automatic_dynamic_shapes=False):
        assert captures() == 4
    with torch._dynamo.config.patch(specialize_int=True):
        assert captures() == 4
    with torch._dynamo.config.patch(assume_static_by_default=False):
        oxyfuel.reset()
        compiled = oxyfuel.compile(lambda x: x * x.shape[0])
        for n in (3, 4, 5):
            compiled(torch.ones(n))
        assert oxyfuel.stats()["graphs"] == 1


@pytest.mark.parametrize("duck", [True, False])
def test_equal_sizes_have_symbols_of_their_own_if_asked_for(duck):
    import torch.fx.experimental._config as config

    with config.patch(use_duck_shape=duck):
        compiled = oxyfuel.compile(lambda x, y: x.sum(0) + y.sum(0), dynamic=True)
        for n, m in ((4, 4), (5, 6), (7, 7)):
            same(compiled(torch.ones(n), torch.ones(m)), torch.tensor(float(n + m)))
    assert recompiles() == (1 if duck else 0)


# ---- more than sizes


def test_a_graph_break_between():
    def fn(x):
        n = x.shape[0]
        y = x * n
        print(end="")
        return y[: n // 2] + n

    compiled = oxyfuel.compile(fn)
    for n in (4, 6, 9, 12, 31, 2):
        x = torch.randn(n, 2)
        same(compiled(x), fn(x))
    assert recompiles() <= 3  # one of each piece; a slice of one row is another matter
    same(compiled(x[:1]), fn(x[:1]))


def test_an_error_of_one_size_leaves_the_others_symbols():
    fn = lambda x: F.max_pool1d(x[None], 3)  # noqa: E731
    compiled = oxyfuel.compile(fn)
    for n in (8, 9, 2, 12, 13, 20):
        x = torch.randn(3, n)
        same(outcome(compiled, x), outcome(fn, x))
    assert oxyfuel.stats()["static_captures"] == 0


def test_data_dependent_sizes():
    def fn(x):
        y = x[x > 0]
        return y * y.shape[0] + 1

    compiled = oxyfuel.compile(fn)
    for n in (4, 6, 9, 12, 31):
        x = torch.randn(n)
        same(compiled(x), fn(x))


def test_dropped_and_new_dimensions():
    fn = lambda x: x.flatten() * x.dim()  # noqa: E731
    compiled = oxyfuel.compile(fn)
    for shape in ((3,), (4,), (2, 3), (5, 3), (5, 8), (2, 2, 2), (3, 4, 5)):
        same(compiled(torch.randn(shape).abs()).shape, fn(torch.randn(shape)).shape)


def test_parameters_may_vary():
    linear = torch.nn.Linear(4, 3)
    compiled = oxyfuel.compile(linear)
    x = torch.randn(2, 4)
    for n in (3, 5, 9, 11):
        linear.weight = torch.nn.Parameter(torch.randn(n, 4))
        linear.bias = torch.nn.Parameter(torch.randn(n))
        same(compiled(x), F.linear(x, linear.weight, linear.bias))
    assert recompiles() == 1


def test_many_shapes():
    fn = lambda x: (x.softmax(-1) * x.shape[0]).sum(0)  # noqa: E731
    compiled = oxyfuel.compile(fn)
    for n in range(2, 400):
        x = torch.randn(n % 13 + 2, n)
        same(compiled(x), fn(x))
    assert recompiles() <= 3


def test_explain():
    def fn(x):
        return x.view(3, 8) * 2 if x.shape[1] > 4 else x

    found = oxyfuel.explain(fn, dynamic=True)(torch.ones(6, 4))
    assert found.dimensions == [
        "L['x'].size()[0] = s0, symbolic, 6 in the call that was captured",
        "L['x'].size()[1] = s1, symbolic, 4 in the call that was captured",
    ]
    found = oxyfuel.explain(fn, dynamic=True)(torch.ones(4, 6))
    specialized = [text for text in found.dimensions if "specialized" in text]
    assert found.dimensions[0].startswith("L['x'].size()[0] = ")
    assert all("test_dynamic_shapes.py" in text for text in specialized)
    assert len(found.guard_costs) == len(found.out_guards)
    assert "size: L['x'].size()[1]" in str(found)
    oxyfuel.explain(fn)(torch.ones(4, 6)).to_html()


def test_texts_of_guards():
    def fn(x):
        return x * 2 if x.shape[0] > 4 else x

    compiled = oxyfuel.compile(fn, dynamic=True)
    compiled(torch.ones(6, 3))
    text = compiled.guards()[0].text()
    assert "5 <= s0" in text and "L['x'].stride(0) == s1" in text


def test_the_notice_at_the_limit_says_what_to_do(caplog):
    def looped(x):
        return x * 2 + len([0] * x.shape[0])

    compiled = oxyfuel.compile(looped)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for n in range(3, 12):
            compiled(torch.ones(n))
    assert re.search(r"looped has 8 captures.*not s0 == 10\n.*in looped", caplog.text)
    oxyfuel.reset()
    compiled = oxyfuel.compile(lambda x: x * 2, dynamic=False)
    for n in range(3, 12):
        compiled(torch.ones(n))
    assert re.search(r"dimension 0 of L\['x'\]: compile with dynamic=None", caplog.text)


def test_chunks_with_gradients():
    """An equation of sizes whose rule would be applied to what it gives."""

    def f(x):
        return torch.stack([c.sum(1) for c in x.chunk(3, 1)])

    compiled = oxyfuel.compile(f)
    with torch.enable_grad():
        for length in (5, 6, 7, 9, 12, 10):
            x = torch.randn(2, length, 8, requires_grad=True)
            y = x.detach().clone().requires_grad_()
            a, b = compiled(x), f(y)
            same(a.detach(), b.detach())
            a.pow(2).sum().backward()
            b.pow(2).sum().backward()
            same(x.grad, y.grad)
    assert oxyfuel.stats()["graphs"] <= 4


def test_a_gradient_that_is_expanded_to_a_computed_size():
    """The backward is compiled when the capture has ended: nobody says that the size is not 1."""

    def program(x):
        k = math.isqrt(int(x.numel() ** 0.5)) % x.shape[-1] + 1
        return x.repeat_interleave(3, 1), x.topk(k, -1).values.sum(-1), x[..., : 2**k].sum(-1)

    compiled = oxyfuel.compile(program, dynamic=True)
    with torch.enable_grad():
        for b, t, d in ((2, 5, 6), (3, 7, 8), (4, 9, 5), (2, 2, 3)):
            x = torch.randn(b, t, d, requires_grad=True)
            y = x.detach().clone().requires_grad_()
            for f, z in ((program, x), (compiled, y)):
                sum((out * out).sum() for out in f(z)).backward()
            torch.testing.assert_close(y.grad, x.grad)


def test_windows_that_are_put_together_again():
    """A picture of whole windows is no other one than they were cut from."""

    def reverse(windows, like):
        rows, columns = like.shape[1:3]
        tiles = windows.view(1, rows // 4, columns // 4, 4, 4, -1)
        return tiles.permute(0, 1, 3, 2, 4, 5).reshape(1, rows, columns, -1)

    compiled = oxyfuel.compile(reverse)
    for rows, columns in ((2, 3), (3, 5), (8, 4), (6, 9)):
        windows = torch.randn(rows * columns, 16, 4)
        like = torch.empty(1, 4 * rows, 4 * columns)
        same(compiled(windows, like), reverse(windows, like))
    stats = oxyfuel.stats()
    assert (stats["graphs"], stats["static_captures"]) == (2, 0)


def test_writes_of_a_size_that_is_equal_by_facts():
    def forward(a, e, w):
        a[1] = 2.0
        m = torch.zeros(len(a), dtype=torch.bool)
        m[2:] = e[2:] != e[:-2]
        return a + torch.where(m, torch.nn.functional.pad(a[:-2], (2, 0)), -1.0) + w[0, e]

    compiled = oxyfuel.compile(forward)
    for n in (5, 9, 33, 17):
        args = [(torch.ones(n), torch.arange(n) % 7, torch.ones(6, 7)) for _ in range(2)]
        same(compiled(*args[0]), forward(*args[1]))
        same(args[0][0], args[1][0])
    assert oxyfuel.stats()["static_captures"] == 0
