"""Numbers that are another one at each call are inputs of the graph from their second value on."""

import math

import pytest
import torch

import oxyfuel

pytestmark = pytest.mark.usefixtures("strict_without_grad")

aten = torch.ops.aten
FLOATS = (2.0, 3.0, -4.5, 1e-3, math.inf, 0.1)
INTS = (1, 2, 3, -70, 11)


def describe(value):
    """What two results are compared by."""
    if isinstance(value, torch.Tensor):
        return value.dtype, value.shape, value.stride(), value.nan_to_num(7.5).tolist()
    if isinstance(value, (tuple, list)):
        return type(value), [describe(item) for item in value]
    if isinstance(value, dict):
        return {key: describe(item) for key, item in value.items()}
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


def check_alone(f, calls, graphs=2):
    """To the last bit as captures for one number each compute it; these are within a few roundings
    of eager."""
    compiled = oxyfuel.compile(f)
    for args in calls:
        ours, eager = compiled(*args), f(*args)
        assert describe(ours) == describe(oxyfuel.compile(f)(*args)), args
        torch.testing.assert_close(ours, eager, equal_nan=True)
    assert oxyfuel.stats()["graphs"] == graphs + len(calls)


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
    "ops": lambda x, n: (aten.mul(x, n), aten.sub(n, x), aten.gt(x, n), aten.add_(x.clone(), n)),
    "returned": lambda x, n: (x * n, n, n + 1),
    "twice": lambda x, n: (x * n).float() + x.double() * n,
    "clamp": lambda x, n: (x.clamp(n), torch.clamp(x, max=n), x.clip(min=n), x.clone().clamp_(n)),
    "bounds": lambda x, n: (x.clamp(-n, n), x.clamp(0.25, n), torch.clamp(x, min=n, max=1)),
    "one bound": lambda x, n: (torch.clamp_min(x, n), x.clamp_max(n), x.clamp(min=n, max=None)),
    "remainder": lambda x, n: (x % n, n % x, torch.remainder(x, n), x.fmod(n)),
    "floor": lambda x, n: (x // n, n // x, x.floor_divide(n), x.div(n, rounding_mode="floor")),
    "augmented remainder": lambda x, n: remainder_in_place(x, n),
    "in place by masks": lambda x, n: x.clone().masked_fill_(x > 0, n),
    "masks": lambda x, n: (
        x.masked_fill(x > 0, n),
        torch.where(x > 0, x, n),
        torch.where(x > 0, n, x),
    ),
}


def remainder_in_place(x, n):
    y = x.clone()
    y %= n
    z = x.clone()
    z //= n
    return y, z


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
@pytest.mark.parametrize(
    "name",
    [
        "mul",
        "add",
        "sub",
        "ops",
        "reflected",
        "compare",
        "arithmetic",
        "clamp",
        "one bound",
        "masks",
    ],
)
def test_ints(name, dtype):
    x = (torch.randn(3, 5) * 10).to(dtype)
    check(USES[name], [(x, n) for n in INTS], 2)


@pytest.mark.parametrize(
    "f",
    [
        lambda x: aten.add(x, 5) + aten.add.Tensor(x, 5) + aten.add(5, x),
        lambda x: aten.add(5, 6) + x,
        lambda x: aten.div(5, 2) + aten.mul.Tensor(2, 3.5) * x,
        lambda x: aten.sub(aten.floor_divide(7, 2), x),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int8, torch.bool])
def test_numbers_that_ops_take_for_tensors(f, dtype):
    compiled, x = oxyfuel.compile(f, fullgraph=True), torch.arange(6).to(dtype)
    assert outcome(compiled, (x,)) == outcome(f, (x,))


# Computed as eager does up to a rounding or two.
MIXED = {
    "alpha": lambda x, n: (x.add(x, alpha=n), torch.sub(x, x * 3, alpha=n)),
    "blends": lambda x, n: (torch.lerp(x, x * 3, n), x.lerp(-x, weight=n)),
    "products": lambda x, n: (x.addcmul(x, x, value=n), torch.addcdiv(x, x, x + 9, value=n)),
    "exponent": lambda x, n: (x**n, torch.pow(x, n), x.pow(n * 1), aten.pow(x, n)),
    "base": lambda x, n: (n**x, torch.pow(n, x)),
}
DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", MIXED)
def test_mixed_floats(name, dtype):
    special = [0.0, -0.0, math.inf, -math.inf, math.nan]
    x = torch.cat([torch.randn(30), torch.tensor(special)]).to(dtype)
    numbers = (0.7, 2.5, 1.0, -3.5, 4.0, 0.0, math.inf, math.nan, 0.4999999, 0.5)
    check_alone(MIXED[name], [(x, n) for n in numbers])


@pytest.mark.parametrize("dtype", DTYPES)
def test_exponents_with_short_cuts(dtype):
    """x ** 2 is x * x: the graph chooses when it runs."""
    x = torch.cat([torch.randn(30), torch.tensor([0.0, -0.0, math.inf, -math.inf, math.nan])])
    for numbers in ((2.0, 3.0, 0.5, -0.5, -1.0, -2.0, 1.0, 0.0), (5, 2, 3, -1, -2, 1, 0, 7)):
        oxyfuel.reset()
        check_alone(MIXED["exponent"], [(x.to(dtype), n) for n in numbers])


def test_alpha_of_integers():
    x = torch.arange(12).reshape(3, 4)
    check(lambda x, n: (x.add(x, alpha=n), torch.sub(x, x * 3, alpha=n)), [(x, n) for n in INTS], 2)


@pytest.mark.parametrize("backend", ["eager", "aot_eager", lambda graph, _: graph.forward])
@pytest.mark.parametrize("name", ["clamp", "bounds", "remainder", "masks", *MIXED])
def test_other_backends(name, backend):
    x, f = torch.randn(3, 5), {**USES, **MIXED}[name]
    compiled = oxyfuel.compile(f, backend=backend)
    for n in (0.3, 2.0, 3.0, -0.5, 4.5):
        assert outcome(compiled, (x, n)) == outcome(f, (x, n))
    assert oxyfuel.stats()["graphs"] == 2


def test_a_graph_that_is_recorded_again():
    """Another state of torch: the graph's calls run once more, on inputs of which some are
    numbers."""
    x, y = torch.randn(3, 5), torch.randn(3, 5)
    compiled = oxyfuel.compile(lambda x, y, n: torch.add(x, y, alpha=n) ** 2 + x**n)
    for n in (2.0, 3.0, -1.0):
        compiled(x, y, n)
    with torch.inference_mode():
        for n in (-2.0, 2.0, 3.0):
            expected = torch.add(x, y, alpha=n) ** 2 + x**n
            assert describe(compiled(x, y, n)) == describe(expected)


def test_what_eager_refuses():
    """The same error at each call."""
    x, whole = torch.randn(4), torch.arange(4)
    for f, args in (
        (lambda x, n: torch.clamp(x, min=x, max=n), (x,)),
        (lambda x, n: x.add(x, alpha=n), (whole,)),
        (lambda x, n: x.add(2.0, alpha=n, beta=1), (x,)),
        (lambda x, n: torch.lerp(x, x, n), (whole,)),
    ):
        oxyfuel.reset()
        compiled = oxyfuel.compile(f)
        for n in (1.5, 2.5, 3.5):
            expected = outcome(f, (*args, n))
            assert issubclass(expected[0], Exception)
            assert outcome(compiled, (*args, n)) == expected


def test_what_is_out_of_the_range_of_a_dtype():
    half = torch.randn(3).half()
    for f in (
        lambda x, n: x.add(x, alpha=n),
        lambda x, n: x.clamp(n),
        lambda x, n: x.masked_fill(x > 0, n),
    ):
        oxyfuel.reset()
        check(f, [(half, n) for n in (1.0, 2.0, 1e6, -1e300, 0.5)], 2)


def test_in_dicts_of_arguments():
    """A function with **kwargs, and what a dict or an attribute holds."""

    def scaled(x, **options):
        return torch.add(x, x, alpha=options["scale"]) * options["rate"]

    compiled = oxyfuel.compile(scaled)
    x = torch.randn(5)
    for n in FLOATS:
        given = {"scale": n, "rate": n + 1}
        assert describe(compiled(x, **given)) == describe(scaled(x, **given))
    assert oxyfuel.stats()["graphs"] == 2


class Configured(torch.nn.Module):
    def forward(self, x, *, rate=1.0, **options):
        return self.scaled(x, **options) * rate + options["shift"]

    def scaled(self, x, scale, **rest):
        return x * scale + rest["shift"]


def test_in_keywords_of_modules():
    module = Configured()
    compiled = oxyfuel.compile(module)
    x = torch.randn(5)
    for n in FLOATS:
        given = {"scale": n, "rate": n + 1, "shift": n * 2}
        assert describe(compiled(x, **given)) == describe(module(x, **given))
    assert oxyfuel.stats()["graphs"] == 2


def test_keywords_that_somebody_looks_at():
    """The dict of ** is one object, whoever reads and writes it."""

    def inner(x, **options):
        first = x * options["scale"]
        options["scale"] = 5.0
        copied = dict(options)
        return first * options["scale"], copied, options.pop("scale"), options, len(options)

    def forward(x, **options):
        return inner(x, **options), inner(x, scale=options["scale"], other=1), options

    def later(x, **options):
        y = inner(x, **options)[0]
        oxyfuel.graph_break()
        return inner(y, **options), sorted(options)

    for f in (forward, later):
        oxyfuel.reset()
        compiled = oxyfuel.compile(f)
        for n in FLOATS:
            x = torch.ones(3)
            assert describe(compiled(x, scale=n, bias=2)) == describe(f(x, scale=n, bias=2))


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
        lambda x, n: torch.nn.functional.hardtanh(x, -n, n),
        lambda x, n: torch.nn.functional.elu(x, n),
        lambda x, n: x.amax() * n,
        lambda x, n: x * math.sqrt(abs(n)),
        lambda x, n: x + f"{n}".count("1"),
        lambda x, n: x * int(n > 2.5),
        lambda x, n: [x * n for _ in range(int(n) % 3)],
        lambda x, n: torch.full_like(x, n),
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
    torch.manual_seed(0)  # what cancels would be off by more than rounding
    theirs = kind()
    ours = kind()
    ours.load_state_dict(theirs.state_dict())
    compiled = oxyfuel.compile(ours)
    for i, n in enumerate(FLOATS):
        x = torch.randn(2, 4)
        for m in (ours, theirs):
            getattr(m, "part", m).scale = 1.0 + i
        torch.testing.assert_close(compiled(x, n), theirs(x, n))
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


def test_items_of_a_list_that_vary():
    def run(x, items):
        items[0] += sum(items)
        items[0] = max(items) + len(items)
        return x + 1

    compiled = oxyfuel.compile(run)
    mine, theirs = [1, 2, 3], [1, 2, 3]
    for _ in range(4):
        compiled(torch.ones(1), mine), run(torch.ones(1), theirs)
        assert mine == theirs


def test_numbers_in_merged_keywords():
    def run(x, n):
        return dict(a=n, **{"b": n}), x * n

    for place in range(1, 20):
        compiled = oxyfuel.compile(run, options={"break_at": place})
        for n in INTS:
            assert describe(compiled(torch.ones(2), n)) == describe(run(torch.ones(2), n))


# What Python computes of a float that varies: by each call, in front of the graph.
COMPUTED = {
    "abs": abs,
    "fabs": math.fabs,
    "sqrt": lambda s: math.sqrt(abs(s)),
    "exp": lambda s: math.exp(-s * s),
    "log": lambda s: math.log(s * s + 1, 2),
    "schedule": lambda s: 0.5 * (1 + math.cos(math.pi * s)),
    "difference": lambda s: (1 - s) ** 2,
    "power": lambda s: 2**s,
    "pow": lambda s: math.pow(s, 2),
    "floor_division": lambda s: s // 0.3 + s % 0.3,
    "divmod": lambda s: sum(divmod(s, 0.3)),
    "quotient": lambda s: 2 / s,
    "float": lambda s: float(s) * 2,
    "rounded": lambda s: round(s, 1),
    "copysign": lambda s: math.copysign(2.0, s),
    "extremes": lambda s: max(s, 0.25, 1 - s) + min(s, 0.5),
    "sum": lambda s: sum([s, s * 2, 1 - s]),
    "sum_that_loses": lambda s: sum([1, s, 1e16, 3, 0.5, -1e16]) + sum([s] * 10, 0.5),
    "in_a_list": lambda s: [abs(s), s][0],
}


@pytest.mark.parametrize("name", COMPUTED)
def test_what_python_computes_of_floats(name):
    compute = COMPUTED[name]

    def program(x, s):
        return x * compute(s), compute(s)

    check(program, [(torch.arange(6.0), s) for s in (0.1, 0.2, -0.3, 0.45, 1.5, 2.0)], graphs=2)


# Each truth has a capture, an int is a symbol; the numbers are those of the first call and of one
# for each answer.
ANSWERS = {
    "int": (lambda s: int(s * 10), [0.1, 0.2, 0.25, 0.29, 0.3, 0.35], 2),
    "round": (round, [0.1, 0.2, -0.3, 0.7, 1.2, 0.4], 2),
    "floor": (lambda s: math.floor(abs(s) * 3), [0.1, 0.2, -0.3, 0.4, -0.5, 0.6], 2),
    "compared": (lambda s: s * 2 > 0.7, [0.1, 0.2, 0.3, 0.4, 0.5, 0.1], 3),
    "isfinite": (math.isfinite, [0.1, 0.2, math.inf, 0.3, math.nan, 0.4], 3),
    "isnan": (lambda s: math.isnan(s * 2), [0.1, 0.2, math.inf, 0.3, math.nan, 0.4], 3),
    "isclose": (lambda s: math.isclose(s, 0.3), [0.1, 0.2, 0.3, 0.3 + 1e-12, 0.4, 0.5], 3),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_what_python_asks_of_floats(name):
    ask, values, graphs = ANSWERS[name]
    check(lambda x, s: (x * ask(s), ask(s)), [(torch.ones(3), s) for s in values], graphs)


def test_what_raises_for_some_floats():
    values = (0.1, 0.2, 4.0, -1.0, 0.0, 0.3, math.inf, math.nan)
    for ask in (math.sqrt, math.log, math.sin, lambda s: 2 / s, lambda s: s**0.5):
        compiled = oxyfuel.compile(lambda x, s, ask=ask: x * ask(s))
        for s in values:
            args = torch.ones(3), s
            assert outcome(compiled, args) == outcome(lambda x, s, ask=ask: x * ask(s), args), s


def test_many_steps():
    """A number of more steps than are carried on is looked at."""

    def program(x, s):
        for _ in range(600):
            s = s * 1.001 + 1
        return x * s

    check(program, [(torch.ones(3), s) for s in (0.5, 1.5, 2.5)], graphs=3)


def test_a_rate_on_an_object():
    class Config:
        rate = 0.1

    config = Config()

    def program(x):
        return x * math.sqrt(config.rate)

    compiled = oxyfuel.compile(program)
    for config.rate in (0.1, 0.2, 0.3, 0.4):
        assert outcome(compiled, (torch.ones(3),)) == outcome(program, (torch.ones(3),))
    assert oxyfuel.stats()["recompiles"] == 1
