"""A training step in eager and compiled."""

import torch
from model_check import first_difference

import oxyfuel


def leaf(*shape, dtype=torch.float32):
    return torch.randn(shape, dtype=dtype).requires_grad_()


def both(step, fn, **options):
    """What `step` gives with the function and with the function compiled."""
    results = []
    for f in (fn, oxyfuel.compile(fn, **options)):
        torch.manual_seed(0)
        results.append(step(f))
    return results


def compare(step, fn, breaks=0, **options):
    """The step gives the same, with the function in graphs."""
    expected, found = both(step, fn, **options)
    assert not first_difference(found, expected)
    stats = oxyfuel.stats()
    assert stats["graphs"] >= 1 and stats["graph_breaks"] == breaks
    assert stats["unsupported"] == stats["grad_fallbacks"] == 0


def compare_modules(make, step):
    """The step with a module in eager and compiled gives the same, parameters' gradients too."""
    results = []
    for wrap in (lambda m: m, oxyfuel.compile):
        torch.manual_seed(0)
        module = make()
        out = step(module, wrap(module))
        gradients = {n: p.grad for n, p in module.named_parameters()}
        results.append([out, gradients, dict(module.named_buffers())])
    assert not first_difference(results[1], results[0])
    stats = oxyfuel.stats()
    assert stats["graphs"] >= 1 and stats["unsupported"] == stats["grad_fallbacks"] == 0
