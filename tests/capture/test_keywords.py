"""Keywords that are given twice or are no strings, and arguments that methods do not take: as
CPython refuses them."""

import collections
import copy

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


EXISTING = {
    "dict": (
        {"a": 1, "b": 2},
        "c.setdefault('a', default=5)",
        "c.setdefault()",
        "c.get('a', default=1)",
        "c.pop()",
        "c.pop('a', 1, 2)",
        "c.popitem(1)",
        "c.update(1, 2)",
        "c.update({'b': 3}, z=4)",
        "c.clear(1)",
        "dict.__setitem__(c, 'a')",
    ),
    "OrderedDict": (
        collections.OrderedDict(a=1, b=2),
        "c.setdefault('a', default=5)",
        "c.setdefault('z', default=5)",
        "c.setdefault(default=5)",
        "c.setdefault('z', key='a')",
        "c.pop('z', default=3)",
        "c.pop(key='a')",
        "c.popitem(foo=1)",
        "c.popitem(last=False)",
        "c.move_to_end('a', foo=0)",
        "c.move_to_end('b', last=False)",
        "c.move_to_end(last=False)",
    ),
    "list": (
        [1, 2, 3],
        "list.append(c)",
        "list.append(c, 1, 2)",
        "c.append(object=1)",
        "list.extend(c)",
        "c.insert(0)",
        "c.pop(0, 1)",
        "c.sort(1)",
        "list.remove(c)",
    ),
    "set": (
        {1, 2, 3},
        "c.remove([1])",
        "c.remove({1})",
        "c.update(a=1)",
        "set.add(c, 1, 2)",
        "c.discard()",
        "c.difference_update([1], [2])",
        "c.symmetric_difference_update()",
    ),
    "deque": (
        collections.deque([1, 2, 3]),
        "type(c).append(c, 1, 2)",
        "c.append(x=1)",
        "c.popleft(1)",
        "c.rotate(1, 2)",
        "c.rotate()",
    ),
}


@pytest.mark.parametrize("kind, call", [(k, c) for k, of in EXISTING.items() for c in of[1:]])
def test_arguments_of_methods_of_existing_containers(kind, call):
    scope = {}
    exec(f"def f(x, c):\n    r = {call}\n    return x + 1, r", scope)
    before, *_ = EXISTING[kind]
    ours, eagers = copy.copy(before), copy.copy(before)
    x = torch.ones(2)
    assert outcome(oxyfuel.compile(scope["f"]), x, ours) == outcome(scope["f"], x, eagers)
    assert ours == eagers and list(ours) == list(eagers)
