"""What Python makes of floats that are read of tensors, where they may lie, and which functions of
torch take them: one graph, and each value's result and errors are eager's."""

from __future__ import annotations

import logging
import math
import sys

import pytest
import torch
import torch._dynamo.config
import torch.nn.functional as F

import oxyfuel


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    monkeypatch.setenv("OXYFUEL_STRICT", "1")
    oxyfuel.reset()
    with torch.no_grad():
        yield


def same(actual, expected):
    assert type(actual) is type(expected), (actual, expected)
    if isinstance(expected, torch.Tensor):
        torch.testing.assert_close(actual, expected, rtol=1e-6, atol=1e-7, equal_nan=True)
    elif isinstance(expected, dict):
        same(list(actual.items()), list(expected.items()))
    elif isinstance(expected, (tuple, list)):
        for a, e in zip(actual, expected, strict=True):
            same(a, e)
    elif isinstance(expected, float):
        assert repr(actual) == repr(expected)
    else:
        assert actual == expected


def result(call, *args):
    try:
        return call(*args)
    except (ArithmeticError, ValueError, RuntimeError) as e:
        return type(e).__name__, str(e)


VALUES = (0.3, -2.5, 4.0, 0.0, -0.0, 1e30, 1e-30, 800.0, math.inf, -math.inf, math.nan)

TEXT = "a text of what may be ints"
OF_PYTHON = {
    "max": lambda t: max(t.item(), 0.0),
    "max from the right": lambda t: max(0.0, t.item()),
    "min of several": lambda t: min(t.item(), 1.0, (t * 2).item(), -0.0),
    "clamped": lambda t: min(max(t.item(), -1.0), 1.0),
    "with an int": lambda t: (max(t.item(), 0), min(3, t.item()), max(t.item(), 0) / 2),
    TEXT: lambda t: f"{max(t.item(), 0) + min(-t.item(), 0)}",
    "abs": lambda t: abs(t.item()),
    "fabs": lambda t: math.fabs(t.item()),
    "negative": lambda t: -t.item() - 1,
    "roots": lambda t: math.sqrt(t.item()),
    "root of": lambda t: math.sqrt(abs(t.item()) + 1e-6),
    "exp": lambda t: math.exp(t.item()),
    "log": lambda t: math.log(t.item()),
    "log1p": lambda t: math.log1p(abs(t.item())),
    "tanh": lambda t: math.tanh(t.item()),
    "sin": lambda t: math.sin(t.item()) + math.cos(t.item()),
    "square": lambda t: t.item() ** 2,
    "inverse root": lambda t: t.item() ** -0.5,
    "power of": lambda t: 2.0 ** t.item(),
    "quotient": lambda t: 1.0 / t.item(),
    "quotient of two": lambda t: t.item() / (t + 1).item(),
    "floor division": lambda t: t.item() // 0.75,
    "rest": lambda t: (t.item() % 0.75, t.item() % -2),
    "by itself": lambda t: 5.0 % t.item(),
    "rounded": lambda t: (round(t.item(), 2), round(t.item() / 3, 1)),
    "sum": lambda t: sum([t.item(), (t * 2).item(), 3]),
    "mean": lambda t: sum(u.item() for u in (t, t + 1)) / 2,
    "float": lambda t: float(t.item()) * 2,
    "an int": lambda t: (int(t.item()), int(t)),
    "floor": lambda t: math.floor(t.item()) + math.ceil(t.item()),
    "nearest": lambda t: round(t.item()),
    "with a size": lambda t: t.item() * t.view(1).shape[0] + t.dim(),
    "with an int of data": lambda t: t.item() / (torch.ones(3).int().sum().item() + 1),
}


@pytest.mark.parametrize("of", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", OF_PYTHON)
def test_python(name, of):
    """As results: Python computes them behind the graph."""
    f = OF_PYTHON[name]

    def program(t):
        t = t + 0
        return f(t), t * 2

    compiled = oxyfuel.compile(program, fullgraph=True)
    for v in VALUES:
        t = torch.tensor(v, dtype=of)
        same(result(compiled, t), result(program, t))
    assert oxyfuel.stats()["recompiles"] == oxyfuel.stats()["fallbacks"] == 0


RESULTS = {
    "text": lambda t: (f"{t.item():.3f}", f"loss {t.item() * 2} of {t.dim()}", str(t.item())),
    "formatted": lambda t: ("%.2e" % t.item(), format(t.item(), ">8.2f")),  # noqa: UP031
    "truth": lambda t: (bool((t > 0).all()), bool(torch.isnan(t))),
}


@pytest.mark.parametrize("name", RESULTS)
def test_texts_and_truths(name):
    program = RESULTS[name]
    compiled = oxyfuel.compile(program, fullgraph=True)
    for v in VALUES:
        same(compiled(torch.tensor(v)), program(torch.tensor(v)))
    assert oxyfuel.stats()["recompiles"] == 0


# From Python 3.12 on sum() carries what floats lose, which no op of the graph does.
SUMS = {"mean", "sum"} if sys.version_info >= (3, 12) else set()


@pytest.mark.parametrize("name", sorted(set(OF_PYTHON) - {"rounded", TEXT} - SUMS))
def test_python_beside_tensors(name):
    """In arithmetic with tensors: the graph computes them."""
    f = OF_PYTHON[name]

    def program(x, t):
        made = f(t + 0)
        made = made[0] if isinstance(made, tuple) else made
        return x * made, x.abs()

    compiled = oxyfuel.compile(program, fullgraph=True)
    x = torch.tensor([1.0, -0.5, 3.0])
    for v in VALUES:
        t = torch.tensor(v)
        same(result(compiled, x, t), result(program, x, t))
    assert oxyfuel.stats()["recompiles"] == oxyfuel.stats()["fallbacks"] == 0


def held(x, t):
    found = [t.item()]
    found.append(x.max().item() + found[0])
    best = {"loss": found[0], "all": found}
    best["loss"] += 1.0
    best.update(last=found[-1])
    return best, found[0] * x, [f * 2 for f in found]


class Meter:
    def __init__(self):
        self.total, self.count, self.history = 0.0, 0, []

    def update(self, value, n):
        self.total += value * n
        self.count += n
        self.history.append(value)

    @property
    def mean(self):
        return self.total / self.count


def metered(x, t):
    meter = Meter()
    meter.update(t.item(), x.shape[0])
    meter.update(x.mean().item(), 2)
    return meter.mean, meter.history, x / max(meter.mean, 1.0)


def clipped(x, t):
    norm = x.norm().item()
    scale = min(1.0, abs(t.item()) / (norm + 1e-6))
    return x * scale, norm


def closed(x, t):
    rate = t.item() * 0.5
    return (lambda y: y - rate * y)(x), rate


def generated(x, t):
    def values():
        yield t.item()
        yield x.sum().item()

    a, b = values()
    return a + b, x * a, dict(zip("ab", (a, b), strict=True))


PLACES = {f.__name__: f for f in (held, metered, clipped, closed, generated)}


@pytest.mark.parametrize("name", PLACES)
def test_places(name):
    program = PLACES[name]
    compiled = oxyfuel.compile(program, fullgraph=True)
    x = torch.tensor([1.0, -0.5, 3.0])
    for v in VALUES:
        same(compiled(x, torch.tensor(v)), program(x, torch.tensor(v)))
    assert oxyfuel.stats()["recompiles"] == oxyfuel.stats()["fallbacks"] == 0


def test_objects_of_before_the_call():
    a, b = Meter(), Meter()
    compiled = oxyfuel.compile(lambda m, t: m.update(t.item(), 2), fullgraph=True)
    for v in (0.25, 1.5, -3.0):
        compiled(a, torch.tensor(v))
        b.update(torch.tensor(v).item(), 2)
        assert vars(a) == vars(b)
    assert oxyfuel.stats()["recompiles"] <= 2  # of a count that changes


def assigned(x, t):
    y = x.clone()
    y[0] = t.item()
    y[1:] += t.item()
    return y


OF_TORCH = {
    "clamp": lambda x, t: (x.clamp(max=t.item()), torch.clamp(x, t.item(), 2.0)),
    "where": lambda x, t: torch.where(x > 0, t.item(), 0.0),
    "masked_fill": lambda x, t: x.masked_fill(x < 0, t.item()),
    "full": lambda x, t: (torch.full((2,), t.item()), torch.full_like(x, t.item())),
    "fill": lambda x, t: torch.ones(2).fill_(t.item()),
    "tensor": lambda x, t: (torch.tensor(t.item()), torch.tensor([t.item(), 2.0])),
    "new": lambda x, t: x.new_full((2,), t.item()),
    "alpha": lambda x, t: torch.add(x, x, alpha=t.item()),
    "pow": lambda x, t: x.abs() ** t.item(),
    "lerp": lambda x, t: torch.lerp(x, x * 2, t.item()),
    "linspace": lambda x, t: torch.linspace(0.0, t.item(), 3),
    "assigned": assigned,
    "slope": lambda x, t: F.leaky_relu(x, abs(t.item())),
    "threshold": lambda x, t: F.threshold(x, t.item(), 20.0),
    "pad": lambda x, t: F.pad(x, (1, 1), value=t.item()),
    "addcmul": lambda x, t: torch.addcmul(x, x, x, value=t.item()),
    "eps": lambda x, t: F.layer_norm(x, (3,), eps=abs(t.item())),
    "nan_to_num": lambda x, t: torch.nan_to_num(x / 0, t.item()),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
@pytest.mark.parametrize("name", OF_TORCH)
def test_torch(name, dtype):
    """Numbers that eager refuses to convert run in eager."""
    f = OF_TORCH[name]

    def program(x, t):
        return f(x, t * 2)

    compiled = oxyfuel.compile(program, fullgraph=True)
    x = torch.tensor([1.0, -0.5, 3.0], dtype=dtype)
    for v in VALUES:
        t = torch.tensor(v, dtype=torch.float64)
        same(result(compiled, x, t), result(program, x, t))
    assert oxyfuel.stats()["recompiles"] == oxyfuel.stats()["fallbacks"] == 0


def asked(x, t):
    kept = [t.item(), 2.0]
    y = x * kept[0]
    if sorted(kept)[0] < 0:
        y = y + 1
    return y + kept[0], kept


LOOKED_AT = {
    "sorted": asked,
    "a key": lambda x, t: (x + 1, {t.item(): 1}),
    "in a list": lambda x, t: (x + 1, t.item() in [0.3, 4.0]),
    "its class": lambda x, t: (x + 1, type(max(t.item(), 0)).__name__),
    "beside integers": lambda x, t: x.int() * max(t.item(), 0),
    "an extreme by key": lambda x, t: (x + 1, max([t.item(), 1.0], key=abs)),
    "an index": lambda x, t: x[[0, 1][t.item() > 0]],
}


@pytest.mark.parametrize("name", LOOKED_AT)
def test_code_that_looks_at_the_number(name):
    """A break there, behind which all goes on as in eager."""
    program = LOOKED_AT[name]
    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        compiled = oxyfuel.compile(program)
        x = torch.tensor([1.0, -0.5, 3.0])
        for v in VALUES:
            same(result(compiled, x, torch.tensor(v)), result(program, x, torch.tensor(v)))
    assert oxyfuel.stats()["fallbacks"] == 0


def test_what_is_printed(capsys):
    """Behind the graph, where a program says so to torch's compiler."""

    def program(x):
        print(f"loss {x.mean().item():.3f}", x.max().item(), end="\n")
        print(x.shape[0], "rows")
        return x + 1

    compiled = oxyfuel.compile(program, fullgraph=True)
    said = []
    for call in (compiled, program):
        for v in (0.5, 2.0):
            with torch._dynamo.config.patch(reorderable_logging_functions={print}):
                call(torch.tensor([v, v]))
        said.append(capsys.readouterr().out)
    assert said[0] == said[1] == "loss 0.500 0.5\n2 rows\nloss 2.000 2.0\n2 rows\n"


def test_gradients():
    """None through the number; those beside it are eager's."""

    def step(x, w):
        loss = (x @ w).square().mean()
        scale = min(1.0, 1.0 / (loss.item() + 1e-6))
        (loss * scale).backward()
        return loss.item(), scale

    with torch.enable_grad():
        weights = [torch.randn(3, 2, requires_grad=True) for _ in range(1)] * 2
        weights = [w.detach().clone().requires_grad_() for w in weights]
        compiled = oxyfuel.compile(step, fullgraph=True)
        for _ in range(3):
            x = torch.randn(4, 3)
            given, expected = compiled(x, weights[0]), step(x, weights[1])
            assert given == pytest.approx(expected)
            torch.testing.assert_close(weights[0].grad, weights[1].grad)
    assert oxyfuel.stats()["recompiles"] <= 1  # once there is a gradient


def test_what_is_logged(caplog):
    """Sizes and numbers of data in a message, or beside it: said behind the graph, from the line of
    the code."""
    logger = logging.getLogger("oxyfuel.a_test_of_floats")

    def program(x):
        logger.info(f"of {x.shape}")
        y = x * 2
        logger.warning("%d rows, %.2f of %s", x.shape[0], y.mean().item(), x.shape)
        logger.debug(f"not heard: {x.max().item()}")
        logger.error(f"loss {y.sum().item():.3f}")
        return y

    def said(call, n):
        caplog.clear()
        call(torch.full((n, 2), 0.5))
        return [(r.getMessage(), r.funcName, r.lineno, r.levelname) for r in caplog.records]

    with caplog.at_level(logging.INFO, logger="oxyfuel.a_test_of_floats"):
        compiled = oxyfuel.compile(program, fullgraph=True)
        for n in (3, 5, 4, 7):
            assert said(compiled, n) == said(program, n)
    assert oxyfuel.stats()["recompiles"] == 1
