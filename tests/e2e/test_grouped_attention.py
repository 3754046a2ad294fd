"""Attention whose keys have fewer heads than its queries, as decoding has it."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import oxyfuel


@pytest.mark.parametrize("mask", ["none", "heads alike", "each head"])
@pytest.mark.parametrize("heads, shared", [(4, 2), (4, 4), (6, 1)])
@pytest.mark.parametrize("keys", [1, 8])
@pytest.mark.parametrize("queries", [1, 2, 3, 5])
def test_as_eager(queries, keys, heads, shared, mask, monkeypatch):
    monkeypatch.setenv("OXYFUEL_STRICT", "1")
    added = {
        "none": None,
        "heads alike": torch.randn(2, 1, queries, keys),
        "each head": torch.randn(2, heads, queries, keys),
    }[mask]

    def fn(q, k, v):
        return F.scaled_dot_product_attention(q, k, v, added, enable_gqa=heads != shared)

    q = torch.randn(2, queries, heads, 16).transpose(1, 2)
    k, v = torch.randn(2, shared, keys, 16), torch.randn(2, shared, keys, 16)
    with torch.no_grad():
        expected, actual = fn(q, k, v), oxyfuel.compile(fn)(q, k, v)
    torch.testing.assert_close(actual, expected)
    assert actual.stride() == expected.stride()
