"""Rows and columns gathered by one index, beside transposed reads and writes: tiles whose rows are
known only inside of them."""

import pytest
import torch

import oxyfuel

CASES = {
    "columns and rows": lambda o, p, s: (o[:, s], o[s]),
    "of two tensors": lambda o, p, s: (o.index_select(1, s), p.index_select(0, s).t() * 2),
    "rows, transposed": lambda o, p, s: o[s].t() + p,
    "columns, transposed": lambda o, p, s: o[:, s].t().contiguous() + p[s],
    "rows, then columns": lambda o, p, s: o[s][:, s] + p.t(),
    "rows of a transposed one": lambda o, p, s: (o[s] + p[:, s].t(), o.t()[s]),
    "chosen": lambda o, p, s: torch.where(o[s] > 4, o.t(), p[:, s]),
    "masked": lambda o, p, s: (o.masked_fill(s[:, None] > 99, 0).t() + p[s], o[:, s]),
    "gather": lambda o, p, s: (
        o.gather(0, s[:, None].expand_as(o)).t() + p,
        o.gather(1, s[None].expand_as(o)),
    ),
    "index_copy": lambda o, p, s: torch.zeros_like(o).index_copy(0, s, p.t()) + o.t(),
    "index_add": lambda o, p, s: torch.zeros_like(o).index_add(1, s, p.t()) + o.t()[s],
    "scatter": lambda o, p, s: o.scatter(1, s[None].expand_as(o), p.t()) + o.t(),
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("size", [64, 130, 200])
@pytest.mark.parametrize("case", CASES)
def test_as_in_eager(case, size, dynamic, fresh, monkeypatch):
    monkeypatch.setenv("OXYFUEL_STRICT", "1")
    compiled, places = oxyfuel.compile(CASES[case], dynamic=dynamic), torch.randperm(size)
    for dtype in (torch.float32, torch.int64, torch.uint8):
        o, p = (torch.randint(0, 9, (size, size)).to(dtype) for _ in range(2))
        torch.testing.assert_close(
            compiled(o, p, places), CASES[case](o, p, places), rtol=0, atol=0
        )
