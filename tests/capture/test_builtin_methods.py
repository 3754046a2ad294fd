"""Every public method of the builtin types, and the operators, on objects that come with the call
and on such as the captured code makes: plain Python's value, exception and change."""

import collections
import copy

import pytest
import torch
from builtin_methods import MAKE, METHODS, OPERATIONS
from snapshot import outcome, outcome_differences

import oxyfuel

pytestmark = [pytest.mark.usefixtures("strict_without_grad"), pytest.mark.filterwarnings("ignore")]
TYPES = pytest.mark.parametrize("of", METHODS, ids=lambda t: t.__name__)


def expressions(of: type):
    for names, arguments in METHODS[of].items():
        for name in names.split():
            yield from (f"q.{name}({a})" for a in arguments)


def functions(expression: str, of: type):
    """One that is given the object, and one that makes it."""
    names = {"collections": collections, "copy": copy, "torch": torch}
    body = f"r = {expression}\n    if hasattr(r, '__next__'): r = list(r)\n    return r, q, x + 1\n"
    exec(
        f"def given(x, n, q):\n    {body}def made(x, n, q):\n    q = {MAKE[of]}\n    {body}", names
    )
    return names["given"], names["made"]


def make(of: type):
    return eval(MAKE[of], {"n": 2, "collections": collections})


def disagreeing(all_of_them, of: type) -> list[str]:
    found = []
    for expression in all_of_them:
        for function in functions(expression, of):
            oxyfuel.reset()
            compiled = oxyfuel.compile(function, backend="eager")
            for n in (2, 2, 1):
                expected, actual = (
                    outcome(run, function, (torch.zeros(1), n, make(of)), {})
                    for run in (function, compiled)
                )
                differences = outcome_differences(expected, actual)
                if differences:
                    found.append(f"{function.__name__} {expression}: {differences[0]}")
                    break
    return found


@TYPES
def test_each_method_is_called(of):
    called = {name for names in METHODS[of] for name in names.split()}
    public = {n for n in dir(of) if not n.startswith("_") and callable(getattr(of, n))}
    assert called == public


@TYPES
def test_methods(of):
    assert not disagreeing(expressions(of), of)


@TYPES
def test_operations(of):
    assert not disagreeing(OPERATIONS, of)
