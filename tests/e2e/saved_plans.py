"""Saves the plans of compiled functions, runs them in a fresh process, and compares the results.

    python tests/e2e/saved_plans.py [CASE ...]    the demo's models, or these cases of
                                                  bench/cases.py

A plan's folder has the plan as bytes, and what a call needs that is no part of it: the constants
and the inputs. Files changed at random are read too: that is an error, never a crash.
"""

from __future__ import annotations

import contextlib
import pathlib
import random
import subprocess
import sys
import tempfile
from unittest import mock

import torch

import oxyfuel
from oxyfuel import _C

ROOT = pathlib.Path(__file__).resolve().parents[2]


@contextlib.contextmanager
def kept_plans():
    """The plans that are compiled inside, each with the inputs that it was compiled for."""
    kept = []
    compile_plan = _C.compile

    def compile_and_keep(graph, args, settings, *more):
        plan = compile_plan(graph, args, settings, *more)
        kept.append((plan, copy_of(args), settings))
        return plan

    with mock.patch.object(_C, "compile", compile_and_keep):
        yield kept


def copy_of(values):
    """The same tensors in memory of their own, with strides, offsets and what they share."""
    with tempfile.TemporaryFile() as file:
        torch.save(values, file)
        file.seek(0)
        return torch.load(file, weights_only=False)


def run(plan, inputs):
    """What the plan gives and what its inputs are then."""
    torch.manual_seed(0)
    with torch.no_grad():
        return plan.run(inputs), inputs


def save(folder, plan, inputs):
    folder.mkdir()
    (folder / "plan").write_bytes(plan.save())
    rest = (plan.attributes(), plan.own_attributes(), inputs)
    torch.save(rest, folder / "rest.pt")


def load(folder, settings):
    attributes, own, inputs = torch.load(folder / "rest.pt", weights_only=False)
    plan = _C.load_plan((folder / "plan").read_bytes(), attributes, inputs, settings, own)
    return plan, inputs


def run_folders(parent):
    """In the fresh process: each plan's results beside it."""
    for folder in sorted(p for p in pathlib.Path(parent).iterdir() if p.is_dir()):
        plan, inputs = load(folder, _C.Settings.from_env())
        (folder / "plan.txt").write_text(plan.text())
        torch.save(run(plan, inputs), folder / "results.pt")


def same(a, b):
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    if not isinstance(a, torch.Tensor):
        return a == b
    if (a.dtype, a.shape, a.stride()) != (b.dtype, b.shape, b.stride()):
        return False
    return torch.allclose(a, b, rtol=0, atol=0, equal_nan=True)


def check(kept, parent):
    """The number of plans whose saved form gives what they give. Text and bytes read back, too."""
    for i, (plan, inputs, _) in enumerate(kept):
        save(parent / f"{i:03}", plan, inputs)
    subprocess.run([sys.executable, __file__, "--run", parent], check=True)
    for i, (plan, inputs, _) in enumerate(kept):
        folder = parent / f"{i:03}"
        assert (folder / "plan.txt").read_text() == plan.text() == _C.parse_plan(plan.text())
        expected = run(plan, copy_of(inputs))
        assert same(torch.load(folder / "results.pt", weights_only=False), expected), folder
    return len(kept)


def check_changed_files(kept, parent, count):
    """Reads `count` changed files: each is an error of the reader."""
    generator = random.Random(1)
    originals = [plan.save() for plan, _, _ in kept]
    for _ in range(count):
        data = bytearray(generator.choice(originals))
        at = generator.randrange(len(data))
        change = generator.randrange(3)
        if change == 0:
            data[at] ^= 1 << generator.randrange(8)
        elif change == 1:
            del data[at:]
        else:
            data.insert(at, generator.randrange(256))
        try:
            _C.load_plan(bytes(data), [], (), _C.Settings.from_env())
        except _C.UserError:
            continue
        raise AssertionError(f"a changed file was read: {change} at {at}")


def check_cases(names):
    sys.path.insert(0, str(ROOT / "bench"))
    import cases

    for name in names or cases.DEMO:
        oxyfuel.reset()
        fn, args, kwargs = cases.make(name)
        with tempfile.TemporaryDirectory() as folder, torch.no_grad(), kept_plans() as kept:
            oxyfuel.compile(fn)(*args, **kwargs)
            count = check(kept, pathlib.Path(folder))
            size = sum(len(plan.save()) for plan, _, _ in kept)
            check_changed_files(kept, folder, 1000)
        print(f"{name}: {count} plans, {size / 1e3:.0f} kB, equal results", flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--run"]:
        run_folders(sys.argv[2])
    else:
        check_cases(sys.argv[1:])
