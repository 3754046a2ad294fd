"""Graphs as another backend gets them: their Python code runs, and gives eager's results."""

import pytest
import torch

import oxyfuel

pytestmark = pytest.mark.usefixtures("strict")


class Number(int):
    pass


class Holder:
    pass


def totals(x, o):
    total, scaled = 0.0, o.start
    for part in x.unbind():
        total += part.sum()
        scaled *= part
    return total, scaled


def each_operator(x, o):
    out = []
    a = b = c = d = e = f = 7
    a += x
    b -= x
    c *= x
    d /= x
    e //= x
    f %= x
    out += [a, b, c, d, e, f]
    k, m, n = 2.5, 2 + 1j, o.number
    k **= x
    m *= x
    n += x
    return [*out, k, m, n]


def of_bits(x, o):
    whole = x.to(torch.int32)
    a, b, c, d = 6, 6, True, 3
    a &= whole
    b |= whole
    c ^= whole > 2
    d <<= whole
    return a, b, c, d


def of_sizes(x, o):
    rows = x.shape[0]
    rows += x
    share = 1 / x.shape[1]
    share *= x
    return rows, share


def with_hook(x, o):
    y = x * 2
    y.register_hook(lambda g: g * 3)
    handle = x.register_hook(lambda g: g + 1)
    return y.sum(), handle is None


class Steps(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, steps):
        ctx.save_for_backward(x)
        return (x * steps).round() / steps

    @staticmethod
    def backward(ctx, g):
        return g * (ctx.saved_tensors[0] < 1.5), None


class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x + x, x * x

    @staticmethod
    def backward(ctx, g, h):
        return g * 3 - h


def with_own_gradients(x, o):
    a, b = Twice.apply(Steps.apply(x, 4))
    return (a * b).sum() + Steps.apply(a, o.start).sum(), a


def run_forward(gm, inputs):
    assert gm.code
    return gm.forward


@pytest.mark.parametrize("backend", [run_forward, "eager", "native"])
@pytest.mark.parametrize(
    "f", [totals, each_operator, of_bits, of_sizes, with_hook, with_own_gradients]
)
def test_code(f, backend):
    given = {} if backend == "native" else {"backend": backend}
    compiled = oxyfuel.compile(f, fullgraph=True, **given)
    mine, theirs = Holder(), Holder()
    for i, rows in enumerate((2, 2, 3, 4)):
        for o in (mine, theirs):
            o.start, o.number = 0.5 + i, Number(3 + i)
        x = torch.rand(rows, 3) + 1
        learns = f in (with_hook, with_own_gradients)
        a, b = x.clone().requires_grad_(learns), x.clone().requires_grad_(learns)
        got, expected = compiled(a, mine), f(b, theirs)
        torch.testing.assert_close(got, expected)
        if learns:
            got[0].backward()
            expected[0].backward()
            torch.testing.assert_close(a.grad, b.grad)
