"""Random programs do compiled what they do in eager: values, layouts, aliasing, mutation.

OXYFUEL_PROGRAMS=5000 runs so many, instead of the few that CI runs; OXYFUEL_FIRST_PROGRAM says with
which seed to begin. A program that fails is cut down before it is shown.
"""

import os
import time
import warnings

import pytest
from against_eager import check, reduce, torch_ir
from programs import make_program

import oxyfuel

FIRST = int(os.environ.get("OXYFUEL_FIRST_PROGRAM", "0"))
COUNT = int(os.environ.get("OXYFUEL_PROGRAMS", "300"))
GROUPS = 10
OPEN: set[int] = set()  # seeds that are wrong today
SECONDS = 9 if "OXYFUEL_PROGRAMS" not in os.environ else 1e9  # for a group
# Seeds take turns: caches so small that what is made for large tensors (stores past the cache,
# prefetches, cuts) happens to small ones.
MACHINES = ("", "l1 1K, l2 4K, l3 16K, threads 4", "plain, avx2, l1 2K, l2 8K, l3 8K", "no onednn")


def error_of(program, seed):
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            machine = MACHINES[seed // GROUPS % len(MACHINES)]
            check(program, inference=seed % 5 == 0, options={"machine": machine})
    except Exception as e:
        return e
    return None


@pytest.mark.parametrize("group", range(GROUPS))
def test_as_in_eager(group, monkeypatch):
    monkeypatch.setenv("OXYFUEL_STRICT", "1")
    end = time.monotonic() + SECONDS
    for seed in range(FIRST + group, FIRST + COUNT, GROUPS):
        if time.monotonic() > end:
            break
        if seed in OPEN:
            continue
        oxyfuel.reset()
        program = make_program(seed)
        error = error_of(program, seed)
        if error is None:
            continue
        alike = str(error)[:8]
        smallest = reduce(program, lambda p: str(error_of(p, seed) or "")[:8] == alike)
        error = error_of(smallest, seed) or error
        pytest.fail(
            f"seed {seed}: {error}\n{smallest.text()}\n\n{torch_ir(smallest)}", pytrace=False
        )


def test_most_programs_are_compiled(monkeypatch):
    monkeypatch.setenv("OXYFUEL_STRICT", "1")
    oxyfuel.reset()
    for seed in range(1, 21):
        error_of(make_program(seed), seed)
    stats = oxyfuel.stats()
    assert stats["kernels"] > 20 and stats["unsupported"] < 20
