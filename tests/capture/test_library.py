"""What captured code reads of the standard library, at later calls and behind breaks. Programs:
test_programs.py."""

import contextvars
import typing

import pytest
import torch

import oxyfuel

pytestmark = [pytest.mark.usefixtures("strict"), pytest.mark.filterwarnings("ignore")]


def test_a_context_variable_is_read_again_at_each_call():
    level = contextvars.ContextVar("level")
    compiled = oxyfuel.compile(lambda x: x * level.get(2), backend="eager")
    x = torch.ones(2)
    assert compiled(x).tolist() == [2, 2]
    token = level.set(3)
    assert compiled(x).tolist() == [3, 3]
    level.set(torch.full((2,), 5.0))
    assert compiled(x).tolist() == [5, 5]
    assert contextvars.Context().run(compiled, x).tolist() == [2, 2]
    level.reset(token)
    assert compiled(x).tolist() == [2, 2]
    assert oxyfuel.stats()["graph_breaks"] == 0


OPTIONAL = typing.Optional[int]  # noqa: UP045


@pytest.mark.parametrize("kind", [int | str, list[int], OPTIONAL, dict[str, int | None]])
def test_the_parts_of_a_type(kind):
    def parts(x, given):
        def of(t):
            return typing.get_origin(t), typing.get_args(t)

        return of(given), of(kind), x + len(typing.get_args(kind))

    compiled = oxyfuel.compile(parts, backend="eager", fullgraph=True)
    x = torch.ones(2)
    for given in (kind, list[str], kind):
        expected, found = parts(x, given), compiled(x, given)
        assert found[:2] == expected[:2] and torch.equal(found[2], expected[2])


def test_a_function_made_behind_a_break_is_no_new_capture():
    def run(x):
        def double(t):
            return t * 2

        y = x + 1
        oxyfuel.graph_break()
        return double(y)

    compiled = oxyfuel.compile(run, backend="eager")
    for _ in range(4):
        assert compiled(torch.ones(2)).tolist() == [4, 4]
    assert oxyfuel.stats()["graphs"] == 2


def test_wrong_numbers_of_arguments_are_type_errors():
    def run(x, *args, **kwargs):
        try:
            return x, bool(*args, **kwargs)
        except TypeError:
            return x + 1, None

    compiled = oxyfuel.compile(run, backend="eager")
    for args, kwargs in (((), {}), ((3,), {}), ((3, 4), {}), ((3,), {"y": 1})):
        assert compiled(1, *args, **kwargs) == run(1, *args, **kwargs)


def test_an_op_that_nobody_has_looked_up():
    library = torch.library.Library("oxyfuel_tests_of_names", "FRAGMENT")
    library.define("twice(Tensor x) -> Tensor")
    library.impl("twice", lambda x: x * 2, "CompositeImplicitAutograd")

    def f(x):
        return torch.ops.oxyfuel_tests_of_names.twice(x) + 1

    x = torch.ones(2)
    compiled = oxyfuel.compile(f, fullgraph=True)
    assert compiled(x).tolist() == compiled(x).tolist() == [3, 3]


def test_an_op_that_is_registered_later():
    def f(x):
        return hasattr(torch.ops.oxyfuel_later, "twice"), x + 1

    compiled = oxyfuel.compile(f)
    assert not compiled(torch.ones(2))[0]
    with torch.library._scoped_library("oxyfuel_later", "DEF") as library:
        library.define("twice(Tensor x) -> Tensor")
        assert compiled(torch.ones(2))[0]
