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
    "matrix rank": lambda x: torch.linalg.matrix_rank(x * NAN),
    "division": lambda x: x.long() // (x.long() * 0),
    "multinomial": lambda x: torch.multinomial(-x, 1),
    "no kernel for complex numbers": lambda x: torch.erfinv(x.to(torch.complex64)),
    "no kernel for bools": lambda x: x.bool() @ x.bool().t(),
    "no kernel for floats": lambda x: torch.gcd(x, x),
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


@pytest.mark.parametrize("name", ["svd", "put", "max unpool", "multi margin loss", "empty rows"])
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
