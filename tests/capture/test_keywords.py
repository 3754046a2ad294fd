"""Keywords that are given twice or are no strings: as CPython refuses them."""

import pytest
import torch

import oxyfuel


def inner(**kw):
    return kw["x"] + kw["z"]


class Callee:
    def method(self, **k):
        return k["x"]

    def __call__(self, **k):
        return k["x"]

    def __repr__(self):
        return "Callee()"


CALLS = {
    "twice": (lambda x, k: inner(x=x, **k, **{"z": 1}), {"z": 2}),
    "once": (lambda x, k: inner(x=x, **k, **{"z": 1}), {}),
    "behind": (lambda x, k: inner(**{"x": x, "z": 1}, **k), {"z": 2}),
    "method": (lambda x, k: Callee().method(x=x, **k), {"x": 1}),
    "object": (lambda x, k: Callee()(x=x, **k), {"x": 1}),
    "torch": (lambda x, k: torch.add(x, 1, alpha=2, **k), {"alpha": 3}),
    "torch once": (lambda x, k: torch.add(x, 1, alpha=2, **k), {}),
    "dict": (lambda x, k: dict(a=x, **k), {"a": 1}),
    "dict others": (lambda x, k: dict(a=x, **k), {"b": 1}),
    "display": (lambda x, k: {**{"a": x}, **k}, {"a": 1}),
    "number": (lambda x, k: inner(x=x, z=1, **k), {1: 2}),
    "number to C": (lambda x, k: dict(a=x, **k), {1: 2}),
    "len": (lambda x, k: len(x, **k), {"a": 1}),
    "positional": (lambda x, k: inner(*[x], **k), {"x": 1}),
}


def outcome(f, x, k):
    try:
        return str(f(x, k))
    except Exception as e:
        return f"{type(e).__name__}: {e}"


@pytest.mark.parametrize("case", CALLS)
def test_keywords_of_a_call(case):
    f, k = CALLS[case]
    x = torch.zeros(1)
    for break_at in (0, 2, 4, 6, 8):
        oxyfuel.reset()
        compiled = oxyfuel.compile(f, backend="eager", options={"break_at": break_at})
        with torch.no_grad():
            assert [outcome(compiled, x, k) for _ in range(2)] == [outcome(f, x, k)] * 2
