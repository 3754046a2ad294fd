"""Floats that Python computes of sizes, anywhere and with tensors: one capture for all sizes."""

from __future__ import annotations

import collections
import copy
import dataclasses
import functools
import math
import types

import numpy
import pytest
import torch
import torch.nn.functional as F

import oxyfuel

SIZES = (5, 7, 9, 12, 16, 33, 3)


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    monkeypatch.setenv("OXYFUEL_STRICT", "1")
    oxyfuel.reset()
    with torch.no_grad():
        yield


def same(actual, expected):
    assert type(actual) is type(expected), (actual, expected)
    if isinstance(expected, torch.Tensor):
        torch.testing.assert_close(actual, expected, rtol=2e-6, atol=4e-6, equal_nan=True)
        assert actual.stride() == expected.stride()
    elif isinstance(expected, (tuple, list)):
        assert len(actual) == len(expected)
        for a, e in zip(actual, expected, strict=True):
            same(a, e)
    elif isinstance(expected, dict):
        assert list(actual) == list(expected)
        for key, e in expected.items():
            same(actual[key], e)
    elif dataclasses.is_dataclass(expected):
        same(vars(actual), vars(expected))
    else:
        assert actual == expected


def served(program, recompiles=1, sizes=SIZES, make=lambda n: torch.randn(n, 4)):
    compiled = oxyfuel.compile(program)
    for n in sizes:
        x = make(n)
        same(compiled(x), program(x))
    stats = oxyfuel.stats()
    assert stats["recompiles"] <= recompiles, stats
    assert stats["graph_breaks"] == stats["static_captures"] == stats["fallbacks"] == 0, stats


@dataclasses.dataclass
class Config:
    scale: float = 1.0
    shift: float = 0.0


@dataclasses.dataclass(frozen=True)
class Frozen:
    scale: float


class Plain:
    def __init__(self, scale):
        self.scale = scale


class Slots:
    __slots__ = ("scale",)

    def __init__(self, scale):
        self.scale = scale


class Keeps(torch.nn.Module):
    def forward(self, x):
        self.scale = 1 / x.shape[0]
        return x * self.scale


Pair = collections.namedtuple("Pair", "a b")
WRITTEN = {}


def affine(x, *, scale=1.0, bias=0.0):
    return x * scale + bias


def passes_on(x, **kwargs):
    return affine(x, **kwargs)


def of_many(x, *args):
    return x * args[0] + args[1]


def quotients(n):
    for k in range(2):
        yield n / (k + 3)


def in_closure(x):
    scale = x.shape[0] * 0.3

    def inner(y):
        return y * scale

    return inner(x)


def in_default(x):
    def inner(y, scale=x.shape[0] * 0.3):
        return y * scale

    return inner(x)


def in_nonlocal(x):
    total = 0.0

    def add():
        nonlocal total
        total += x.shape[0] / 7

    add()
    add()
    return x * total


def in_attribute(x):
    o = Plain(0.0)
    o.scale = x.shape[0] / 3
    o.scale *= 2
    return x * o.scale


def over_a_loop(x):
    total = 0.0
    for size in x.shape:
        total += size * 0.5
    return x * total


def in_existing_dict(x):
    WRITTEN["scale"] = x.shape[0] * 0.5
    return x * WRITTEN["scale"], dict(WRITTEN)


def appended(x):
    scales = []
    for i in range(1, 4):
        scales.append(x.shape[0] / i)
    scales.insert(1, 0.5)
    return x * scales.pop() + scales[0] - scales[-1]


def unpacked(x):
    def both(n):
        return n / 3, n * 0.7

    a, b = both(x.shape[0])
    (c, *rest) = [a, b, 0.5]
    return x * c + rest[0]


def tried(x):
    try:
        scale = 1 / (x.shape[0] - 2)
    except ZeroDivisionError:
        scale = 0.0
    return x * scale


def behind_a_break(x):
    scales = {"a": x.shape[0] / 7}
    torch._dynamo.graph_break()
    return x * scales["a"]


CARRIED = {
    "dict": lambda x: (lambda d: x * d["s"])({"s": 1 / x.shape[0]}),
    "dict_get": lambda x: (lambda d: x * d.get("s", 1.0))({"s": 1 / x.shape[0]}),
    "dict_items": lambda x: sum(x * v for _, v in {"a": x.shape[0] / 2, "b": 0.5}.items()),
    "dict_update": lambda x: (lambda d: x * d["s"])({"s": 1.0} | {"s": 1 / x.shape[0]}),
    "keyword": lambda x: affine(x, scale=x.shape[0] * 0.5),
    "keywords": lambda x: passes_on(x, scale=x.shape[0] * 0.5, bias=1 / x.shape[0]),
    "unpacked_dict": lambda x: affine(x, **{"scale": x.shape[0] * 0.5}),
    "made_dict": lambda x: affine(x, **dict(scale=x.shape[0] * 0.5)),  # noqa: C408
    "arguments": lambda x: of_many(x, *(1 / x.shape[0], 2.0)),
    "tuple": lambda x: (lambda t: x * t[0] + t[1])((1 / x.shape[0], x.shape[0] * 0.5)),
    "list": lambda x: (lambda t: x * t[0] + t[1])([1 / x.shape[0], x.shape[0] * 0.5]),
    "joined": lambda x: (lambda t: x * t[1] + t[2])([1.0] + [1 / x.shape[0], x.shape[0] * 0.5]),
    "comprehension": lambda x: sum(x * s for s in [x.shape[0] / i for i in (1, 2, 3)]),
    "summed": lambda x: x * sum([x.shape[0] / i for i in (1, 2, 3)], 0.25),
    "zipped": lambda x: sum(x * s for s, _ in zip([x.shape[0] / 2, 1 / x.shape[0]], (1, 2))),
    "generator": lambda x: x * sum(quotients(x.shape[0])),
    "dataclass": lambda x: (lambda c: x * c.scale + c.shift)(Config(1 / x.shape[0], shift=0.5)),
    "replaced": lambda x: x * dataclasses.replace(Config(2.0), scale=1 / x.shape[0]).scale,
    "frozen": lambda x: (lambda c: x * c.scale)(Frozen(1 / x.shape[0])),
    "object": lambda x: (lambda o: x * o.scale)(Plain(1 / x.shape[0])),
    "slots": lambda x: (lambda o: x * o.scale)(Slots(1 / x.shape[0])),
    "namespace": lambda x: (lambda o: x * o.s)(types.SimpleNamespace(s=1 / x.shape[0])),
    "named_tuple": lambda x: (lambda p: x * p.a + p.b)(Pair(1 / x.shape[0], 2.0)),
    "partial": lambda x: functools.partial(affine, scale=1 / x.shape[0])(x),
    "getattr": lambda x: x * getattr(Plain(x.shape[0] / 3), "scale", 1.0),
    "setattr": in_attribute,
    "module": Keeps(),
    "closure": in_closure,
    "default": in_default,
    "nonlocal": in_nonlocal,
    "loop": over_a_loop,
    "existing_dict": in_existing_dict,
    "appended": appended,
    "unpacked": unpacked,
    "tried": tried,
    "conditional": lambda x: x * (1 / x.shape[0] if x.shape[0] > 2 else 1.0),
    "is_float": lambda x: x * (lambda s: s if isinstance(s, float) else 0)(1 / x.shape[0]),
    "type": lambda x: x * (lambda s: s if type(s) is float else 0)(1 / x.shape[0]),
    "is_none": lambda x: x * (lambda s: 1.0 if s is None else s)(1 / x.shape[0]),
    "or": lambda x: x * ((x.shape[0] / 3) or 1.0),
    "returned": lambda x: (x + 1, x.shape[0] * 0.5, 1 / x.shape[0]),
    "in_results": lambda x: (x + 1, {"s": 1 / x.shape[0], "l": [x.shape[0] * 0.5, (2 / 3,)]}),
    "in_object": lambda x: (x + 1, Config(x.shape[0] * 0.5)),
}


@pytest.mark.parametrize("name", CARRIED)
def test_lies_anywhere(name):
    served(CARRIED[name])


def test_behind_a_break():
    compiled = oxyfuel.compile(behind_a_break)
    for n in SIZES:
        x = torch.randn(n, 4)
        same(compiled(x), behind_a_break(x))
    assert oxyfuel.stats()["recompiles"] <= 2


@pytest.mark.parametrize("name", ["keyword", "dict", "tuple", "dataclass"])
def test_gradients(name):
    program = CARRIED[name]
    compiled = oxyfuel.compile(program)
    with torch.enable_grad():
        for n in SIZES:
            x = torch.randn(n, 4, requires_grad=True)
            y = x.detach().clone().requires_grad_()
            compiled(x).square().sum().backward()
            program(y).square().sum().backward()
            same(x.grad, y.grad)
    assert oxyfuel.stats()["recompiles"] <= 1


PYTHON = {
    "largest": lambda x: x * max(1.0, x.shape[0] / 2),
    "least": lambda x: x * min(x.shape[0] / 2, 3.5, x.shape[0] * 0.7),
    "largest_of_list": lambda x: x * max([1.0, x.shape[0] / 2]),
    "rounded_to_digits": lambda x: x * round(x.shape[0] * 0.7, 2),
    "part_of_a_part": lambda x: x[: int(x.shape[0] * 0.5 * 0.7)] + round(x.shape[0] / 4 * 3),
    "third_and_more": lambda x: x[: int(x.shape[0] / 3 * 2)] + math.ceil(x.shape[0] * 0.7 / 4),
    "root_up_or_down": lambda x: x[: int(math.sqrt(x.shape[0]) + 1)] * math.ceil(len(x) ** 0.5 - 1),
    "root_and_one": lambda x: x * (math.sqrt(x.shape[0]) + 1) * (x.shape[0] ** 0.5 + 1),
    "rest": lambda x: x * (x.shape[0] % 2.5) - 7.5 % x.shape[0],
    "floor": lambda x: x * (x.shape[0] // 1.7),
    "products": lambda x: x * (x.shape[0] * 0.5 * 0.7) + (x.shape[0] / 4 * 3),
    "logarithms": lambda x: x * math.log(x.shape[0]) + math.log(x.shape[0], 2) - math.log1p(len(x)),
    "exponential": lambda x: x * math.exp(-x.shape[0] / 10),
    "sine": lambda x: x * math.sin(x.shape[0] / 10) * math.cos(x.shape[0]),
    "powers": lambda x: x * math.pow(x.shape[0], 0.3) * 0.9 ** x.shape[0] * x.shape[0] ** -0.5,
    "absolute": lambda x: x * abs(x.shape[0] / 2 - 3) + math.fabs(5 - x.shape[0]),
    "negative": lambda x: x * -(1 / x.shape[0]),
    "fmod": lambda x: x * math.fmod(x.shape[0], 2.5) + math.hypot(x.shape[0], 2),
    "converted": lambda x: x * float(x.shape[0]) / float(x.shape[0] / 3),
    "returned": lambda x: (x, round(x.shape[0] / 7, 3), math.tanh(x.shape[0] / 9), len(x) % 0.7),
}


@pytest.mark.parametrize("name", PYTHON)
def test_functions_of_python(name):
    served(PYTHON[name])


def test_powers_may_be_complex():
    """A negative number to a fraction, and an int to a negative int."""

    def program(x):
        n = x.shape[0]
        return x * 2, (n - 10) ** 0.5, 2 ** (9 - n), (n - 2) ** -1

    compiled = oxyfuel.compile(program)
    for n in (12, 16, 9, 5, 33, 7, 12, 5):
        x = torch.randn(n, 4)
        same(compiled(x), program(x))


ASKED = {
    "root": (lambda x: x * 2 if math.sqrt(x.shape[0]) > 2.9 else x * 3, 2),
    "logarithm": (lambda x: x * int(math.log2(x.shape[0])), 5),
    "two_floats": (lambda x: x * 2 if x.shape[0] * 0.7 > x.shape[0] / 2 else x * 3, 1),
    "long_number": (lambda x: x * 2 if x.shape[0] / 3 > 2.1 else x * 3, 2),
    "power_of_2": (lambda x: torch.zeros(2 ** math.ceil(math.log2(x.shape[0]))), 4),
    "truth": (lambda x: x * 2 if x.shape[0] % 2.5 else x * 3, 2),
    "mixed_extreme": (lambda x: x * max(x.shape[0] / 3, x.shape[0] * 0.3, 1), 2),
}


@pytest.mark.parametrize("name", ASKED)
def test_answers_are_guarded(name):
    """Where no expression has the answer, each answer has a capture."""
    program, recompiles = ASKED[name]
    served(program, recompiles, sizes=(*SIZES, *SIZES))


def in_place(x):
    y = x.clone()
    y[0] = 1 / x.shape[0]
    y[:, 1] = x.shape[0] * 0.5
    y[y > 1] = x.shape[0] / 7
    y[1:].fill_(x.shape[0] / 3)
    return y


TORCH = {
    "full": lambda x: torch.full((3, 4), x.shape[0] * 0.5),
    "full_of_size": lambda x: torch.full((x.shape[0],), x.shape[0] * 0.5, dtype=torch.float64),
    "full_like": lambda x: torch.full_like(x, 1 / x.shape[0]),
    "new_full": lambda x: x.new_full((3,), 1 / x.shape[0]),
    "in_place": in_place,
    "tensor": lambda x: x + torch.tensor(x.shape[0] * 0.5),
    "tensor_of_list": lambda x: torch.tensor([x.shape[0] / 2, 1.0, x.shape[0], 2]),
    "tensor_of_lists": lambda x: torch.tensor([[x.shape[0], 1.5], (2, x.shape[0] / 3)]),
    "tensor_with_dtype": lambda x: torch.tensor([x.shape[0] / 2, x.shape[0]], dtype=torch.float64),
    "tensor_of_floats_and_size": lambda x: torch.tensor([0.5, x.shape[0]]),
    "clamp": lambda x: x.clamp(max=x.shape[0] * 0.1).clamp(-1 / x.shape[0], 0.5),
    "masked_fill": lambda x: x.masked_fill(x > 0, x.shape[0] * 0.5),
    "where": lambda x: torch.where(x > 0, x, 1 / x.shape[0]),
    "power": lambda x: torch.pow(x.abs(), 1 / x.shape[0]) + x.abs() ** (1 / x.shape[0]),
    "addcmul": lambda x: torch.addcmul(x, x, x, value=1 / x.shape[0]),
    "alpha": lambda x: torch.add(x, x, alpha=1 / x.shape[0]),
    "integers": lambda x: (x * 10).int() * (1 / x.shape[0]) + x.long() - len(x) * 0.3,
    "compared_integers": lambda x: (x * 10).int() > 1 / x.shape[0],
    "half": lambda x: x.half() * (1 / x.shape[0]),
    "item": lambda x: (x, torch.tensor(x.shape[0] / 4, dtype=torch.float64)),
    "dropout_in_eval": lambda x: F.dropout(x, p=1 / x.shape[0], training=False),
    "bilinear": lambda x: F.interpolate(x[None, None], scale_factor=0.7, mode="bilinear"),
    "nearest": lambda x: F.interpolate(x[None, None], scale_factor=2.3, mode="nearest"),
    "divided": lambda x: (1 / x.shape[0] - x) + (x.shape[0] * 0.5) / x,
}


@pytest.mark.parametrize("name", TORCH)
def test_meets_tensors(name):
    served(TORCH[name])


def rate(x, n):
    return F.dropout(x, n / 8, False)


def may_raise(x):
    n = x.shape[0]
    unused = {"a": 1 / (n - 7), "b": math.log(n - 4)}
    return x * 2, len(unused)


def powers_of_sum(x):
    return x * math.exp(x.shape[0] * 50.0), x.shape[0]


@pytest.mark.parametrize("program", [may_raise, powers_of_sum])
def test_errors_are_eagers(program):
    """Also where nobody uses what would raise."""
    compiled = oxyfuel.compile(program)
    for n in (5, 9, 12, 7, 16, 3, 4, 8):
        x = torch.randn(n, 4)
        try:
            expected = program(x)
        except (ArithmeticError, ValueError) as e:
            with pytest.raises(type(e), match=str(e)):
                compiled(x)
        else:
            same(compiled(x), expected)


def test_rates_out_of_range():
    compiled = oxyfuel.compile(rate)
    for n in (5, 6, 7, 8):
        same(compiled(torch.ones(3), n), torch.ones(3))
    with pytest.raises(ValueError, match="dropout probability has to be between 0 and 1"):
        compiled(torch.ones(3), 9)


LOOKED_AT = {
    "text": lambda x: (x + 1, f"{x.shape[0] / 3:.2f}", str(x.shape[0] / 3), repr([x.shape[0] / 2])),
    "hash": lambda x: (x + 1, {x.shape[0] / 3: 1}, hash(x.shape[0] / 2)),
    "sorted": lambda x: (x + 1, sorted([x.shape[0] / 3, 2.5, x.shape[0] * 0.25])),
    "index": lambda x: (x + 1, [1.5, x.shape[0] / 3].index(x.shape[0] / 3)),
    "member": lambda x: (x + 1, x.shape[0] / 3 in [1.0, 3.0], 2.5 in (x.shape[0] / 2,)),
    "equal": lambda x: (x + 1, [x.shape[0] / 3] == [3.0], (x.shape[0] / 2, 1) != (2.5, 1)),
    "method": lambda x: (x + 1, (x.shape[0] / 2).is_integer(), (x.shape[0] / 4).hex()),
    "ratio": lambda x: (x + 1, (x.shape[0] / 4).as_integer_ratio()),
    "complex": lambda x: (x + 1, complex(x.shape[0] / 3, 1), x.shape[0] / 3 + 1j),
    "identity": lambda x: (x + 1, (lambda s: s is s)(x.shape[0] / 3), x.shape[0] / 3 is None),
    "item": lambda x: (x, torch.tensor(x.shape[0] / 3).item()),
    "exact_item": lambda x: (x, float(torch.tensor(x.shape[0] / 3, dtype=torch.float64))),
    "sorted_pairs": lambda x: sorted({"a": x.shape[0] / 3, "b": 2.5}.items(), key=lambda t: t[1]),
    "numpy": lambda x: x * float(numpy.sqrt(x.shape[0] / 3)),
    "exception": lambda x: (x, str(ValueError(x.shape[0] / 3))),
    "percent": lambda x: (x, "%s %d" % (x.shape[0] / 3, x.shape[0] / 2)),  # noqa: UP031
    "copied": lambda x: (x, copy.deepcopy({"a": [x.shape[0] / 3]}), Config(1 / 3) == Config(1.5)),
    "divmod": lambda x: (x + 1, divmod(x.shape[0] / 3, 1.5)),
    "three_way": lambda x: x * (2 if 1.5 < x.shape[0] / 3 < 4.5 else 3),
    "tensor_key": lambda x: x[:2] * torch.tensor({3.0: 1.0}.get(x.shape[0] / 3, 2.0)),
    "error": lambda x: (x + 1, (lambda d: d.get("s", 0))({"s": x.shape[0] / 3}) > 2),
    "unbound": lambda x: (x, float.__add__(x.shape[0] / 3, 1.0), float.hex(x.shape[0] / 3)),
    "is_integer": lambda x: (x, float.is_integer(x.shape[0] / 3)),
    "newton": lambda x: x * newton(x.shape[0], 20),
    "newton_result": lambda x: (x, newton(x.shape[0], 20)),
    "doubled": lambda x: (x, math.sin(doubled(x.shape[0] * 1.5, 30)) > 0.1),
}


def newton(n, steps):
    """Each step uses the last one twice."""
    g = n / 2
    for _ in range(steps):
        g = (g + n / g) / 2
    return g


def doubled(s, steps):
    for _ in range(steps):
        s = (s + s) / 2
    return s


@pytest.mark.parametrize("name", LOOKED_AT)
def test_looked_at(name):
    """With a guard, and so perhaps with a capture for each size."""
    program = LOOKED_AT[name]
    compiled = oxyfuel.compile(program)
    for n in (*SIZES, *SIZES):
        x = torch.randn(n, 4)
        same(compiled(x), program(x))


VARYING = {
    "dict": lambda x, rate: x * {"a": rate}["a"],
    "dataclass": lambda x, rate: x * Config(rate * 2).scale,
    "keyword": lambda x, rate: affine(x, scale=-rate),
    "results": lambda x, rate: (x, [rate, rate * 2], {"a": -rate}),
    "full": lambda x, rate: torch.full((3,), rate),
    "quotient": lambda x, rate: x * [1 / rate][0],
}


@pytest.mark.parametrize("dynamic", [None, False])
@pytest.mark.parametrize("name", VARYING)
def test_floats_that_vary(name, dynamic):
    """Those of arguments lie anywhere, too."""
    program = VARYING[name]
    compiled = oxyfuel.compile(program, dynamic=dynamic)
    for rate in (0.1, 0.2, 0.05, 0.3, 0.01, 1.5):
        x = torch.randn(4, 3)
        same(compiled(x, rate), program(x, rate))
    assert oxyfuel.stats()["recompiles"] <= 1


def stored(key):
    def program(x):
        y = x.clone()
        y[key(x)] = x.shape[0] / 3
        return y

    return program


INDICES = {
    "list": lambda x: [0, 1],
    "tensor": lambda x: (slice(None), torch.tensor([0, 1])),
    "arange": lambda x: (torch.arange(x.shape[0]), 0),
    "argmax": lambda x: (x.argmax(0), torch.arange(4)),
    "mask": lambda x: x > 0,
    "mask_of_rows": lambda x: x[:, 0] > 0,
    "slice": lambda x: (slice(1, None), 2),
}


@pytest.mark.parametrize("name", INDICES)
def test_stored_by_index(name):
    program = stored(INDICES[name])
    compiled = oxyfuel.compile(program)
    for n in SIZES:
        x = torch.randn(n, 4)
        same(compiled(x), program(x))


BYTES = {
    "tensor": lambda x: torch.tensor(x.shape[0] * 50.0, dtype=torch.uint8),
    "list": lambda x: torch.tensor([x.shape[0] * 50.0, 1.0], dtype=torch.uint8),
}


@pytest.mark.parametrize("name", BYTES)
def test_what_does_not_fit_into_integers_raises(name):
    compiled = oxyfuel.compile(BYTES[name])
    for n in (2, 3, 5):
        same(compiled(torch.randn(n, 4)), BYTES[name](torch.randn(n, 4)))
    for n in (7, 9):
        with pytest.raises(RuntimeError, match="without overflow"):
            compiled(torch.randn(n, 4))
