"""Floats and truths that are read of tensors, under torch._dynamo.config.capture_scalar_outputs:
they are known behind the graph, and where floats meet tensors the graph has them."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest
import torch
import torch._dynamo.config

import oxyfuel


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    monkeypatch.setenv("OXYFUEL_STRICT", "1")
    oxyfuel.reset()
    with torch.no_grad(), torch._dynamo.config.patch(capture_scalar_outputs=True):
        yield


def same(actual, expected):
    assert type(actual) is type(expected), (actual, expected)
    if isinstance(expected, torch.Tensor):
        torch.testing.assert_close(actual, expected, rtol=0, atol=0, equal_nan=True)
        assert actual.stride() == expected.stride()
    elif isinstance(expected, dict):
        assert list(actual) == list(expected)
        same(list(actual.values()), list(expected.values()))
    elif isinstance(expected, (tuple, list)):
        for a, e in zip(actual, expected, strict=True):
            same(a, e)
    else:
        assert actual == expected or (actual != actual and expected != expected)


VALUES = (0.3, -2.5, 1e-30, 3e38, 0.0, math.inf, math.nan, 7.0)


def in_one_graph(program, calls, fullgraph=True):
    compiled = oxyfuel.compile(program, fullgraph=fullgraph)
    for args in calls:
        given, expected = [
            [a.clone() if isinstance(a, torch.Tensor) else a for a in args] for _ in range(2)
        ]
        same(compiled(*given), program(*expected))
        same(given, expected)
    stats = oxyfuel.stats()
    assert stats["graph_breaks"] == stats["recompiles"] == stats["fallbacks"] == 0, stats


def twice(t):
    return t.item() * 2


def unused(x, t):
    t.item()
    return x + 1


def kept_in_dict(x, t):
    y = x * 2
    logs = {"loss": t.item(), "list": [t.item(), x.min().item()]}
    return y, logs


PROGRAMS = {
    "itself": lambda x, t: t.item(),
    "times": lambda x, t: x * t.item(),
    "from_the_left": lambda x, t: (t.item() * x, 2.0 - t.item(), t.item() - x),
    "arithmetic": lambda x, t: (x + 1) * (t.item() * 2 + 1) - (3 - t.item()),
    "divided": lambda x, t: (x / t.item(), x * (t.item() / 4), t.item() / 3),
    "negative": lambda x, t: (-t.item(), x + -t.item()),
    "compared": lambda x, t: (x > t.item(), t.item() >= x, x == t.item()),
    "by_float": lambda x, t: (float(t), x * float(t)),
    "twice_used": lambda x, t: (x * t.item() + t.item(), x[1, 1] * t.item()),
    "of_computed": lambda x, t: x / (x * t).abs().max().item(),
    "of_one_element": lambda x, t: x * t.view(1, 1).item(),
    "in_place": lambda x, t: x.mul_(t.item()).add_(t.item()),
    "written_behind": lambda x, t: (t.item(), t.add_(1), x * t.item()),
    "in_a_call": lambda x, t: x * twice(t),
    "as_argument": lambda x, t: (lambda y, a: y * a + a)(x, t.item()),
    "type": lambda x, t: isinstance(t.item(), float),
    "truth": lambda x, t: ((t > 0).item(), (x > 0).all().item()),
    "truth_of_a_comparison": lambda x, t: (t.item() > 2.0, x * 2, x.max().item() <= t.item()),
    "truths_kept": lambda x, t: {
        "zero": t.item() == 0,
        "same": t.item() != t.item() * 1,
        "x": x + 1,
    },
    "nothing": lambda x, t: unused(x, t),
    "list": lambda x, t: [t.item(), x + 1, t.item() * 2],
    "dict": lambda x, t: {"loss": t.item(), "x": x + 1, "positive": (t > 0).item()},
    "nested": lambda x, t: (x + 1, {"a": [t.item(), (t.item(), 3)]}, [x.max().item()]),
    "computed_keys": lambda x, t: {str(x.dim()): t.item(), "b" * 2: [x * 2]},
    "dict_kept": kept_in_dict,
    "empty_containers": lambda x, t: ([], {}, [t.item(), []], {"a": {}}),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_in_the_graph(name):
    torch.manual_seed(0)
    x = torch.randn(4, 3)
    in_one_graph(PROGRAMS[name], [(x, torch.tensor(v)) for v in VALUES])


@pytest.mark.parametrize("of", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("met", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_dtypes(of, met):
    x = (torch.arange(12.0) / 7 - 1).to(met)
    calls = [(x, torch.tensor(v, dtype=of)) for v in (0.1, 3.3333, -65000.0, 1e-5)]

    def program(x, t):
        return x * t.item(), x - (t.item() * 3 + 0.1), t.item(), x < t.item()

    in_one_graph(program, calls)
    if met in (torch.float32, torch.float64):  # beside others without dimensions it would promote
        oxyfuel.reset()
        in_one_graph(lambda x, t: (x[3] * t.item(), x[0] + t.item()), calls)


def test_integers_beside_a_float():
    """Not in the graph: the result has another dtype."""

    def program(x, t):
        return x * t.item()

    compiled = oxyfuel.compile(program)
    for v in (0.5, 2.0):
        args = torch.arange(4), torch.tensor(v)
        same(compiled(*args), program(*args))


def test_attributes():
    class Meter:
        loss = 0.0
        total = 0.0

    def program(x, t, meter):
        meter.loss = t.item()
        y = x * 2
        meter.total += meter.loss
        return y

    compiled = oxyfuel.compile(program)
    a, b = Meter(), Meter()
    for v in (0.25, 1.5, -3.0):
        args = torch.ones(3), torch.tensor(v)
        same(compiled(*args, a), program(*args, b))
        assert (a.loss, a.total) == (b.loss, b.total)


def written(logs, x):
    logs["x"] = x + 1
    return logs


BREAKS = {
    "branch": lambda x, t: x + 1 if t.item() > 0 else x - 1,
    "branch_on_truth": lambda x, t: x + 1 if (t > 0).item() else x - 1,
    "text": lambda x, t: (x * 2, f"{t.item():.3f}"),
    "power": lambda x, t: x ** t.item(),
    "rounded": lambda x, t: x * round(t.item()),
    "root": lambda x, t: x * math.sqrt(abs(t.item())),
    "divisor": lambda x, t: (x + 1, 1 / (t.item() + 100)),
    "list": lambda x, t: [v.item() for v in (t, t + 1)],
    "map": lambda x, t: max(map(torch.Tensor.item, (t, t * 2, x.max()))),
    "dict_key": lambda x, t: {t.item(): x + 1},
    "dict_asked": lambda x, t: {"loss": t.item(), "x": x + 1}["loss"],
    "handed_on": lambda x, t: kept_in_dict(x, t),
    "called_with": lambda x, t: [x + 1, len([t.item()]), str({"a": t.item()})],
    "asked_of_a_local": lambda x, t: (a := [t.item()], a[0], len(a)),
    "dict_written": lambda x, t: written({"loss": t.item()}, x),
    "list_of_calls": lambda x, t: sorted([t.item(), 0.5, x.max().item()]),
    "tuple_unpacked": lambda x, t: [*(t.item(), x + 1)],
    "clamped": lambda x, t: x.clamp(max=t.item()),
    "full": lambda x, t: torch.full((2,), t.item()) + x.sum(),
}  # fmt: skip


@pytest.mark.parametrize("name", BREAKS)
def test_breaks(name):
    """Code that looks at the number runs in eager, the rest before and behind it in graphs."""
    program = BREAKS[name]
    compiled = oxyfuel.compile(program)
    x = torch.arange(4.0)
    for v in (0.3, -2.5, 7.0):
        same(compiled(x, torch.tensor(v)), program(x, torch.tensor(v)))


QUESTIONS = {
    "zuf0 > 0": BREAKS["branch"],
    "Eq(u0, 1)": BREAKS["branch_on_truth"],
    "Ne(zuf0, 0.0)": lambda x, t: x + 1 if t.item() else x,
    "zuf0*2 + 1 <= zuf1": lambda x, t: x if t.item() * 2 + 1 <= x.sum().item() else x + 1,
    "(zuf0 - 1)/2 == 0.5": lambda x, t: x if (t.item() - 1) / 2 == 0.5 else x + 1,
    "-zuf0 > 0": lambda x, t: x if -t.item() > 0 else x + 1,
}


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_branch_is_an_error_of_fullgraph(question):
    program = QUESTIONS[question]
    compiled = oxyfuel.compile(program, fullgraph=True)
    words = f"Could not guard on data-dependent expression {question} (unhinted: {question})"
    with pytest.raises(oxyfuel.GraphBreak, match=re.escape(words)) as e:
        compiled(torch.ones(3), torch.tensor(1.0))
    assert "test_items.py" in str(e.value) and "torch._check" in str(e.value)
    broken = oxyfuel.compile(program)
    for v in (1.0, -2.0, 0.0, 2.0):
        args = torch.ones(3), torch.tensor(v)
        same(broken(*args), program(*args))


def test_zero_divisor_raises():
    def program(x, t):
        y = x * 2
        return y, 1.0 / t.item()

    compiled = oxyfuel.compile(program)
    for v in (2.0, 0.5):
        same(compiled(torch.ones(2), torch.tensor(v)), program(torch.ones(2), torch.tensor(v)))
    with pytest.raises(ZeroDivisionError):
        compiled(torch.ones(2), torch.tensor(0.0))


def test_without_the_setting():
    """A break, as TorchDynamo's."""
    with torch._dynamo.config.patch(capture_scalar_outputs=False):
        compiled = oxyfuel.compile(lambda x, t: x * t.item())
        same(compiled(torch.ones(2), torch.tensor(0.5)), torch.ones(2) * 0.5)
    assert oxyfuel.stats()["graph_breaks"] == 1


OF_ARRAYS = {
    "item": lambda x: x.numpy().sum().item() * x,
    "float": lambda x: (float(x.numpy().mean()) * x, float(x.numpy()[1])),
    "int": lambda x: int(x.numpy().astype(np.int64).sum()) + x,
    "an index": lambda x: x[: int(x.numpy().argmax())] * 2,
    "as results": lambda x: (x.numpy().sum().item(), float(x.numpy().max()) + 1.0),
}


@pytest.mark.parametrize("name", OF_ARRAYS)
def test_numbers_of_arrays(name):
    f = OF_ARRAYS[name]
    compiled = oxyfuel.compile(f, fullgraph=True)
    for x in (torch.arange(4.0), torch.tensor([0.5, 3.0, 1.0, 2.0])):
        same(compiled(x), f(x))
    assert oxyfuel.stats()["recompiles"] == 0


EXTREMES = {
    "a number": lambda x, y: x * min(y.sum(), 1.0),
    "numbers in front": lambda x, y: x * max(0, 2.0, y.sum()),
    "tensors": lambda x, y: x + min(y[0], y[1], x[0, 0]),
    "a list": lambda x, y: x / max([t.abs() for t in y]),
    "integers": lambda x, y: x + max(y.long().sum(), 0),
    "in turn": lambda x, y: x * min(max(y.mean(), 0.25), 0.75),
}


@pytest.mark.parametrize("name", EXTREMES)
def test_extremes(name):
    f = EXTREMES[name]
    compiled = oxyfuel.compile(f)
    for y in ([1.0, -2.0], [-5.0, 3.0], [math.nan, 1.0], [1.0, math.nan], [0.5, 0.25]):
        given = torch.ones(2, 3), torch.tensor(y)
        same(compiled(*given), f(*given))
    assert oxyfuel.stats()["graph_breaks"] == oxyfuel.stats()["recompiles"] == 0


def written_extreme(x, y):
    best = max(y[0], x[0, 0])
    best += 1
    return x * 2, y * 2


@pytest.mark.parametrize(
    "f",
    [
        lambda x, y: max(y.sum(), 0),
        lambda x, y: [min(y[0], y[1]), x],
        written_extreme,
        lambda x, y: x * min(y.sum().bfloat16(), 0.1),
    ],
)
def test_extremes_that_are_seen(f):
    """Which object was chosen: a break."""
    compiled = oxyfuel.compile(f)
    for y in ([1.0, -2.0], [-5.0, 3.0]):
        with torch.no_grad():
            expected = f(torch.ones(2, 3), torch.tensor(y))
            assert str(compiled(torch.ones(2, 3), torch.tensor(y))) == str(expected)
    assert oxyfuel.stats()["graph_breaks"] >= 1


@torch.enable_grad()
def test_gradients_of_extremes():
    """What is not chosen has none."""

    def step(call):
        y = torch.tensor([1.0, -2.0], requires_grad=True)
        z = torch.tensor(3.0, requires_grad=True)
        call(lambda y, z: max(y.sum(), z) * y.exp().sum())(y, z).backward()
        return y.grad.tolist(), z.grad.tolist()

    def unused(call):
        y, z = (torch.tensor(i, requires_grad=True) for i in (1.0, 2.0))
        call(lambda y, z: max(y, z) * 2)(y, z).backward()
        return y.grad, z.grad

    for f in (step, unused):
        assert f(oxyfuel.compile) == f(lambda f: f)
