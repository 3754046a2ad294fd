"""Functions of packages that work on no tensors: one break in front of the call, not one in each
function that it runs; threads and modules that are asked for."""

import importlib
import importlib.util
import threading

import numpy as np
import pytest
import sympy
import torch

import oxyfuel

pytestmark = pytest.mark.usefixtures("strict")


def symbolic(x):
    z = sympy.symbols("z")
    return x * float(sympy.diff((z**2 - 1) ** 3, z, 3).subs(z, 1)) + 1


def quadrature(x):
    places, weights = np.polynomial.hermite.hermgauss(4)
    return x * float(places.sum() + weights.sum())


@pytest.mark.parametrize("fn", (symbolic, quadrature))
def test_few_breaks(fn):
    compiled = oxyfuel.compile(fn)
    for _ in range(4):
        x = torch.rand(3)
        torch.testing.assert_close(compiled(x), fn(x))
    stats = oxyfuel.stats()
    assert stats["graph_breaks"] <= 6 and stats["recompiles"] == stats["fallbacks"] == 0


def test_what_a_package_calls_back_is_compiled():
    """numpy.vectorize calls a function of the user's."""

    def number(v):
        return float((torch.ones(3) * v).sum())

    def fn(x):
        return x + torch.from_numpy(np.vectorize(number)(np.arange(3.0)))

    compiled = oxyfuel.compile(fn)
    for _ in range(2):
        x = torch.rand(3, dtype=torch.float64)
        torch.testing.assert_close(compiled(x), fn(x))
    assert oxyfuel.stats()["graphs"] >= 2


def test_the_number_of_the_thread():
    def f(x):
        return x + (threading.get_ident() in known)

    compiled, known = oxyfuel.compile(f), {threading.get_ident()}
    found, x = [], torch.ones(3)

    def run():
        found.append(compiled(x))

    run()
    others = [threading.Thread(target=run) for _ in range(6)]
    for thread in others:
        thread.start()
        thread.join()
    run()
    assert [torch.equal(y, x + 1) for y in found] == [True, *[False] * 6, True]
    assert oxyfuel.stats()["recompiles"] <= 3  # not one a thread


def test_packages_that_are_looked_for():
    def f(x):
        if importlib.util.find_spec("no_such_package") is None:
            return x.sin() + importlib.import_module("math").pi
        return x

    x, compiled = torch.ones(3), oxyfuel.compile(f)
    for _ in range(3):
        torch.testing.assert_close(compiled(x), f(x))
    assert oxyfuel.stats()["graph_breaks"] == 1
