"""Writes in place to tensors whose sizes vary, in several layouts: values and strides as in eager,
by at most one capture more than the first."""

from __future__ import annotations

import pytest
import torch

import oxyfuel

PLACES = torch.tensor([1, 2])
WRITES = {
    "add": lambda x, y: x.add_(y),
    "clamp_min": lambda x, y: x.clamp_min_(y),
    "copy": lambda x, y: x.copy_(y),
    "fill": lambda x, y: x.fill_(2),
    "mul_mask": lambda x, y: x.mul_(y > 0),
    "lerp": lambda x, y: x.lerp_(y[0], y),
    "addcmul": lambda x, y: x.addcmul_(x, y),
    "masked_fill": lambda x, y: x.masked_fill_(x > 0, 3),
    "masked_fill_tensor": lambda x, y: x.masked_fill_(x > 0, torch.tensor(3.0)),
    "masked_scatter": lambda x, y: x.masked_scatter_(x > 0, y),
    "index_fill": lambda x, y: x.index_fill_(1, PLACES, 3),
    "index_add": lambda x, y: x.index_add_(0, PLACES, y[:2]),
    "index_copy": lambda x, y: x.index_copy_(0, PLACES, y[:2]),
    "index_put": lambda x, y: x.index_put_((PLACES,), y[:2], accumulate=True),
    "scatter": lambda x, y: x.scatter_(1, torch.zeros(x.shape[0], 1, dtype=torch.long), 3.0),
    "tril": lambda x, y: x.tril_(),
    "cumsum": lambda x, y: x.cumsum_(0),
    "renorm": lambda x, y: x.renorm_(2, 0, 1.0),
    "addmm": lambda x, y: x.addmm_(y, torch.ones(3, 3)),
    "part": lambda x, y: x[1:].masked_fill_(y[1:] > 0, 3),
    "ldexp": lambda x, y: x.ldexp_(y),
}
LAYOUTS = {
    "row-major": lambda n: torch.randn(n, 3),
    "transposed": lambda n: torch.randn(3, n).t(),
    "gaps": lambda n: torch.randn(n, 6)[:, ::2],
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", WRITES)
def test_written_as_in_eager(name, layout, monkeypatch):
    monkeypatch.setenv("OXYFUEL_STRICT", "1")
    oxyfuel.reset()
    torch.manual_seed(0)

    def program(x, y):
        x = x + 1
        return WRITES[name](x, y), x

    compiled = oxyfuel.compile(program)
    with torch.no_grad():
        for n in (12, 9, 33, 5):
            given = LAYOUTS[layout](n), LAYOUTS[layout](n)
            expected = program(*given)
            torch.testing.assert_close(compiled(*given), expected, check_stride=True)
    stats = oxyfuel.stats()
    assert stats["recompiles"] <= 1, stats
    assert stats["graph_breaks"] == stats["static_captures"] == stats["unmet_checks"] == 0, stats
