"""Results whose sizes are the smaller of two: of matrices that become wide where they were tall."""

from __future__ import annotations

import pytest
import torch

import oxyfuel

L = torch.linalg

FACTORS = {
    "svd": lambda x: [t.shape for t in L.svd(x, full_matrices=False)],
    "svd, full": lambda x: [t.shape for t in L.svd(x)],
    "torch.svd": lambda x: [t.shape for t in torch.svd(x)],
    "qr": lambda x: [t.shape for t in L.qr(x)],
    "qr of r": lambda x: [t.shape for t in L.qr(x, mode="r")],
    "lu": lambda x: [t.shape for t in L.lu(x)],
    "lu_factor": lambda x: L.lu_factor(x).pivots.shape,
    "svdvals": lambda x: (L.svdvals(x) * 2, len(L.svdvals(x))),
    "a loop over values": lambda x: sum((i * s for i, s in enumerate(L.svdvals(x))), x.sum()),
    "nuclear norm": lambda x: L.matrix_norm(x, "nuc"),
    "of its transpose": lambda x: (L.svdvals(x.mT), L.svdvals(x.mT).shape),
}


@pytest.mark.parametrize("both", (False, True))
@pytest.mark.parametrize("dynamic", (None, True))
@pytest.mark.parametrize("name", FACTORS)
def test_tall_and_wide(monkeypatch, name, dynamic, both):
    monkeypatch.setenv("OXYFUEL_STRICT", "1")
    oxyfuel.reset()
    torch.manual_seed(0)
    f = FACTORS[name]
    compiled = oxyfuel.compile(f, dynamic=dynamic)
    for rows, columns in ((8, 4), (7, 4), (3, 4), (2, 4), (4, 4), (9, 5), (5, 9), (1, 3)):
        x = torch.randn(rows, columns if both else 4)
        torch.testing.assert_close(compiled(x), f(x))
