"""Methods of torch.Tensor and functions of torch that are replaced, added or taken away between
calls, by whatever way captured code comes to them. Run by test_patched_torch.py."""

import functools
import operator

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import oxyfuel

pytestmark = pytest.mark.usefixtures("strict")
SDPA = F.scaled_dot_product_attention
calls = []


def counted(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        calls.append(len(args))
        return function(*args, **kwargs)

    return wrapper


@functools.cache
def attention():
    torch.manual_seed(0)
    return nn.MultiheadAttention(4, 2).requires_grad_(False)


# Name: (code, whose member, its name, what comes there).
PATCHES = {
    "method": (lambda x: x.sin(), Tensor, "sin", lambda s: s * 9),
    "method by its class": (lambda x: Tensor.sin(x), Tensor, "sin", lambda s: s * 9),
    "method in Python": (lambda x: x.norm(), Tensor, "norm", lambda s: s * 9),
    "counted method": (lambda x: x.sin(), Tensor, "sin", counted(Tensor.sin)),
    "counted method in Python": (lambda x: x.norm(), Tensor, "norm", counted(Tensor.norm)),
    "method that a function of torch calls": (
        lambda x: F.softmax(x, -1), Tensor, "softmax", lambda s, *_: s * 7),
    "new method": (
        lambda x: x.foo(2) if hasattr(x, "foo") else x * 1, Tensor, "foo", lambda s, n: s * n),
    "new value": (lambda x: x * getattr(x, "scale", 1), Tensor, "scale", 4.0),
    "new property": (
        lambda x: x * getattr(x, "rank", 1), Tensor, "rank", property(lambda s: s.dim() + 1)),
    "property": (lambda x: x * len(x.shape), Tensor, "shape", property(lambda s: (1, 2, 3))),
    "view": (lambda x: x.T, Tensor, "T", property(lambda s: s * 5)),
    "static method": (lambda x: x.sin() * 1, Tensor, "sin", staticmethod(lambda: torch.ones(2))),
    "operator": (lambda x: x + 1, Tensor, "__add__", lambda s, o: s * 11),
    "reflected operator": (lambda x: 1 + x, Tensor, "__radd__", lambda s, o: s * 11),
    "operator of two": (lambda x: x + x.cos(), Tensor, "__add__", lambda s, o: s * 2 - o),
    "operator beside one that changes in place": (
        lambda x: (y := x * 1, operator.iadd(y, 1))[1], Tensor, "__add__", lambda s, o: s * 11),
    "reflected operator that is not asked": (
        lambda x: x + x.cos(), Tensor, "__radd__", lambda s, o: s * 11),
    "comparison": (lambda x: (x < 1) * x, Tensor, "__lt__", lambda s, o: s.gt(o)),
    "change in place": (
        lambda x: (y := x * 1, y.__iadd__(1))[1], Tensor, "__iadd__", lambda s, o: s.mul_(4)),
    "negation": (lambda x: -x, Tensor, "__neg__", lambda s: s * 3),
    "item": (lambda x: x[0], Tensor, "__getitem__", lambda s, i: s.select(0, 1)),
    "length": (lambda x: x * len(x), Tensor, "__len__", lambda s: 9),
    "rows": (lambda x: [r * 2 for r in x], Tensor, "__iter__", lambda s: iter([s[1]])),
    "counted operator": (lambda x: x * 3, Tensor, "__mul__", counted(Tensor.__mul__)),
    "function": (lambda x: F.relu(x), F, "relu", lambda x: x * 2),
    "counted function": (lambda x: F.relu(x), F, "relu", counted(F.relu)),
    "function of torch": (lambda x: torch.sin(x), torch, "sin", lambda x: x * 2),
    "attention inside of a module": (
        lambda x: attention()(x, x, x, need_weights=False)[0], F, "scaled_dot_product_attention",
        lambda q, *_, **__: q * 3),
    "counted attention inside of a module": (
        lambda x: attention()(x, x, x, need_weights=False)[0], F, "scaled_dot_product_attention",
        counted(SDPA)),
    "norm inside of a function": (
        lambda x: F.normalize(x), Tensor, "norm", lambda x, *_, **__: x.exp()),
}  # fmt: skip


@pytest.mark.parametrize("name", PATCHES)
def test_a_patch_between_calls(name, monkeypatch):
    f, owner, member, value = PATCHES[name]
    compiled = oxyfuel.compile(f)
    x = torch.linspace(-1, 2, 12).view(3, 4)

    def compare():
        calls.clear()
        expected = f(x)
        seen = list(calls)
        calls.clear()
        torch.testing.assert_close(compiled(x), expected)
        assert calls == seen

    compare()
    with monkeypatch.context() as patch:
        patch.setattr(owner, member, value, raising=False)
        for _ in range(3):
            compare()
    recompiles = oxyfuel.stats()["recompiles"]
    for _ in range(2):
        compare()
    assert oxyfuel.stats()["recompiles"] == recompiles


def test_a_patch_of_a_parameter(monkeypatch):
    p = nn.Parameter(torch.ones(3))

    def f(x):
        return p.sin() + x

    compiled = oxyfuel.compile(f)
    x = torch.ones(3)
    torch.testing.assert_close(compiled(x), f(x))
    monkeypatch.setattr(nn.Parameter, "sin", lambda s: s * 5, raising=False)
    torch.testing.assert_close(compiled(x), f(x))


def test_an_optimizer_beside_a_patch(monkeypatch):
    monkeypatch.setattr(torch, "compile", lambda *args: None)
    results = []
    for f in (lambda step: step, oxyfuel.compile):
        p = nn.Parameter(torch.linspace(-1, 2, 6))
        optimizer = torch.optim.Adam([p], lr=0.1)
        p.grad = p.detach() + 1
        step = f(optimizer.step)
        for _ in range(3):
            step()
        results.append(p.detach())
    torch.testing.assert_close(*results)


def test_what_a_patch_reads_is_guarded(monkeypatch):
    scale = [2.0]
    monkeypatch.setattr(F, "scaled_dot_product_attention", lambda q, *_, **__: q * scale[0])
    monkeypatch.setattr(Tensor, "__add__", lambda s, o: s * scale[0])
    monkeypatch.setattr(Tensor, "norm", lambda x, *_, **__: x.exp() * scale[0])
    monkeypatch.setattr(Tensor, "rank", property(lambda s: scale[0]), raising=False)

    def f(x):
        return attention()(x, x, x, need_weights=False)[0], x + 1, x * x.rank, F.normalize(x)

    compiled = oxyfuel.compile(f)
    x = torch.linspace(-1, 2, 12).view(3, 4)
    for value in (2.0, 2.0, 5.0, 7.0):
        scale[0] = value
        torch.testing.assert_close(compiled(x), f(x))


def test_many_patches(monkeypatch):
    compiled = oxyfuel.compile(lambda x: x.sin())
    x = torch.ones(3)
    for n in range(40):
        monkeypatch.setattr(Tensor, "cos", lambda s, n=n: s * n)
        if n < 3:
            compiled(x)
    monkeypatch.setattr(Tensor, "sin", lambda s: s * 9)
    assert torch.equal(compiled(x), x * 9)


def test_a_patch_by_captured_code(monkeypatch):
    """Functions of torch's that look it up see it."""
    monkeypatch.setattr(torch, "relu", torch.relu)
    monkeypatch.setattr(torch.nn.functional, "relu", torch.nn.functional.relu)
    relu = torch.relu

    def f(x):
        torch.relu = torch.sin
        y = torch.nn.functional.relu(x)
        torch.relu = relu
        torch.nn.functional.relu = lambda x, inplace=False: x * 3
        return y, torch.nn.ReLU()(x), torch.relu(x)

    x, kept, found = torch.arange(3.0) - 1, torch.nn.functional.relu, []
    for run in (f, oxyfuel.compile(f)):
        torch.nn.functional.relu = kept
        found.append(run(x))
    assert str(found[0]) == str(found[1])


def test_the_code_of_a_function_is_replaced(monkeypatch):
    def other(input, dim=None, _stacklevel=3, dtype=None):
        return input * 10

    compiled, x = oxyfuel.compile(lambda x: F.softmax(x, 0)), torch.arange(3.0)
    before = compiled(x)
    with monkeypatch.context() as patch:
        patch.setattr(F.softmax, "__code__", other.__code__)
        assert torch.equal(compiled(x), x * 10)
    assert torch.equal(compiled(x), before)
