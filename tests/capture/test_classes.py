"""Classes that captured code makes, at later calls. Programs: test_programs.py."""

import pytest
import torch

import oxyfuel

pytestmark = [pytest.mark.usefixtures("strict"), pytest.mark.filterwarnings("ignore")]


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
