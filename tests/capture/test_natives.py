"""What capture knows of functions written in C (capture/natives.def): each row names something that
is there, once."""

import collections
import importlib
import sys

import pytest

from oxyfuel import _C

ROWS = _C.native_table()


def subclasses(cls):
    for derived in type.__subclasses__(cls):
        yield derived
        yield from subclasses(derived)


def types_without_a_name():
    """Types that no module has under their name, such as the iterators of the builtin
    containers."""
    return {(t.__module__, t.__name__): t for t in subclasses(object)}


def look_up(module, name):
    found = getattr(importlib.import_module(module), name, None)
    return types_without_a_name().get((module, name)) if found is None else found


def is_there(module, type_name, name):
    if name == "*":
        return importlib.import_module(module) is not None
    if not type_name:
        return look_up(module, name) is not None
    holder = look_up(module, type_name)
    # By the class's dicts: some of a tensor's attributes raise where they are asked of the class.
    return any(name in vars(base) for base in holder.__mro__)


@pytest.mark.parametrize("row", ROWS, ids=lambda r: ".".join(part for part in r[:3] if part))
def test_each_row_names_something(row):
    module, type_name, name, since = row
    if sys.version_info < (3, since):
        pytest.skip(f"CPython 3.{since} has it")
    assert is_there(module, type_name, name)


def test_no_row_twice():
    twice = [place for place, n in collections.Counter(r[:3] for r in ROWS).items() if n > 1]
    assert not twice


def test_a_name_that_is_not_there_would_be_found():
    assert not is_there("builtins", "list", "appendd")
    assert not is_there("math", "", "prodd")
