"""Values that an operator refuses, in a graph compiled for values that it takes: eager's exception
and eager's inputs afterwards, and no access outside of a buffer (kernels run in front of pages that
may not be touched)."""

from __future__ import annotations

import warnings

import pytest
import torch
import torch.nn.functional as F

import oxyfuel


def table(*shape):
    return torch.arange(float(torch.Size(shape).numel())).reshape(shape)


def ints(*values):
    return torch.tensor(values)


# name: (function, tensors that it takes, tensors that it refuses)
INDICES = {
    "index": (lambda x, i: x[i] * 2, (table(5, 3), ints(0, 4, -1)), (table(5, 3), ints(0, 5, 1))),
    "index_negative": (lambda x, i: x[i] + 1, (table(5, 3), ints(-5)), (table(5, 3), ints(-6))),
    "index_two": (
        lambda x, i, j: x[i, j].exp(),
        (table(5, 3), ints(0, 4), ints(2, 0)),
        (table(5, 3), ints(0, 4), ints(2, 3)),
    ),
    "index_huge": (
        lambda x, i: x[:, i] * 2,
        (table(5, 3), ints(0, 2)),
        (table(5, 3), ints(0, 2**62)),
    ),
    "index_of_nothing": (
        lambda x, i: x[:, i],
        (torch.ones(2, 3, 0), ints(2)),
        (torch.ones(2, 0, 0), ints(0)),
    ),
    "index_put_to_nothing": (
        lambda x, i: x.index_put((i,), x.new_ones(())),
        (torch.ones(3, 0), ints(2)),
        (torch.ones(0, 0), ints(0)),
    ),
    "gather": (
        lambda x, i: x.gather(1, i) * 2,
        (table(4, 3), torch.zeros(4, 2, dtype=torch.int64)),
        (table(4, 3), torch.full((4, 2), 3)),
    ),
    "gather_negative": (
        lambda x, i: x.gather(0, i) * 2,
        (table(4, 3), torch.zeros(2, 3, dtype=torch.int64)),
        (table(4, 3), torch.full((2, 3), -1)),
    ),
    "index_select": (
        lambda x, i: x.index_select(0, i).relu(),
        (table(4, 3), ints(3, 0)),
        (table(4, 3), ints(4, 0)),
    ),
    "take": (lambda x, i: x.take(i) + 1, (table(4, 3), ints(11)), (table(4, 3), ints(12))),
    "take_along_dim": (
        lambda x, i: x.take_along_dim(i, 1),
        (table(4, 3), torch.zeros(4, 1, dtype=torch.int64)),
        (table(4, 3), torch.full((4, 1), 7)),
    ),
    "embedding": (
        lambda i, w: F.embedding(i, w) * 2,
        (ints(0, 6), table(7, 8)),
        (ints(0, 7), table(7, 8)),
    ),
    "embedding_negative": (
        lambda i, w: F.embedding(i, w) * 2,
        (ints(0, 6), table(7, 8)),
        (ints(0, -1), table(7, 8)),
    ),
    "index_put": (
        lambda x, i, v: x.index_put((i,), v) * 2,
        (table(5, 3), ints(0, 4), table(2, 3)),
        (table(5, 3), ints(0, 5), table(2, 3)),
    ),
    "index_put_accumulate": (
        lambda x, i, v: x.index_put((i,), v, accumulate=True),
        (table(5), ints(0, 4), table(2)),
        (table(5), ints(0, -6), table(2)),
    ),
    "index_add": (
        lambda x, i, v: x.index_add(0, i, v) * 2,
        (table(5, 3), ints(0, 4), table(2, 3)),
        (table(5, 3), ints(0, 5), table(2, 3)),
    ),
    "index_copy": (
        lambda x, i, v: x.index_copy(0, i, v) * 2,
        (table(5, 3), ints(0, 4), table(2, 3)),
        (table(5, 3), ints(0, 5), table(2, 3)),
    ),
    "index_fill": (
        lambda x, i: x.index_fill(0, i, 1.0) * 2,
        (table(5, 3), ints(0, 4)),
        (table(5, 3), ints(0, 5)),
    ),
    "scatter": (
        lambda x, i, v: x.scatter(0, i, v) * 2,
        (table(5, 3), torch.zeros(2, 3, dtype=torch.int64), table(2, 3)),
        (table(5, 3), torch.full((2, 3), 5), table(2, 3)),
    ),
    "scatter_add": (
        lambda x, i, v: x.scatter_add(1, i, v) * 2,
        (table(2, 4), torch.zeros(2, 3, dtype=torch.int64), table(2, 3)),
        (table(2, 4), torch.full((2, 3), -1), table(2, 3)),
    ),
    "scatter_reduce": (
        lambda x, i, v: x.scatter_reduce(0, i, v, "amax"),
        (table(5), ints(0, 1), table(2)),
        (table(5), ints(0, 9), table(2)),
    ),
    "index_put_in_place": (
        lambda x, i, v: x.index_put_((i,), v),
        (table(5, 3), ints(0, 4), table(2, 3)),
        (table(5, 3), ints(5, 0), table(2, 3)),
    ),
    "nll_loss": (
        lambda x, t: F.nll_loss(x, t),
        (table(4, 3), ints(0, 1, 2, 0)),
        (table(4, 3), ints(0, 1, 3, 0)),
    ),
    "cross_entropy": (
        lambda x, t: F.cross_entropy(x, t),
        (table(4, 3), ints(0, 1, 2, -100)),
        (table(4, 3), ints(0, 1, 2, -1)),
    ),
    "quantile": (
        lambda x, q: torch.quantile(x, q, 0) + x.nanquantile(q=q, dim=0),
        (table(4, 3), torch.tensor([0.2, 1.0])),
        (table(4, 3), torch.tensor([-0.1, 0.5])),
    ),
    "one_row_of_many": (
        lambda x, i: torch.cat([x[i], x[:1]]).softmax(-1),
        (table(300, 64), torch.arange(299)),
        (table(300, 64), torch.arange(2, 301)),
    ),
}


def no_zero(*shape, dtype=torch.int64):
    return torch.arange(1, torch.Size(shape).numel() + 1, dtype=dtype).reshape(shape)


def with_zero(*shape, dtype=torch.int64):
    values = no_zero(*shape, dtype=dtype)
    values.view(-1)[-1] = 0
    return values


DIVISIONS = {
    "floor_divide": lambda a, b: a // b + 1,
    "remainder": lambda a, b: a % b + 1,
    "fmod": lambda a, b: torch.fmod(a, b),
    "div_trunc": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    "div_floor_where": lambda a, b: torch.where(b > 0, a // b, a),
}


def outcome(f, tensors):
    """The result or the exception, and the tensors after the call."""
    given = [t.clone() for t in tensors]
    try:
        return f(*given), given
    except Exception as e:
        return e, given


def check(f, good, bad, monkeypatch):
    monkeypatch.setenv("OXYFUEL_STRICT", "1")
    monkeypatch.setenv("OXYFUEL_FENCE", "end")
    oxyfuel.reset()
    compiled = oxyfuel.compile(f)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for tensors in (good, bad, good):
            expected, expected_tensors = outcome(f, tensors)
            result, result_tensors = outcome(compiled, tensors)
            assert type(result) is type(expected), f"{result!r}, in eager {expected!r}"
            if isinstance(expected, Exception):
                assert tensors is bad and str(result) == str(expected)
            else:
                torch.testing.assert_close(result, expected, rtol=1e-6, atol=1e-6)
            for a, b in zip(result_tensors, expected_tensors):
                assert torch.equal(a, b)


@pytest.mark.parametrize("name", INDICES)
def test_index_out_of_range(name, monkeypatch):
    check(*INDICES[name], monkeypatch)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8], ids=str)
@pytest.mark.parametrize("name", DIVISIONS)
def test_division_of_integers_by_zero(name, dtype, monkeypatch):
    a = no_zero(3, 7, dtype=dtype)
    check(
        DIVISIONS[name], (a, no_zero(7, dtype=dtype)), (a, with_zero(7, dtype=dtype)), monkeypatch
    )


def test_most_negative_integer_by_minus_one(monkeypatch):
    low = torch.iinfo(torch.int64).min
    a, b = torch.tensor([low, 7]), torch.tensor([-1, -1])
    good = torch.tensor([6, 7]), torch.tensor([2, 3])
    for f in (lambda a, b: a // b, lambda a, b: a % b):
        check(f, good, (a, b), monkeypatch)


REFUSED = {
    "negative_size": lambda x: x.new_zeros(x.shape[0] - 9),
    "negative_view": lambda x: x.view(-3, 2),
    "mismatched_sizes": lambda x: x + x.new_ones(4),
    "mismatched_inner": lambda x: x @ x.new_ones(4, 4),
    "mismatched_dtypes": lambda x: x @ x.double().t(),
    "bad_dim": lambda x: x.sum(5),
    "bad_dims_twice": lambda x: x.sum((0, 0)),
    "bad_slice": lambda x: x.narrow(0, 1, 9),
    "bad_index_dtype": lambda x: x[x],
    "shift_by_a_float": lambda x: x.new_zeros(3, dtype=torch.int64) << 1.5,
    "bad_cat": lambda x: torch.cat([x, x.new_ones(1, 7)]),
    "result_of_another_dtype": lambda x: x.long().add_(1.5),
    "bad_expand": lambda x: x.expand(3, 3),
    "negative_repeat": lambda x: x.repeat(-1, 2),
    "bad_pad": lambda x: F.pad(x, (-9, 0)),
    "bad_window": lambda x: F.max_pool1d(x, 9),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_arguments(name, monkeypatch):
    f = REFUSED[name]
    monkeypatch.setenv("OXYFUEL_STRICT", "1")
    oxyfuel.reset()
    x = table(2, 3)
    expected, _ = outcome(f, [x])
    assert isinstance(expected, Exception)
    for _ in range(2):
        result, given = outcome(oxyfuel.compile(f), [x])
        assert type(result) is type(expected) and str(result) == str(expected)
        assert torch.equal(given[0], x)
