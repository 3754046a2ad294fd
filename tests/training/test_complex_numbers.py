"""Complex numbers in calls that need gradients: their conjugates are in the formulas."""

import pytest
import torch
from backward_check import compare, leaf

FUNCTIONS = {
    "product": lambda x: x * (1 + 2j),
    "number first": lambda x: 1j * x,
    "quotient": lambda x: x / (1 + 1j),
    "reciprocal": lambda x: (2 - 1j) / (x * x.abs() + 3),
    "sum": lambda x: x + 1j,
    "scaled sum": lambda x: torch.add(x * 1j, x * 2j, alpha=2 - 1j),
    "power": lambda x: (x.abs() + 1) ** (1 + 1j),
    "lazy conjugate": lambda x: (x * 2j).conj() * (3 - 1j),
    "phase": lambda x: torch.exp(1j * x.sin()).abs() + x,
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex64])
@pytest.mark.parametrize("f", FUNCTIONS.values(), ids=FUNCTIONS)
def test_gradients(f, dtype, dynamic):
    def step(f):
        found = []
        for shape in ((), (3, 4), (5, 4), (0, 4)):
            x = leaf(*shape, dtype=dtype)
            out = f(x)
            out.backward(torch.randn_like(out))
            found.append((out.detach(), x.grad))
        return found

    compare(step, f, dynamic=dynamic)
