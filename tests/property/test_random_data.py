"""What random programs assign to `data`, and write through it, is seen as in eager: values,
gradients by a backward of the code itself or behind it, and what shares memory in the end.

OXYFUEL_DATA_PROGRAMS=1000 runs so many, OXYFUEL_FIRST_PROGRAM says with which seed to begin.
"""

import os
import random
import warnings

import pytest
import torch

import oxyfuel

FIRST = int(os.environ.get("OXYFUEL_FIRST_PROGRAM", "0"))
COUNT = int(os.environ.get("OXYFUEL_DATA_PROGRAMS", "12"))

COMPUTED = [
    "{} * {}",
    "{} + {}",
    "torch.sin({}) * {}",
    "torch.where({} > 0, {}, 0.5)",
    "({} * {}).exp().clamp(max=3)",
    "torch.softmax({}, -1) * {}",
]
ALIASES = ["{}.data", "{}.detach()", "{}.data.clone()", "{}.clone()"]
GIVEN = ["{}", "{}.data", "{}.data * 2", "{}.detach()", "{}.data.clone()"]
WRITES = ["mul_(2)", "add_(1)", "copy_(z)", "sin_()"]


def program(seed):
    """The text of a function of two leaves, of three other tensors, and of a list for losses."""
    rng = random.Random(seed)
    names, lines = ["w", "u", "x", "y"], []

    def made(expression):
        lines.append(f"v{len(names)} = {expression}")
        names.append(f"v{len(names)}")

    for _ in range(rng.randint(3, 9)):
        kind, name = rng.random(), rng.choice(names)
        if kind < 0.3:
            made(rng.choice(COMPUTED).format(name, rng.choice(names)))
        elif kind < 0.4:
            made(rng.choice(ALIASES).format(name))
        elif kind < 0.75:
            other = rng.choice([n for n in names if n != name])
            lines.append(f"{name}.data = {rng.choice(GIVEN).format(other)}")
        elif kind < 0.9:
            lines.append(f"{name}.data.{rng.choice(WRITES)}")
        else:
            lines.append(f"losses.append({name}.sum())")
    if rng.random() < 0.6:
        lines.append("backward(losses)")
    lines.append(f"return [{', '.join(n for n in names[4:] if rng.random() < 0.4)}]")
    return "def f(w, u, x, y, z, losses):\n" + "".join(f"    {line}\n" for line in lines)


def backward(losses):
    losses = [loss for loss in losses if loss.requires_grad]
    if losses:
        sum(losses).backward()


def results_of(source, on):
    namespace = {"torch": torch, "backward": backward}
    exec(source, namespace)
    f = oxyfuel.compile(namespace["f"]) if on else namespace["f"]
    torch.manual_seed(0)
    w, u, x, y = (torch.randn(2, 3) for _ in range(4))
    w.requires_grad_()
    u.requires_grad_()
    found = []
    for _ in range(2):
        try:
            made = f(w, u, x, y, torch.randn(2, 3), [])
            known = [*made, w, u, x, y]
            found += [[a.data_ptr() == b.data_ptr() for b in known] for a in known]
            found += [t.detach().clone() for t in known] + [t.requires_grad for t in known]
            backward([t.sum() for t in made if not t.is_leaf])
        except RuntimeError:  # a write that autograd refuses
            break
        found += [None if t.grad is None else t.grad.clone() for t in (w, u)]
        w.grad = u.grad = None
        for t in made:  # who shares its memory sees it
            t.data.add_(0.5)
        found += [t.detach().clone() for t in known]
    return found


@pytest.mark.parametrize("seed", range(FIRST, FIRST + COUNT))
def test_data(seed):
    source = program(seed)
    oxyfuel.reset()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found, expected = results_of(source, True), results_of(source, False)
    torch.testing.assert_close(found, expected, msg=lambda m: f"{source}\n{m}", equal_nan=True)
    stats = oxyfuel.stats()
    assert stats["fallbacks"] == stats["grad_fallbacks"] == 0
