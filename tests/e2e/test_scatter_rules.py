"""Ops that write at loaded places, compiled, against eager: duplicates, dtypes, layouts, wrong
indices, in-place writes."""

from __future__ import annotations

import pytest
import torch
from test_loop_rules import FLOATS, check, eps, layouts

import oxyfuel

INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
DTYPES = (*FLOATS, *INTEGERS)


def values(*sizes, dtype=torch.float32):
    return torch.randint(-8 if dtype.is_signed else 0, 9, sizes).to(dtype)


def places(rows: int, *sizes) -> torch.Tensor:
    return torch.randint(0, rows, sizes)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_scatter(dtype, dim):
    for x in layouts(values(6, 9, dtype=dtype)):
        index, source = places(6, 5, 6), values(6, 7, dtype=dtype)
        check(lambda a, i, s: torch.scatter_add(a, dim, i, s), x, index, source)
        check(lambda a, i, s: torch.scatter(a, dim, i, s), x, index, source)
        check(lambda a, i: torch.scatter(a, dim, i, 3), x, index)
    for reduce in ("sum", "prod", "amax", "amin", "mean"):
        for include in (True, False):
            check(
                lambda a, i, s, r=reduce, k=include: torch.scatter_reduce(
                    a, dim, i, s, r, include_self=k
                ),
                x,
                index,
                source,
                tolerance=2 * eps(dtype),
                loops=reduce != "mean" or dtype.is_floating_point,
            )


@pytest.mark.filterwarnings("ignore:index_reduce")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("dim", [0, 1, 2])
def test_rows(dtype, dim):
    for x in layouts(values(4, 6, 40, dtype=dtype)):
        index = places(4, 7)
        source = values(*x.shape[:dim], 7, *x.shape[dim + 1 :], dtype=dtype)
        check(lambda a, i, s: torch.index_add(a, dim, i, s), x, index, source)
        check(lambda a, i, s: torch.index_copy(a, dim, i, s), x, index, source)
        check(lambda a, i: torch.index_fill(a, dim, i - 4, 2), x, index)
        check(lambda a, i, s: torch.index_fill(a, dim, i, s.flatten()[0]), x, index, source)
        if not dtype.is_floating_point or dtype.itemsize > 2:
            check(lambda a, i, s: torch.index_add(a, dim, i, s, alpha=3), x, index, source)
    for reduce in ("prod", "amax", "amin", "mean"):
        check(
            lambda a, i, s, r=reduce: torch.index_reduce(a, dim, i, s, r, include_self=False),
            x,
            index,
            source,
            tolerance=2 * eps(dtype),
            loops=reduce != "mean" or dtype.is_floating_point,
        )


@pytest.mark.parametrize("dtype", [*DTYPES, torch.bool])
def test_index_put(dtype):
    rows, columns = places(4, 5), places(6, 5)
    for x in layouts(values(4, 6, 40, dtype=torch.int64).to(dtype)):
        check(
            lambda a, i, j, v: torch.index_put(a, (i, j), v),
            x,
            torch.arange(4),
            columns[:4],
            x[0, :4],
        )
        check(lambda a, i, v: torch.ops.aten.index_put(a, [None, i], v), x, torch.arange(-6, 0), x)
        check(lambda a, i, v: torch.index_put(a, (i[:, None], i), v), x, torch.arange(3), x[0, 0])
        check(lambda a, m, v: torch.index_put(a, (m,), v), x, x[..., 0] > 0, x[0, 0, 0])
        if dtype != torch.bool:
            v = values(5, 40, dtype=dtype)
            check(lambda a, i, j, w: torch.index_put(a, (i, j), w, True), x, rows, columns, v)
            check(lambda a, j, w: torch.ops.aten.index_put(a, [None, j], w, True), x, columns, v)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("padding", [-1, 2])
def test_gradient_of_an_embedding(dtype, padding):
    index = places(7, 3, 11)
    for grad in layouts(torch.randn(33, 20).to(dtype)):
        f = torch.ops.aten.embedding_dense_backward
        check(lambda g, i: f(g.view(3, 11, 20) * 2, i, 7, padding, False), grad, index)


@pytest.mark.parametrize("dtype", DTYPES)
def test_masked_scatter(dtype):
    for x in layouts(values(6, 20, dtype=dtype)):
        source = values(200, dtype=dtype)
        check(torch.masked_scatter, x, values(6, 20) > 0, source)
        check(torch.masked_scatter, x, values(20) > 0, source)
    with pytest.raises(RuntimeError, match="Number of elements"):
        oxyfuel.compile(torch.masked_scatter)(torch.zeros(4), torch.ones(4) > 0, torch.ones(3))


def test_producers_are_part_of_the_scatter():
    def f(x, i, s):
        return torch.zeros_like(x).index_add(0, (i + 1) % 8, s.exp() * 2).relu()

    check(f, torch.randn(8, 64), places(8, 100), torch.randn(100, 64), tolerance=1e-5)
    assert oxyfuel.stats()["kernels"] <= 3


def test_empty():
    none = torch.empty(0, dtype=torch.int64)
    check(lambda a, i, s: torch.index_add(a, 0, i, s), torch.ones(3, 4), none, torch.ones(0, 4))
    check(lambda a, i, s: a.scatter(1, i, s), torch.ones(3, 4), none.view(0, 4), torch.ones(3, 4))


@pytest.mark.parametrize("wrong", [8, -9, 1 << 40])
def test_an_index_out_of_range(wrong):
    def calls():
        yield lambda a, i, s: a.scatter_(0, i[:, None].expand(-1, 64), s)
        yield lambda a, i, s: a.scatter_add_(0, i[:, None].expand(-1, 64), s)
        yield lambda a, i, s: a.index_add_(0, i, s)
        yield lambda a, i, s: a.index_copy_(0, i, s)
        yield lambda a, i, s: a.index_put_((i,), s)
        yield lambda a, i, s: a.index_fill_(0, i, 1.0)

    for f in calls():
        good, bad = torch.arange(5), torch.tensor([1, 2, 3, 4, wrong])
        a, s = torch.randn(8, 64), torch.randn(5, 64)
        oxyfuel.reset()
        compiled = oxyfuel.compile(f, options={"strict": True})
        compiled(a.clone(), good, s)
        with pytest.raises((IndexError, RuntimeError)) as expected:
            f(a.clone(), bad, s)
        mine = a.clone()
        with pytest.raises(expected.type):
            compiled(mine, bad, s)
        eager = a.clone()
        with pytest.raises(expected.type):
            f(eager, bad, s)
        assert torch.equal(mine, eager)


def test_in_place(monkeypatch):
    """The input is written where it lies, also where its old value has been read before."""

    def f(a, i, s):
        old = a.sum()
        a.index_add_(0, i, s * 2)
        a[i] = 1.0
        return old, a.sum(0)

    a, i, s = torch.randn(100, 64), places(100, 30), torch.randn(30, 64)
    mine, eager = a.clone(), a.clone()
    oxyfuel.reset()
    compiled = oxyfuel.compile(f, options={"strict": True})
    for _ in range(2):
        got, expected = compiled(mine, i, s), f(eager, i, s)
        torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(mine, eager)
    assert oxyfuel.stats()["extern_calls"] == 0
