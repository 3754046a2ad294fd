"""Gemms whose rows do not fit the caches: values of k come in pieces, which several panels of
columns take in turn, and sums wait between them."""

from __future__ import annotations

import pytest
import torch

import oxyfuel

TOLERANCE = {torch.float32: 2e-3, torch.float16: 0.25, torch.bfloat16: 2.0}
# Few panels and many, whole ones and not; rows that are a number of pages apart.
SIZES = [(300, 3000, 700), (300, 2000, 200), (530, 2100, 130), (260, 4096, 512), (70, 9000, 513)]


def operand(rows, columns, dtype, columns_first):
    x = torch.randn(columns, rows).t() if columns_first else torch.randn(rows, columns)
    return x.to(dtype)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=lambda d: str(d).removeprefix("torch."))
@pytest.mark.parametrize("columns", [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.parametrize("m, k, n", SIZES)
def test_pieces(dtype, columns, m, k, n):
    torch.manual_seed(0)
    a, b = operand(m, k, dtype, columns[0]), operand(k, n, dtype, columns[1])
    bias = torch.randn(n).to(dtype)
    functions = [
        lambda a, b, bias: a @ b,
        lambda a, b, bias: torch.relu(torch.addmm(bias, a, b)) * 0.5,
    ]
    exact = a.double() @ b.double()
    wanted = [exact, torch.relu(exact + bias.double()) * 0.5]
    for f, expected in zip(functions, wanted, strict=True):
        oxyfuel.reset()
        with torch.no_grad():
            result = oxyfuel.compile(f, options={"strict": True})(a, b, bias)
        assert result.dtype == dtype
        assert (result.double() - expected).abs().max() < TOLERANCE[dtype]


@pytest.mark.parametrize("dtype", (torch.float32, torch.float16))
def test_sizes_that_vary(dtype):
    def f(a, b):
        return (a @ b) * 2 + 1

    oxyfuel.reset()
    compiled = oxyfuel.compile(f, options={"strict": True})
    with torch.no_grad():
        for m, k, n in ((300, 3000, 700), (301, 2000, 200), (20, 50, 30), (260, 4096, 512)):
            a, b = torch.randn(m, k).to(dtype), torch.randn(k, n).to(dtype)
            expected = (a.double() @ b.double()) * 2 + 1
            assert (compiled(a, b).double() - expected).abs().max() < 2 * TOLERANCE[dtype]
    assert oxyfuel.stats()["recompiles"] == 1


@pytest.mark.parametrize("threads", (1, 2))
def test_batches_and_threads(threads):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        for a, b in (
            (torch.randn(2, 300, 2500), torch.randn(2, 2500, 300)),
            (torch.randn(2, 2500, 300).mT, torch.randn(2, 300, 2500).mT),
        ):
            oxyfuel.reset()
            with torch.no_grad():
                result = oxyfuel.compile(lambda a, b: torch.bmm(a, b))(a, b)
            assert (result.double() - torch.bmm(a.double(), b.double())).abs().max() < 2e-3
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("vector_bytes", (64, 32))
@pytest.mark.parametrize("n", (8, 16, 24, 32, 48, 80, 96))
def test_few_columns_that_are_read_where_they_lie(n, vector_bytes):
    """Whole vectors of B, as rows side by side and as a part of wider ones."""
    torch.manual_seed(0)
    for batch, m, k in ((3, 1, 300), (5, 4, 2100), (2, 6, 1024), (3, 16, 2048), (2, 50, 900)):
        a, bias = torch.randn(batch, m, k), torch.randn(n)
        for b in (torch.randn(batch, k, n), torch.randn(batch, k, n + 16)[..., :n]):
            options = {"strict": True, "vector_bytes": vector_bytes}
            f = oxyfuel.compile(lambda a, b, c: torch.relu(a @ b + c), options=options)
            with torch.no_grad():
                result = f(a, b, bias)
            expected = torch.relu(a.double() @ b.double() + bias.double())
            assert (result.double() - expected).abs().max() < 2e-3
