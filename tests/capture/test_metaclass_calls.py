"""Classes whose metaclass has __call__."""

import abc

import pytest
import torch

import oxyfuel

pytestmark = pytest.mark.usefixtures("strict_without_grad")

X = torch.randn(3)
calls = []


class Tags(type):
    def __call__(cls, *args, **kwargs):
        calls.append((cls.__name__, len(args)))
        made = super().__call__(*args, **kwargs)
        made.tag = 5
        return made


class Tagged(metaclass=Tags):
    def __init__(self, x, k=2):
        if k == 0:
            raise ValueError("k is 0")
        self.x = x * k


class OfTagged(Tagged):
    pass


class Single(type):
    def __call__(cls, *args):
        if "held" not in vars(cls):
            cls.held = type.__call__(cls, *args)
        return cls.held


class One(metaclass=Single):
    def __init__(self, k):
        self.k = k


class Chooses(abc.ABCMeta):
    def __call__(cls, *args, **kwargs):
        if "instead" in kwargs:
            return kwargs["instead"] * 2
        return super().__call__(*args, **kwargs)


class Chosen(metaclass=Chooses):
    def __new__(cls, *args):
        return super().__new__(cls)

    def __init__(self, value):
        self.value = value


def tagged(x, k):
    made = OfTagged(x, k=k)
    return made.x + made.tag, type(made).__name__, isinstance(made, Tagged)


def single(x, k):
    return x * One(k).k, One(3) is One(4)


def chosen(x, k):
    return Chosen(x).value + Chosen(instead=x) + k


@pytest.mark.parametrize("function", (tagged, single, chosen))
def test_as_eager(function):
    results = []
    compiled = oxyfuel.compile(function)
    for run in (function, compiled):
        calls.clear()
        if "held" in vars(One):
            del One.held
        results.append(str([run(X, k) for k in (2, 2, 3, 4)] + calls))
    assert results[0] == results[1]


def test_an_error_of_the_constructor():
    for run in (tagged, oxyfuel.compile(tagged)):
        with pytest.raises(ValueError, match="k is 0"):
            run(X, 0)


def test_another_call_on_the_metaclass(monkeypatch):
    compiled = oxyfuel.compile(tagged)
    assert str(compiled(X, 2)) == str(tagged(X, 2))
    call = Tags.__call__
    monkeypatch.setattr(Tags, "__call__", lambda cls, *a, **k: call(cls, X, k=7))
    assert str(compiled(X, 2)) == str(tagged(X, 2))
    assert oxyfuel.stats()["graph_breaks"] == 0
