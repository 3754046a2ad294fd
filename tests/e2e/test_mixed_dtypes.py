"""Operands of several dtypes: results have eager's dtypes and are rounded where eager rounds."""

import itertools

import pytest
import torch

import oxyfuel

F = torch.nn.functional
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]


def check(f, *args, tolerance=0.0):
    compiled = oxyfuel.compile(f, options={"strict": True})
    found = []
    for call in (f, compiled):
        torch.manual_seed(0)
        try:
            found.append(call(*args))
        except Exception as error:
            found.append(str(error))
    expected, got = found
    if isinstance(expected, str) or isinstance(got, str):
        assert got == expected
        return
    assert got.dtype == expected.dtype and got.stride() == expected.stride()
    torch.testing.assert_close(got, expected, rtol=tolerance, atol=tolerance, equal_nan=True)


def numbers(*shape, dtype):
    return torch.empty(shape, dtype=torch.float32).uniform_(0.5, 3).to(dtype)


TERNARY = {
    "addcmul": torch.addcmul,
    "addcmul value": lambda x, y, z: torch.addcmul(x, y, z, value=2.7),
    "addcdiv": lambda x, y, z: torch.addcdiv(x, y, z, value=2.7),
    "lerp": torch.lerp,
}


@pytest.mark.parametrize("name", TERNARY)
@pytest.mark.parametrize("dtype", FLOATS)
def test_three_operands(name, dtype):
    torch.manual_seed(0)
    for second, third in itertools.product(FLOATS + [torch.int64], FLOATS):
        x, y, z = numbers(40, dtype=dtype), numbers(40, dtype=second), numbers(dtype=third)
        check(TERNARY[name], x, y, z, tolerance=1e-6)
        check(TERNARY[name], z, x, y, tolerance=1e-6)


@pytest.mark.parametrize("name", ["xlogy", "logaddexp", "ldexp"])
@pytest.mark.parametrize("dtype", [*FLOATS, torch.int64])
def test_two_operands(name, dtype):
    torch.manual_seed(0)
    for other in [*FLOATS, torch.int64]:
        x, y = numbers(40, dtype=dtype), numbers(40, dtype=other)
        check(getattr(torch, name), x, y, tolerance=1e-6)
        check(getattr(torch, name), x, y[0], tolerance=1e-6)


# torch multiplies these in one way and another, and adds the bias in place behind one of them.
def linear_inputs(dtype):
    yield numbers(4, dtype=dtype)
    yield numbers(3, 4, dtype=dtype)
    yield numbers(3, 5, 4, dtype=dtype)
    yield numbers(5, 3, 4, dtype=dtype).transpose(0, 1)


@pytest.mark.parametrize("bias", [*FLOATS, torch.int32, torch.complex64])
@pytest.mark.parametrize("dtype", FLOATS)
def test_a_bias_of_another_dtype(dtype, bias):
    torch.manual_seed(0)
    w = numbers(2, 4, dtype=dtype)
    for x in linear_inputs(dtype):
        check(F.linear, x, w, numbers(2, dtype=bias), tolerance=1e-6)
        check(F.linear, x, w[0], numbers(dtype=bias), tolerance=1e-6)


def test_a_bias_that_broadcasts():
    torch.manual_seed(0)
    w = numbers(2, 4, dtype=torch.float32)
    for x in linear_inputs(torch.float32):
        for shape in (1,), (1, 2), (3, 1), (7, 1, 2):
            check(F.linear, x, w, numbers(*shape, dtype=torch.float32), tolerance=1e-6)
            check(F.linear, x, w[:1], numbers(*shape, dtype=torch.float32), tolerance=1e-6)


@pytest.mark.parametrize("bias", FLOATS)
def test_the_gradient_of_a_bias_of_another_dtype(bias):
    torch.manual_seed(0)
    x, w = (
        numbers(3, 5, 4, dtype=torch.bfloat16).transpose(0, 1),
        numbers(2, 4, dtype=torch.bfloat16),
    )

    def gradient(f):
        b = numbers(2, dtype=bias).requires_grad_()
        return torch.autograd.grad(f(x, w, b).sin().sum(), b)[0]

    torch.manual_seed(1)
    expected = gradient(F.linear)
    torch.manual_seed(1)
    found = gradient(oxyfuel.compile(F.linear, options={"strict": True}))
    assert found.dtype == expected.dtype and torch.equal(found, expected)


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("dtype", FLOATS)
def test_soft_margin_loss(dtype, reduction):
    def gradient(x, y):
        return torch.autograd.grad(F.soft_margin_loss(x, y, reduction=reduction).sum(), x)[0]

    for other in [*FLOATS, torch.int64]:
        x, y = torch.randn(3, 5).to(dtype), torch.randn(3, 5).sign().to(other)
        check(lambda x, y: F.soft_margin_loss(x, y, reduction=reduction), x, y, tolerance=1e-6)
        check(gradient, x.requires_grad_(), y, tolerance=1e-6)


def test_normal():
    for a, b in itertools.product(FLOATS, FLOATS):
        check(torch.normal, numbers(5, dtype=a), numbers(5, dtype=b))
