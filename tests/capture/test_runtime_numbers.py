"""Numbers that are another one at each call are inputs of the graph from their second value on."""

import math

import pytest
import torch

import oxyfuel

pytestmark = pytest.mark.usefixtures("strict_without_grad")

FLOATS = (2.0, 3.0, -4.5, 1e-3, math.inf, 0.1)
INTS = (1, 2, 3, -70, 11)


def describe(value):
    """What two results are compared by."""
    if isinstance(value, torch.Tensor):
        return value.dtype, value.shape, value.stride(), value.nan_to_num(7.5).tolist()
    if isinstance(value, (tuple, list)):
        return type(value), [describe(item) for item in value]
    return type(value), repr(value)


def outcome(f, args):
    args = [a.clone() if isinstance(a, torch.Tensor) else a for a in args]
    try:
        return describe(f(*args)), describe(args)
    except Exception as e:
        return type(e), str(e)


def check(f, calls, graphs):
    """As eager at each call; `graphs` captures in all."""
    compiled = oxyfuel.compile(f)
    for args in calls:
        assert outcome(compiled, args) == outcome(f, args), args
    assert oxyfuel.stats()["graphs"] == graphs


def halve(n):
    return n * 0.5


def with_default(x, n, *rest, k=1.0):
    return x * n + k


USES = {
    "mul": lambda x, n: x * n,
    "add": lambda x, n: x + n,
    "sub": lambda x, n: x - n,
    "div": lambda x, n: x / n,
    "reflected": lambda x, n: (n * x, n + x, n - x),
    "compare": lambda x, n: (x > n, x <= n, n < x, x == n, x != n),
    "in place": lambda x, n: x.add_(n).mul_(n),
    "augmented": lambda x, n: exec_augmented(x, n),
    "functions": lambda x, n: torch.mul(x, n) + torch.add(x, n),
    "methods": lambda x, n: x.mul(n).sub(n).div(n),
    "arithmetic": lambda x, n: x * (n * 3 - 1) + (2 - n),
    "negative": lambda x, n: x + -n,
    "halves": lambda x, n: x * (n / 2),
    "divided": lambda x, n: (n / x, (n * 2) / (x + 3)),
    "inlined": lambda x, n: x * halve(n) - halve(n=n),
    "packed": lambda x, n: with_default(x, n, n, n),
    "returned": lambda x, n: (x * n, n, n + 1),
    "twice": lambda x, n: (x * n).float() + x.double() * n,
}


def exec_augmented(x, n):
    y = x.clone()
    y += n
    y *= n
    y -= n
    return y


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", USES)
def test_floats(name, dtype):
    x = torch.randn(3, 5).to(dtype)
    check(USES[name], [(x, n) for n in FLOATS], 2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.int32])
@pytest.mark.parametrize("name", ["mul", "add", "sub", "reflected", "compare", "arithmetic"])
def test_ints(name, dtype):
    x = (torch.randn(3, 5) * 10).to(dtype)
    check(USES[name], [(x, n) for n in INTS], 2)


def test_several_numbers_vary_at_once():
    calls = [(torch.randn(4), a, b) for a, b in zip(FLOATS, INTS, strict=False)]
    check(lambda x, a, b: x * a + b, calls, 2)


def test_layouts():
    x = torch.randn(6, 4)
    for t in (x.t(), x[::2], x[:0], x[1:2].expand(3, 4)):
        oxyfuel.reset()
        check(lambda x, n: x * n + n, [(t, n) for n in FLOATS], 2)


@pytest.mark.parametrize(
    "f",
    [
        lambda x, n: x**n,
        lambda x, n: torch.clamp(x, n),
        lambda x, n: x.amax() * n,
        lambda x, n: x * math.sqrt(abs(n)),
        lambda x, n: x + f"{n}".count("1"),
        lambda x, n: x * int(n > 2.5),
        lambda x, n: [x * n for _ in range(int(n) % 3)],
        lambda x, n: x.add(x, alpha=n),
        lambda x, n: x * {"k": n}["k"],
        lambda x, n: x * sorted([n, 1.0])[0],
        lambda x, n: x * max(n, 1.0) * n,
    ],
)
def test_where_the_value_is_needed(f):
    """A capture for each value, or for each answer; the result is eager's."""
    compiled = oxyfuel.compile(f)
    x = torch.rand(3, 4)
    for n in (2.0, 3.0, 4.5, 2.0):
        assert outcome(compiled, (x, n)) == outcome(f, (x, n))


def test_what_only_eager_can_do():
    """Numbers out of the dtype's range, beyond 64 bits, and a division by zero."""
    half, byte = torch.randn(3).half(), torch.arange(3, dtype=torch.int8)
    scale = lambda x, n: (x * n, x > n)  # noqa: E731
    check(scale, [(half, n) for n in (1.0, 2.0, 1e6, -1e300, math.nan, 3.0)], 2)
    oxyfuel.reset()
    check(scale, [(byte, n) for n in (1, 2, 300, -(2**70), 5)], 2)
    oxyfuel.reset()
    check(lambda x, n: x * (1.0 / n), [(half, n) for n in (1.0, 2.0, 0.0, 4.0)], 2)


def test_another_type_is_another_capture():
    x = torch.randn(3)
    check(lambda x, n: x * n, [(x, n) for n in (1.0, 2.0, 3, 4, 5, True, 6.0)], 4)


class Scaled(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(4, 4)
        self.scale, self.steps = 1.0, 0

    def forward(self, x, t, *rest):
        self.steps += 1
        return self.inner(x) * self.scale / t + self.steps


class Outer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.part = Scaled()

    def forward(self, x, t):
        return self.part(x, t) + self.part(x, t * 2, t)


@pytest.mark.parametrize("kind", [Scaled, Outer])
def test_modules(kind):
    """Arguments, attributes and counters; through the call of a module."""
    theirs = kind()
    ours = kind()
    ours.load_state_dict(theirs.state_dict())
    compiled = oxyfuel.compile(ours)
    for i, n in enumerate(FLOATS):
        x = torch.randn(2, 4)
        for m in (ours, theirs):
            getattr(m, "part", m).scale = 1.0 + i
        assert describe(compiled(x, n)) == describe(theirs(x, n))
        assert getattr(ours, "part", ours).steps == getattr(theirs, "part", theirs).steps
    assert oxyfuel.stats()["graphs"] == 2


RATE = 1.0


def test_globals_and_closures(monkeypatch):
    rate = 2.0

    def step(x):
        return x * RATE + x * rate

    compiled = oxyfuel.compile(step)
    x = torch.randn(5)
    for n in FLOATS:
        rate = n
        monkeypatch.setitem(globals(), "RATE", n + 1)
        assert describe(compiled(x)) == describe(step(x))
    assert oxyfuel.stats()["graphs"] == 2


def test_behind_a_graph_break():
    def f(x, n):
        y = x * n
        oxyfuel.graph_break()
        return y + n * 2

    check(f, [(torch.randn(3), n) for n in FLOATS], 4)


def test_a_number_that_is_written():
    class Holder:
        total = 0.0

    ours, theirs = Holder(), Holder()

    def f(h, x, n):
        h.total = h.total + n
        return x * h.total

    compiled = oxyfuel.compile(f)
    x = torch.randn(3)
    for n in FLOATS:
        assert describe(compiled(ours, x, n)) == describe(f(theirs, x, n))
        assert repr(ours.total) == repr(theirs.total)


def test_no_input_is_shared_with_the_result():
    """Nothing that is given back or written is the number's own tensor."""
    compiled = oxyfuel.compile(lambda x, n: (x * n, x.clone().mul_(n)))
    for n in FLOATS:
        a, b = compiled(torch.ones(3), n)
        a.add_(1), b.add_(1)
        assert torch.equal(a, torch.full((3,), n) + 1) and torch.equal(a, b)


@pytest.mark.parametrize("name", ["arithmetic", "inlined", "packed", "returned", "augmented"])
def test_with_a_break_at_any_instruction(name):
    x = torch.randn(3)
    for place in range(1, 40):
        oxyfuel.reset()
        compiled = oxyfuel.compile(USES[name], options={"break_at": place})
        for n in FLOATS[:4]:
            assert outcome(compiled, (x, n)) == outcome(USES[name], (x, n)), (place, n)
