"""Every entry of torch's operator database under transforms of torch.func, against eager: one of
them each, that goes round with the entry's position in the database, or all with

    OXYFUEL_TRANSFORMS=all ./dev test tests/training/test_opdb_transforms.py
"""

import os

import pytest
import torch
from opdb_cases import ENTRIES, full_name
from opdb_known import UNDEFINED_VALUES
from torch.func import grad, jvp, vmap
from torch.utils import _pytree as pytree

import oxyfuel


def tensors_of(out):
    return tuple(t for t in pytree.tree_leaves(out) if isinstance(t, torch.Tensor))


def total(out):
    found = [t for t in tensors_of(out) if t.is_floating_point() or t.is_complex()]
    return sum((t.abs() if t.is_complex() else t).sum() for t in found)


def rows(x):
    return torch.stack([x, x * 0.5, x + 1])


TRANSFORMS = {
    "grad": lambda f, x: grad(lambda t: total(f(t)))(x),
    "vmap": lambda f, x: vmap(lambda t: tensors_of(f(t)), randomness="different")(rows(x)),
    "jvp": lambda f, x: jvp(lambda t: tensors_of(f(t)), (x,), (torch.full_like(x, 0.5),)),
    "grad_in_a_batch": lambda f, x: vmap(grad(lambda t: total(f(t))), randomness="different")(
        rows(x)
    ),
}
ALL = os.environ.get("OXYFUEL_TRANSFORMS") == "all"
FLOATING = [op for op in ENTRIES if torch.float32 in op.supported_dtypes("cpu")]
CHOSEN = [
    pytest.param(op, name, id=f"{full_name(op)}-{name}")
    for i, op in enumerate(FLOATING)
    for k, name in enumerate(TRANSFORMS)
    if ALL or i % len(TRANSFORMS) == k
]


def outcome(f, x):
    torch.manual_seed(3)
    try:
        return f(x)
    except Exception as e:
        return type(e)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("op, name", CHOSEN)
def test_as_eager(op, name):
    sample = next(iter(op.sample_inputs("cpu", torch.float32, requires_grad=False)))
    if not isinstance(sample.input, torch.Tensor):
        return  # nothing to transform by

    def f(x):
        return TRANSFORMS[name](lambda t: op.op(t, *sample.args, **sample.kwargs), x)

    expected = outcome(f, sample.input)
    compiled = oxyfuel.compile(f)
    for _ in range(2):
        found = outcome(compiled, sample.input)
        if isinstance(expected, type):
            assert found is expected
            continue
        for a, b in zip(tensors_of(found), tensors_of(expected), strict=True):
            assert (a.dtype, a.shape, a.stride()) == (b.dtype, b.shape, b.stride())
            if op.name not in UNDEFINED_VALUES:
                torch.testing.assert_close(a, b, equal_nan=True, rtol=1e-4, atol=1e-4)
