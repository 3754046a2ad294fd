"""Functions that torch.jit.script has compiled: captured code follows the Python function, where it
does the same."""

import pytest
import torch

import oxyfuel

X = torch.linspace(-1, 1, 12).view(3, 4)


@torch.jit.script
def gelu(x, factor: float = 1.0):
    return x * 0.5 * (1.0 + torch.tanh(0.79788456 * x * (1 + 0.044715 * x * x))) * factor


@torch.jit.script
def halved(x: torch.Tensor, n: int, up: bool = False, shift: float | None = None):
    y = x / n if up else x + n // 2
    return y if shift is None else y + shift


@torch.jit.script
def twice(x):
    return gelu(gelu(x, 2.0), factor=0.5), x.size(0)


@torch.jit.script
def tells(x):
    if torch.jit.is_scripting():
        return x + 1
    return x - 1


traced = torch.jit.trace(lambda x: x + 1 if x.sum() > 0 else x - 1, X + 1)

FOLLOWED = {
    "gelu": lambda x: gelu(x.sin()).cos(),
    "named": lambda x: gelu(x, factor=1.5),
    "ints": lambda x: halved(x, 3) + halved(x, 3, True) + halved(x, x.shape[0], shift=0.5),
    "nothing": lambda x: halved(x, 3, False, None),
    "in_another": twice,
    "more": lambda x: twice(x)[0] * twice(x)[1],
}
LEFT = {
    "float_of_an_int": lambda x: gelu(x.long(), 2),
    "tells": lambda x: tells(x) * 2,
    "traced": lambda x: traced(x) * 2,
    "refused": lambda x: halved(x, 1.5),
    "missing": lambda x: halved(x),
    "unknown": lambda x: gelu(x, other=2.0),
}


def run(f, x):
    try:
        return f(x)
    except Exception as e:
        return type(e)


@pytest.mark.parametrize("name", FOLLOWED | LEFT)
def test_as_eager(name, strict):
    program = (FOLLOWED | LEFT)[name]
    compiled = oxyfuel.compile(program)
    for x in (X, X[:2], X[:1], X * 2):
        actual, expected = run(compiled, x), run(program, x)
        if isinstance(expected, type):
            assert actual is expected
        else:
            torch.testing.assert_close(actual, expected)
    if name in FOLLOWED:
        stats = oxyfuel.stats()
        assert stats["graph_breaks"] == stats["fallbacks"] == 0, stats


def test_gradients(strict):
    compiled, grads = oxyfuel.compile(FOLLOWED["more"]), []
    for f in (compiled, FOLLOWED["more"]):
        x = X.clone().requires_grad_()
        f(x).sum().backward()
        grads.append(x.grad)
    torch.testing.assert_close(*grads)
