"""Complex numbers in calls that need gradients: their conjugates are in the formulas."""

import pytest
import torch
from backward_check import compare, leaf

import oxyfuel

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


SHARED_GRADIENTS = {
    "a sum": lambda x, w: (x + w).sin(),
    "one result twice": lambda x, w: ((x * w).exp(),) * 2,
    "a result and its slice": lambda x, w: (lambda y: (y, y[1:]))((x * w).exp()),
    "a result and its transposed": lambda x, w: (lambda y: (y, y.t()))((x + w).exp()),
    "a result, its conjugate and parts": lambda x, w: (lambda y: (y, y.conj(), y.real, y.imag))(
        (x + w).exp()
    ),
    "a chosen sum": lambda x, w: torch.where(x.real > 0, x + w, w).sin(),
    "a stack": lambda x, w: torch.stack([x + w, x + w]).sin(),
    "a product": lambda x, w: (x + w) @ x,
    "a transform": lambda x, w: torch.fft.fft(x + w) + x,
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
@pytest.mark.parametrize("case", SHARED_GRADIENTS)
def test_a_gradient_that_goes_to_two_inputs(case, dtype, dynamic, strict):
    torch.manual_seed(0)
    inputs = [torch.randn(4, 4, dtype=dtype) for _ in range(2)]
    results = []
    for f in (SHARED_GRADIENTS[case], oxyfuel.compile(SHARED_GRADIENTS[case], dynamic=dynamic)):
        leaves = [t.clone().requires_grad_() for t in inputs]
        out = f(*leaves)
        out = out if isinstance(out, tuple) else (out,)
        torch.autograd.backward(out, [torch.ones_like(o) for o in out])
        results.append([*out, *(leaf.grad for leaf in leaves)])
    torch.testing.assert_close(*results)
