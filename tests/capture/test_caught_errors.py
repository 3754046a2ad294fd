"""Captured code that deals with what ops raise for the values that they meet: it gets what eager
raises, also where nobody reads what the op gives."""

import contextlib

import pytest
import torch
import torch.nn.functional as F

import oxyfuel

pytestmark = pytest.mark.usefixtures("strict")

NAN = float("nan")
PLACE = torch.tensor([99])
X = torch.arange(6.0).reshape(2, 3) + 1

# What raises for X.
RAISING = {
    "index": lambda x: x[PLACE],
    "gather": lambda x: x.gather(0, PLACE[:, None]),
    "embedding": lambda x: F.embedding(PLACE, x),
    "take": lambda x: x.take(PLACE),
    "put": lambda x: x.put(PLACE, x[0, :1]),
    "put_": lambda x: x.clone().put_(PLACE, x[0, :1]),
    "cross entropy": lambda x: F.cross_entropy(x, PLACE.expand(2)),
    "multi margin loss": lambda x: F.multi_margin_loss(x, PLACE.expand(2)),
    "binary cross entropy": lambda x: F.binary_cross_entropy(x, x),
    "embedding bag": lambda x: F.embedding_bag(PLACE % 2, x, PLACE),
    "max unpool": lambda x: F.max_unpool1d(x[None], PLACE.expand(1, 2, 3), 2),
    "histc": lambda x: torch.histc(x * NAN),
    "cholesky": lambda x: torch.linalg.cholesky(-x[:, :2]),
    "solve": lambda x: torch.linalg.solve(x[:, :2] * 0, x),
    "svd": lambda x: torch.linalg.svd(x * NAN),
    "eig": lambda x: torch.linalg.eig(x[:, :2] * NAN)[0],
    "cholesky_ex": lambda x: torch.linalg.cholesky_ex(-x[:, :2], check_errors=True),
    "segment_reduce": lambda x: torch.segment_reduce(x, "max", lengths=PLACE),
    "matrix rank": lambda x: torch.linalg.matrix_rank(x * NAN),
    "division": lambda x: x.long() // (x.long() * 0),
    "division by zero": lambda x: x.long() % 0,
    "multinomial": lambda x: torch.multinomial(-x, 1),
    "no kernel for complex numbers": lambda x: torch.erfinv(x.to(torch.complex64)),
    "no kernel for bools": lambda x: x.bool() @ x.bool().t(),
    "no kernel for floats": lambda x: torch.gcd(x, x),
    "no median of bools": lambda x: x.bool().median(),
    "no mode of complex numbers": lambda x: x.to(torch.complex64).mode(),
    "no sums of 8 bits": lambda x: x.to(torch.float8_e5m2).cumsum(0),
    "empty rows": lambda x: x[:, :0].index_select(0, PLACE),
}


def unread(raise_for):
    def f(x):
        try:
            raise_for(x)
        except (RuntimeError, IndexError) as e:
            return x - 1, type(e).__name__
        return x + 1, ""

    return f


def read(raise_for):
    def f(x):
        y = x.sin()
        try:
            y = raise_for(x)
        except (RuntimeError, IndexError):
            y = y * 2
        return y

    return f


def inner(raise_for):
    def g(x):
        return raise_for(x), x.cos()

    def f(x):
        with contextlib.suppress(RuntimeError, IndexError):
            with torch.no_grad():
                return g(x)[1]
        return x.sin()

    return f


@pytest.mark.parametrize("form", [unread, read, inner])
@pytest.mark.parametrize("name", RAISING)
def test_what_is_caught(name, form):
    f = form(RAISING[name])
    compiled = oxyfuel.compile(f)
    for _ in range(2):
        assert str(compiled(X.clone())) == str(f(X.clone()))


def in_turn(x):
    for jitter in (-100.0, 1.0):
        try:
            return torch.linalg.cholesky(x @ x.t() + jitter * torch.eye(2)), jitter
        except torch.linalg.LinAlgError:
            pass
    return None


def returned_by_finally(x):
    try:
        RAISING["histc"](x)
    finally:
        return x * 2  # noqa: B012


def left_by_finally(x):
    for i in range(3):
        try:
            RAISING["no kernel for bools"](x)
        finally:
            if i:
                break  # noqa: B012
    return x


def raised_as_another(x):
    try:
        return x[PLACE]
    except IndexError as e:
        raise ValueError("no place") from e


def in_a_generator(x):
    def items():
        yield x + 1
        yield x[PLACE]

    found = []
    try:
        for item in items():
            found.append(item)
    except IndexError:
        found.append("caught")
    return found


def behind_a_write(x):
    x.add_(1)
    try:
        y = x[PLACE]
    except IndexError:
        y = x.mul_(2) + torch.rand(2, 3)
    return y


def of_a_manager(x):
    @contextlib.contextmanager
    def lenient():
        with contextlib.suppress(IndexError):
            yield

    with lenient():
        return x[PLACE]
    return x * 3


def behind_breaks(x):
    y = x.sin()
    oxyfuel.graph_break()
    try:
        y = y[PLACE]
        oxyfuel.graph_break()
    except IndexError:
        y = y + 5
    return y * 2


FORMS = [in_turn, returned_by_finally, left_by_finally, raised_as_another, in_a_generator]
FORMS += [behind_a_write, of_a_manager, behind_breaks]


@pytest.mark.parametrize("f", FORMS)
def test_forms(f):
    compiled = oxyfuel.compile(f)
    results = []
    for call in (f, compiled, f, compiled):
        x = X.clone()
        torch.manual_seed(0)
        try:
            results.append(str((call(x), x)))
        except Exception as e:
            results.append((repr(e), repr(e.__cause__)))
    assert results[0] == results[1] == results[2] == results[3]


def test_a_place_that_is_one_in_other_calls():
    def f(x, i):
        try:
            return x[i] * 2
        except IndexError:
            return x.sum()

    compiled = oxyfuel.compile(f)
    for i in (1, 9, 0, -1, -5):
        place = torch.tensor([i])
        assert str(compiled(X, place)) == str(f(X, place)), i


@pytest.mark.parametrize("name", RAISING)
def test_nothing_is_caught_and_nothing_read(name):
    def f(x):
        RAISING[name](x)
        return x + 1

    for call in (f, oxyfuel.compile(f)):
        with pytest.raises((RuntimeError, IndexError)):
            call(X.clone())


def test_nothing_is_added_to_nothing():
    """Eager looks at no place then."""

    def f(x, i):
        return x.index_add(0, i, x.new_ones(1, 3))

    x = torch.ones(0, 3)
    assert str(oxyfuel.compile(f)(x, PLACE)) == str(f(x, PLACE))
