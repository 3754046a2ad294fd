"""t[mask] = values, of any size: few captures, with gradients of both."""

from __future__ import annotations

import pytest
import torch

import oxyfuel


def put(t, mask, values):
    t = t.clone()
    t[mask] = values
    return t * 2


def put_columns(t, mask, values):
    t = t.clone()
    t[:, mask] = values
    return t


def even(n):
    return torch.arange(n) % 2 == 0


def vector(n):
    return torch.randn(n), even(n), torch.randn((n + 1) // 2)


def rows(n):
    return torch.randn(n, 3), even(n), torch.randn((n + 1) // 2, 3)


def one_row(n):
    return torch.randn(n, 3), even(n), torch.randn(3)


def elements(n):
    mask = torch.randn(n, 3) > 0.3
    return torch.randn(n, 3), mask, torch.randn(int(mask.sum()))


def columns(n):
    return torch.randn(3, n), even(n), torch.randn(3, (n + 1) // 2)


@pytest.mark.parametrize("gradients", (False, True))
@pytest.mark.parametrize("dynamic", (None, True))
@pytest.mark.parametrize("make", (vector, rows, one_row, elements, columns))
def test_sizes(monkeypatch, make, dynamic, gradients):
    monkeypatch.setenv("OXYFUEL_STRICT", "1")
    oxyfuel.reset()
    torch.manual_seed(0)
    f = put_columns if make is columns else put
    compiled = oxyfuel.compile(f, dynamic=dynamic)
    for n in (5, 7, 12, 31, 64, 20, 33):
        t, mask, values = make(n)
        results = []
        for function in (compiled, f):
            t, values = (x.detach().clone().requires_grad_(gradients) for x in (t, values))
            result = function(t, mask, values)
            if gradients:
                result.pow(2).sum().backward()
            results.append((result, t.grad, values.grad))
        torch.testing.assert_close(*results)
    assert oxyfuel.stats()["graphs"] <= 2


@pytest.mark.parametrize("dynamic", (None, True, False))
def test_values_that_are_too_many(dynamic):
    oxyfuel.reset()
    compiled = oxyfuel.compile(put, dynamic=dynamic)
    for n in (5, 7, 12):
        t, mask, values = vector(n)
        with pytest.raises(RuntimeError, match="shape mismatch"):
            compiled(t, mask, torch.cat([values, values]))
        torch.testing.assert_close(compiled(t, mask, values), put(t, mask, values))
