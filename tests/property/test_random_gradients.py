"""Random programs have eager's gradients: inputs that are leaves or views of results of other ops,
some requiring gradients, written and aliased by the program.

Floats are float64, so that what is right agrees to many places however a program magnifies its
roundings. A program that eager refuses, forward or backward, must be refused with the same class of
exception. OXYFUEL_GRADIENT_PROGRAMS=5000 runs so many, OXYFUEL_FIRST_PROGRAM says with which seed
to begin.
"""

import os
import random
import time
import warnings

import pytest
import torch
from against_eager import reduce, torch_ir
from programs import make_program

import oxyfuel

FIRST = int(os.environ.get("OXYFUEL_FIRST_PROGRAM", "0"))
COUNT = int(os.environ.get("OXYFUEL_GRADIENT_PROGRAMS", "150"))
GROUPS = 5
SECONDS = 12 if "OXYFUEL_GRADIENT_PROGRAMS" not in os.environ else 1e9  # for a group


class Trainer:
    """The inputs of a program, as a seed chooses them, and a step with it."""

    def __init__(self, program, seed):
        rng = random.Random(seed)
        self.program = program
        self.required = [rng.random() < 0.6 for _ in program.bases]
        self.leaves = rng.random() < 0.4

    def inputs(self, seed):
        """The leaves that require gradients, and the inputs."""
        plain = self.program.make_inputs(seed)
        leaves, bases, inputs = [], {}, []
        for x, described in zip(plain, self.program.inputs):
            wanted = self.required[described.base] and x.is_floating_point()
            if not wanted:
                inputs.append(x)
            elif self.leaves:
                inputs.append(x.detach().requires_grad_())
                leaves.append(inputs[-1])
            else:
                if described.base not in bases:
                    whole = x.new_empty(0).set_(x.untyped_storage())
                    leaves.append(whole.clone().requires_grad_())
                    bases[described.base] = leaves[-1] * 1
                window = described.size, described.stride, described.offset
                inputs.append(bases[described.base].as_strided(*window))
        return leaves, inputs

    def step(self, f, seed):
        """Results, inputs afterwards and gradients, or what was raised."""
        leaves, inputs = self.inputs(seed)
        try:
            results = f(*inputs)
            used = [r for r in results if r.is_floating_point() and r.requires_grad]
            noise = torch.Generator().manual_seed(seed)
            weights = [torch.randn(r.shape, generator=noise, dtype=r.dtype) for r in used]
            if used:
                torch.autograd.backward(used, weights)
        except (RuntimeError, IndexError, TypeError, ValueError) as e:
            return e
        return list(results), inputs, [x.grad for x in leaves]


def compare(expected, found, aliased):
    """Raises AssertionError where a step is not eager's. `aliased`: inputs share memory. One
    version stands for all of it in eager, which then refuses more than it must."""
    if isinstance(expected, Exception):
        if aliased and "modified by an inplace operation" in str(expected):
            return
        assert type(found) is type(expected), f"{found!r:.300}; in eager: {expected!r:.300}"
        return
    assert not isinstance(found, Exception), f"raises {found!r:.400}"
    for what, a, b in zip(("result", "input", "gradient"), expected, found):
        assert len(a) == len(b)
        for i, (x, y) in enumerate(zip(a, b)):
            compare_tensors(f"{what} {i}", x, y)


def compare_tensors(name, x, y):
    assert (x is None) == (y is None), f"{name}: {y}; in eager: {x}"
    if x is None:
        return
    for of in ("dtype", "shape", "requires_grad", "is_leaf"):
        a, b = getattr(x, of), getattr(y, of)
        assert a == b, f"{name}: {of} {b}; in eager: {a}"
    a, b = x.detach(), y.detach()
    if not a.is_floating_point():
        assert torch.equal(a, b), f"{name}: values"
        return
    finite = a.isfinite()  # overflow and 0 / 0 depend on the order
    largest = a[finite].abs().max().item() if bool(finite.any()) else 0.0
    off = (a - b)[finite].abs()
    assert not bool((off > 1e-7 * max(largest, 1.0)).any()) and not bool(off.isnan().any()), (
        f"{name}: off by {off.max():.3e} of {largest:.3e}"
    )


def error_of(program, seed):
    """What is wrong with a program, or None."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            gm = program.graph_module()
            trainer = Trainer(program, seed)
            compiled = oxyfuel.compile_fx(gm, options={"verify": "True"})
            aliased = len(program.bases) < len(program.inputs)
            for values in (1, 2):
                steps = trainer.step(gm.forward, values), trainer.step(compiled, values)
                compare(*steps, aliased)
    except Exception as e:
        return e
    return None


@pytest.mark.parametrize("group", range(GROUPS))
def test_gradients_as_in_eager(group, monkeypatch):
    monkeypatch.setenv("OXYFUEL_STRICT", "1")
    end = time.monotonic() + SECONDS
    for seed in range(FIRST + group, FIRST + COUNT, GROUPS):
        if time.monotonic() > end:
            break
        oxyfuel.reset()
        program = make_program(seed).widened()
        error = error_of(program, seed)
        if error is None:
            continue
        alike = str(error)[:8]
        smallest = reduce(program, lambda p: str(error_of(p, seed) or "")[:8] == alike)
        error = error_of(smallest, seed) or error
        pytest.fail(
            f"seed {seed}: {error}\n{smallest.text()}\n{vars(Trainer(smallest, seed))}"
            f"\n{torch_ir(smallest)}",
            pytrace=False,
        )


def test_most_programs_are_compiled(monkeypatch):
    monkeypatch.setenv("OXYFUEL_STRICT", "1")
    oxyfuel.reset()
    for seed in range(1, 21):
        error_of(make_program(seed).widened(), seed)
    stats = oxyfuel.stats()
    assert stats["kernels"] > 20 and stats["grad_fallbacks"] == 0
