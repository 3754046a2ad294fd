"""Training steps of torch's module_db against eager: outputs, gradients of inputs and parameters,
buffers after the step, in training and in evaluation mode.

`python tests/training/test_module_gradients.py [NAME ...]` takes every sample, and only prints.
"""

import sys
import warnings
from pathlib import Path

import pytest
import torch
import torch.utils._pytree as pytree

if __name__ == "__main__":  # elsewhere conftest.py does so
    sys.path[1:1] = [str(Path(__file__).parents[1] / f) for f in ("modules", "models")]

import module_cases
from model_check import first_difference

import oxyfuel


def with_gradients(tree):
    """The tensors of a call as leaves, floating ones requiring gradients; and those."""
    leaves = []

    def leaf(t):
        new = t.detach().clone()
        if new.is_floating_point() or new.is_complex():
            leaves.append(new.requires_grad_())
        return new

    return pytree.tree_map_only(torch.Tensor, leaf, tree), leaves


def step(case, wrap):
    """What a training step leaves, or the exception."""
    torch.manual_seed(0)
    model, args, kwargs = case.make()
    torch.manual_seed(1)
    (args, kwargs), leaves = with_gradients((args, kwargs))
    run = wrap(model)
    outs = []
    for _ in range(2):
        try:
            out = run(*args, **kwargs)
            roots = [t for t in pytree.tree_leaves(out) if isinstance(t, torch.Tensor)]
            roots = [t for t in roots if t.requires_grad]
            torch.manual_seed(2)
            if roots:
                torch.autograd.backward(roots, [torch.randn_like(t) for t in roots])
            outs.append(out)
        except Exception as e:
            outs.append((type(e), str(e)))
            break
    gradients = {n: p.grad for n, p in model.named_parameters()}
    return [outs, [t.grad for t in leaves], gradients, dict(model.named_buffers())]


def wrong(case):
    """What is wrong with a sample; empty where nothing is."""
    oxyfuel.reset()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        expected = step(case, lambda m: m)
        found = step(case, oxyfuel.compile)
    difference = first_difference(found, expected)
    stats = oxyfuel.stats()
    raised = isinstance(expected[0][-1], tuple) and expected[0][-1][:1] == (type,)
    if not difference and not raised and stats["fallbacks"] + stats["unsupported"]:
        said = [str(w.message) for w in said if "oxyfuel" in str(w.message)]
        difference = "runs in eager: " + "; ".join(said)
    return difference and f"sample {case.index}: {difference}"


KEYS = [(name, mode) for name in module_cases.INFOS for mode in module_cases.MODES]


@pytest.mark.parametrize(("name", "mode"), KEYS)
def test_module(name, mode):
    found = list(filter(None, map(wrong, module_cases.cases(name, mode, limit=2))))
    assert not found


if __name__ == "__main__":
    for name, mode in KEYS:
        if sys.argv[1:] and name not in sys.argv[1:]:
            continue
        found = list(filter(None, map(wrong, module_cases.cases(name, mode))))
        print(name, mode, module_cases.count(name, mode), "samples", *found[:3])
