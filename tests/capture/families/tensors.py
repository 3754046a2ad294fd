"""Tensors: arithmetic, methods, attributes and shapes."""

# Clumsy ways to write a thing are meant.
# ruff: noqa: B006, B009, B010, C405, C406, C408, C409, C417, E711, UP028, UP031, UP032
from __future__ import annotations

import operator

import torch
from families.entry import Family

arithmetic = Family("arithmetic")
attributes = Family("attributes")
FAMILIES = [arithmetic, attributes]


@arithmetic.case
def add(x, y):
    return x + y


@arithmetic.case
def chain(x, y):
    return (x * y - x / (y.abs() + 1)) ** 2


@arithmetic.case
def reflected(x):
    return 1 - x + 2 * x + 3 / (x.abs() + 1)


@arithmetic.case
def unary(x):
    return -x + abs(x) + (+x)


@arithmetic.on(lambda: (torch.randn(3, 4), torch.randn(4, 5)))
def matmul(x, w):
    return x @ w


@arithmetic.on(lambda: (torch.arange(12), 5))
def integer_division(x, n):
    return x // n + x % n


@arithmetic.on(lambda: (torch.arange(8), torch.arange(8) * 3))
def bits(a, b):
    return (a & b) | (a ^ b), ~a, a << 1, b >> 1


@arithmetic.case
def compare(x, y):
    return x < y, x >= y, x == y, x != 0


@arithmetic.on(lambda: (torch.tensor([True, False]), torch.tensor([True, True])))
def logical(a, b):
    return a & ~b, torch.logical_or(a, b)


@arithmetic.case
def methods(x):
    return x.sin().cos().exp().clamp(0, 1).mul(2)


@arithmetic.case
def method_keywords(x):
    return x.sum(dim=1, keepdim=True) + x.softmax(dim=-1)


@arithmetic.case
def reductions(x):
    return x.sum(), x.mean(0), x.max(), x.argmax(1), x.std(dim=0), x.norm()


@arithmetic.case
def several_results(x):
    values, indices = x.max(dim=1)
    return values * 2, indices + 1


@arithmetic.case
def named_results(x):
    found = x.sort(dim=1, descending=True)
    return found.values, found.indices


@arithmetic.case
def unused_result(x):
    _, places = torch.topk(x, 2)
    return places


@arithmetic.case
def unused_argument(x, y):
    return x + 1


@arithmetic.case
def same_twice(x):
    return x + x, x * x


@arithmetic.case
def common_subexpression(x):
    return x.sin() + x.sin()


@arithmetic.case
def dead_code(x):
    x.cos()
    return x.sin()


@arithmetic.on(lambda: (torch.randn(3), 2, 0.5))
def python_numbers(x, n, scale):
    return x * n + scale


@arithmetic.on(lambda: (torch.randn(3), 2))
def number_arithmetic(x, n):
    half = (n + 1) / 2 - n // 2 + n % 3 + n**2 - (-n) + abs(-n) + divmod(n, 3)[1]
    return x * half


@arithmetic.case
def operator_module(x, y):
    return operator.mul(operator.add(x, y), operator.neg(y))


@arithmetic.case
def dtype_change(x):
    return x.to(torch.float64).double().half().float() + x.int().type_as(x)


@arithmetic.case
def where(x, y):
    return torch.where(x > y, x, y), x.masked_fill(x > 0, 0.0)


@arithmetic.case
def factories(x):
    return x + torch.ones(3, 4) + torch.zeros_like(x) + torch.arange(4) + torch.full((3, 1), 2.0)


@arithmetic.case
def new_factories(x):
    return x.new_zeros(3, 4) + x.new_full((4,), 2.0) + x.new_ones((3, 4), dtype=torch.float64)


@arithmetic.case
def tensor_literal(x):
    return x * torch.tensor([1.0, 2.0, 3.0, 4.0]) + torch.tensor(2)


@arithmetic.on(lambda: ())
def no_inputs():
    return torch.ones(3).cumsum(0)


@arithmetic.case
def returned_argument(x, y):
    return y, x, x + y


@arithmetic.case
def returned_constants(x):
    return 3, None, "text", x + 1, (True, 2.5)


@attributes.case
def shape(x):
    return x.reshape(x.shape[1], x.shape[0])


@attributes.case
def shape_unpacked(x):
    rows, columns = x.shape
    return x.sum() * rows + columns


@attributes.case
def size(x):
    return x.view(x.size(0) * x.size(-1)), x.size()


@attributes.case
def shape_returned(x):
    return x.shape, x.dtype, x.device, x.ndim


@attributes.case
def shape_slices(x):
    return x.view(*x.shape[:-1], 2, 2), x.new_zeros(x.shape[1:] + (2,))


@attributes.case
def numel(x):
    return x.sum() / x.numel() + len(x) + x.dim() + x.nelement()


@attributes.case
def dtype_test(x):
    if x.dtype == torch.float32 and x.is_floating_point():
        return x + 1
    return x - 1


@attributes.case
def device_argument(x):
    return x + torch.zeros(4, device=x.device, dtype=x.dtype)


@attributes.case
def transposed(x):
    return x.T + 1, x.mT * 2


@attributes.case
def requires_grad(x):
    return x * 2 if x.requires_grad else x * 3


@attributes.case
def is_tensor(x):
    return x + 1 if torch.is_tensor(x) and isinstance(x, torch.Tensor) else x


@attributes.case
def contiguous(x):
    y = x.t()
    return y.contiguous() if not y.is_contiguous() else y


@attributes.case
def stride(x):
    return x.as_strided((2, 2), (x.stride(0), x.stride()[1]))


@attributes.on(lambda: (torch.randn(2, 3, dtype=torch.complex64),))
def complex_parts(z):
    return z.real + z.imag, z.is_complex()


@attributes.case
def element_size(x):
    return x * x.element_size() * x.itemsize


@attributes.case
def getattr_builtin(x):
    return getattr(x, "shape")[0] * getattr(x, "sin")() + getattr(x, "nothing", 2)


@attributes.case
def hasattr_builtin(x):
    return x + 1 if hasattr(x, "softmax") and not hasattr(x, "nothing") else x
