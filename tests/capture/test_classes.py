"""Classes that captured code makes: plain Python's result, in one graph unless the class leaves the function."""

import pathlib
import sys

import pytest
import torch
from class_programs import BREAKS, PROGRAMS

import oxyfuel

sys.path.append(str(pathlib.Path(__file__).parent.parent / "property"))
from against_python import differing

pytestmark = [pytest.mark.usefixtures("strict"), pytest.mark.filterwarnings("ignore")]


@pytest.mark.parametrize("name", PROGRAMS)
def test_plain_pythons_result(name):
    assert not differing(PROGRAMS[name])
    breaks = oxyfuel.stats()["graph_breaks"]
    assert breaks > 0 if name in BREAKS else breaks == 0


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("place", [3, 12, 30, 60, 110])
def test_with_a_forced_break(name, place):
    assert not differing(PROGRAMS[name], place)


def test_each_call_has_a_class_of_its_own():
    def function(x):
        y = x + 1

        class Local:
            k = 2

        return y * Local.k, Local

    compiled = oxyfuel.compile(function, backend="eager")
    x = torch.ones(2)
    classes = [compiled(x)[1] for _ in range(3)]
    assert len(set(classes)) == 3
    assert all(c.__qualname__.endswith("function.<locals>.Local") for c in classes)


def test_a_base_that_changes_is_seen():
    class Parent:
        k = 1

        def f(self, x):
            return x + self.k

    def function(x):
        class Child(Parent):
            def g(self, x):
                return self.f(x) * 2

        return Child().g(x)

    compiled = oxyfuel.compile(function, backend="eager")
    x = torch.ones(2)
    assert torch.equal(compiled(x), function(x))
    Parent.k = 5
    assert torch.equal(compiled(x), function(x))
    Parent.f = lambda self, x: x - self.k
    assert torch.equal(compiled(x), function(x))
    Parent.__init_subclass__ = classmethod(lambda cls: setattr(cls, "k", 7))
    assert torch.equal(compiled(x), function(x))


def test_the_reason_names_the_class():
    def function(x):
        class Local:
            pass

        return x + 1, Local()

    report = oxyfuel.explain(function)(torch.ones(2))
    assert "a class made in the function" in str(report)
    assert "Local" in str(report)
