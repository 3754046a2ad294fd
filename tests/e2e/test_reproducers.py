"""Small programs that once differed from eager or fell back to it, and their neighbours."""

import logging
import warnings

import pytest
import torch
import torch.nn.functional as F

import oxyfuel


@pytest.fixture(autouse=True)
def strict(monkeypatch):
    monkeypatch.setenv("OXYFUEL_STRICT", "1")
    with torch.no_grad():
        yield


def same(f, *make):
    """Results, layouts, and what the arguments are afterwards, or the exception: at two calls as in
    eager."""
    compiled = oxyfuel.compile(f)
    for _ in range(2):
        assert outcome(compiled, make) == outcome(f, make)


def outcome(f, make):
    arguments = [m() for m in make]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            results = f(*arguments)
        except Exception as e:
            return type(e).__name__, str(e)
    results = results if isinstance(results, tuple) else (results,)
    return [(t.dtype, t.shape, t.stride(), str(t.tolist())) for t in (*results, *arguments)]


FLOATS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]


@pytest.mark.parametrize("exponent", [True, False, 0, 1, 2])
@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int64, torch.float32])
def test_powers_by_booleans_and_small_integers(dtype, exponent):
    same(lambda x: x**exponent, lambda: torch.tensor([0, 1, 1, 0]).to(dtype))


@pytest.mark.parametrize("exponent", [1e-320, 1e-46, 1e300, -1e300, 5e-324])
@pytest.mark.parametrize("count", [3, 8, 40])
def test_powers_by_what_single_precision_does_not_hold(exponent, count):
    same(lambda x: x**exponent, lambda: torch.arange(float(count)))


@pytest.mark.parametrize("form", [lambda x: x.T, lambda x: x[:, ::2], lambda x: x.expand(2, 4, 6)])
@pytest.mark.parametrize("count", [1, 6, 100])
def test_isin_gives_new_memory(form, count):
    def f(x, y):
        return torch.isin(form(x), y), torch.isin(form(x), 3), torch.isin(form(x), y, invert=True)

    same(f, lambda: torch.arange(24).reshape(4, 6), lambda: torch.arange(count))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("mode", ["floor", "trunc", None])
def test_quotients_that_overflow(dtype, mode):
    values = [1e-40, -1e-40, 1e-45, 1.2e-38, 0.0, -0.0, 3.0, -3.0, float("inf"), float("nan"), 1e38]

    def f(x, y):
        return torch.div(x, y, rounding_mode=mode)

    a, b = torch.meshgrid(torch.tensor(values), torch.tensor(values), indexing="ij")
    same(f, lambda: a.to(dtype).clone(), lambda: b.to(dtype).clone())
    same(lambda x: 2 // x, lambda: torch.tensor(values).repeat(5).to(dtype))


@pytest.mark.parametrize("to", [torch.int8, torch.uint8])
def test_booleans_viewed_as_bytes(to):
    same(
        lambda x: (x.view(to) + 1, x.view(to).sum(), (~x).view(to) * 2),
        lambda: torch.tensor([True, False]),
    )
    same(lambda x: (x == 1).view(to).sum(), lambda: torch.arange(3))
    same(lambda x: x.view(torch.bool).any(), lambda: torch.tensor([0, 1, 0], dtype=to))


def with_out(op):
    def f(x, out):
        returned = op(x, out)
        return out * 2, returned

    return f


@pytest.mark.parametrize(
    "op",
    [
        lambda x, out: torch.sum(x, 0, out=out),
        lambda x, out: torch.add(x[0], 1, out=out),
        lambda x, out: torch.cumsum(x[0], 0, out=out),
        lambda x, out: torch.index_select(x[0], 0, torch.tensor([0, 1, 1, 0]), out=out),
    ],
    ids=["sum", "add", "cumsum", "index_select"],
)
@pytest.mark.parametrize(
    "out",
    [
        lambda: torch.zeros(4),
        lambda: torch.zeros(8)[::2],
        lambda: torch.zeros(0),
        lambda: torch.zeros(2, 7),
        lambda: torch.zeros(2, 7)[:, ::2],
        lambda: torch.zeros(7, 2).t(),
        lambda: torch.zeros(1),
        lambda: torch.zeros(4, dtype=torch.float64),
        lambda: torch.zeros(4, dtype=torch.int64),
    ],
    ids=["fits", "strided", "empty", "larger", "larger-strided", "transposed", "one", "f64", "i64"],
)
def test_out_of_an_argument(op, out):
    same(with_out(op), lambda: torch.arange(12.0).reshape(3, 4), out)


def test_out_that_resizes_a_view_leaves_what_it_views():
    def f(x):
        a = x + 1
        b = a.swapaxes(0, -1)
        torch.sum(x, -2, out=b)
        return a, b

    same(f, lambda: torch.arange(16).reshape(8, 2))


@pytest.mark.parametrize(
    "op",
    [
        lambda x: torch.sum(x, 0, out=x),
        lambda x: torch.prod(x, 0, out=x),
        lambda x: torch.cumsum(x, 0, out=x),
        lambda x: torch.add(x, x, out=x),
        lambda x: torch.neg(x, out=x),
    ],
    ids=["sum", "prod", "cumsum", "add", "neg"],
)
def test_out_that_is_the_operand(op):
    same(lambda x: (op(x), x + 1), lambda: torch.tensor(5.0))


def test_shift_by_more_than_64_bits():
    same(lambda x: x << 2**63, lambda: torch.arange(4))


def test_lines_of_warnings_of_torch():
    def drops(x):
        return F.dropout2d(x, 0.5, True)

    def softens(x):
        y = x + 1
        return F.softmax(y)

    def lines(f):
        with warnings.catch_warnings(record=True) as given:
            warnings.simplefilter("always")
            for _ in range(3):
                f(torch.ones(1, 3, 4))
        return [(w.lineno, w.filename, w.category, str(w.message)) for w in given]

    for f in (drops, softens):
        assert lines(f) and lines(oxyfuel.compile(f)) == lines(f)


def test_log_messages_behind_a_break_name_the_function():
    names = []

    class Handler(logging.Handler):
        def emit(self, record):
            names.append(record.funcName)

    log = logging.getLogger("test_reproducers")
    log.addHandler(Handler())
    log.setLevel("INFO")
    log.propagate = False

    def f(x):
        oxyfuel.graph_break()
        log.info("sum %.1f", (x + 1).sum().item())
        return x

    oxyfuel.compile(f)(torch.ones(2))
    assert names == ["f"]
