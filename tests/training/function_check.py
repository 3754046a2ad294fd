"""A function with custom autograd functions in it in eager and compiled, and one of those."""

import torch
from torch.autograd import Function

import oxyfuel


class NotMaterialized(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.set_materialize_grads(False)
        return x * 2, x * 3

    @staticmethod
    def backward(ctx, a, b):
        out = None
        for g, factor in ((a, 2), (b, 3)):
            if g is not None:
                out = g * factor if out is None else out + g * factor
        return out


def compare(f, *args, fullgraph=True):
    def copies():
        return [
            a.detach().clone().requires_grad_(a.requires_grad) if isinstance(a, torch.Tensor) else a
            for a in args
        ]

    compiled = oxyfuel.compile(f, fullgraph=fullgraph)
    for _ in range(2):
        mine, others = copies(), copies()
        found, expected = compiled(*mine), f(*others)
        torch.testing.assert_close(found, expected)
        assert found.requires_grad == expected.requires_grad
        if not expected.requires_grad:
            continue
        found.square().sum().backward()
        expected.square().sum().backward()
        for a, b in zip(mine, others, strict=True):
            if isinstance(a, torch.Tensor):
                assert (a.grad is None) == (b.grad is None)
                if b.grad is not None:
                    torch.testing.assert_close(a.grad, b.grad)
