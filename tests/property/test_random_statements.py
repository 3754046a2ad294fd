"""Random functions of statements do compiled what they do in eager, and none falls back to it.

``python tests/property/test_random_statements.py 0 20000`` runs those seeds and prints what
differs, cut down.
"""

import os
import sys
import warnings

import pytest
import torch
from statements import Function, compile_source, difference, reduce

import oxyfuel

COUNT = int(os.environ.get("OXYFUEL_STATEMENTS", "240"))
GROUPS = 8


def fault(function: Function) -> str | None:
    oxyfuel.reset()
    with warnings.catch_warnings(record=True) as given, torch.no_grad():
        warnings.simplefilter("always")
        compiled = oxyfuel.compile(compile_source(function.source))
        try:
            for seed in (0, 1, 0):
                if found := difference(function, compiled, seed):
                    return f"differs: {found}"
        except Exception as e:
            return f"raises: {type(e).__name__}: {e}"
        for w in given:
            if "oxyfuel" in str(w.message):
                return f"falls back: {w.message}"
    return None


def report(seed: int) -> str | None:
    function = Function(seed)
    found = fault(function)
    if found is None:
        return None
    kind = found.split(":")[0]
    smallest = reduce(function, lambda f: (fault(f) or "").startswith(kind))
    return f"{fault(smallest) or found}\n{smallest.text()}"


@pytest.mark.parametrize("group", range(GROUPS))
def test_statements_as_in_eager(group, monkeypatch):
    monkeypatch.setenv("OXYFUEL_STRICT", "1")
    for seed in range(group, COUNT, GROUPS):
        if found := report(seed):
            pytest.fail(found, pytrace=False)


if __name__ == "__main__":
    os.environ["OXYFUEL_STRICT"] = "1"
    torch.set_num_threads(1)
    first, last = int(sys.argv[1]), int(sys.argv[2])
    bad = 0
    for seed in range(first, last):
        if found := report(seed):
            bad += 1
            print(found, flush=True)
    print(f"{last - first} functions, {bad} differ or fall back")
