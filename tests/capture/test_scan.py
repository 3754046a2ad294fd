"""torch.scan: its steps are part of the graph."""

from __future__ import annotations

import pytest
import torch
from torch._higher_order_ops.scan import scan

import oxyfuel

pytestmark = pytest.mark.usefixtures("strict")

WEIGHT = torch.linspace(-1, 1, 9).view(3, 3)


def running(carry, x):
    after = carry * 0.5 + x
    return after, after.sin()


def cell(carry, x):
    hidden, count = carry["hidden"], carry["count"]
    hidden = torch.tanh(hidden @ WEIGHT + x[0] * x[1])
    return {"hidden": hidden, "count": count + 1}, (hidden * 2, [hidden.sum(-1)])


def in_python(combine, init, xs, *, dim=0, reverse=False):
    """What torch.scan gives, which compiles each function that it is called with."""
    leaves, form = torch.utils._pytree.tree_flatten(xs)
    carry, steps = init, []
    for at in range(leaves[0].shape[dim]):
        parts = [x.movedim(dim, 0)[-1 - at if reverse else at] for x in leaves]
        carry, step = combine(carry, torch.utils._pytree.tree_unflatten(parts, form))
        steps.append(step)
    steps = steps[::-1] if reverse else steps
    return carry, torch.utils._pytree.tree_map(
        lambda *parts: torch.stack(parts, min(dim % leaves[0].ndim, parts[0].ndim)), *steps
    )


TREES = {"hidden": torch.zeros(3), "count": torch.zeros((), dtype=torch.int64)}
CASES = {
    "rows": lambda x, scan: scan(running, torch.zeros(3), x),
    "columns": lambda x, scan: scan(running, torch.zeros(5), x, dim=1),
    "last": lambda x, scan: scan(running, torch.zeros(5), x, dim=-1),
    "from the end": lambda x, scan: scan(running, torch.ones(3), x, reverse=True),
    "columns from the end": lambda x, scan: scan(running, torch.ones(5), x, dim=1, reverse=True),
    "numbers": lambda x, scan: scan(running, torch.zeros(()), x[:, 0], dim=0),
    "trees": lambda x, scan: scan(cell, TREES, (x, x + 1)),
    "one step": lambda x, scan: scan(running, torch.zeros(3), x[:1]),
}


@pytest.mark.parametrize("case", CASES)
def test_scans(case):
    x = torch.linspace(-2, 2, 15).view(5, 3)
    result = oxyfuel.compile(lambda x: CASES[case](x, scan), fullgraph=True)(x)
    torch.testing.assert_close(result, CASES[case](x, in_python))


def test_as_torch():
    x = torch.linspace(-2, 2, 15).view(5, 3)
    f = CASES["columns from the end"]
    torch.testing.assert_close(oxyfuel.compile(f, fullgraph=True)(x, scan), f(x, scan))


@pytest.mark.parametrize("case", ["rows", "trees"])
def test_gradients(case):
    def gradient(f, how):
        x = torch.linspace(-2, 2, 15).view(5, 3).requires_grad_()
        leaves = torch.utils._pytree.tree_leaves(f(x, how))
        sum(t.square().sum() for t in leaves if t.is_floating_point()).backward()
        return x.grad

    compiled = oxyfuel.compile(CASES[case], fullgraph=True)
    torch.testing.assert_close(gradient(compiled, scan), gradient(CASES[case], in_python))


def test_what_is_left_to_torch():
    compiled = oxyfuel.compile(lambda x: scan(running, torch.zeros(2), x))
    for given in (torch.ones(600, 2), torch.ones(0, 2)):
        if len(given) > 0:
            torch.testing.assert_close(compiled(given), in_python(running, torch.zeros(2), given))
        else:
            with pytest.raises(RuntimeError, match="scan dimension > 0"):
                compiled(given)
