"""Functions with a cache that are asked with sizes, as einops asks for its recipes: one capture for
every length, and eager's results where what they give is changed or given away. And the first
import of a module."""

import functools
import sys

import pytest
import torch

import oxyfuel

pytestmark = pytest.mark.usefixtures("strict_without_grad")

LENGTHS = (3, 5, 7, 9, 11)


class Recipe:
    def __init__(self, heads):
        self.lengths = [None, None, heads]
        self.order = [0, 2, 1]
        self.names = {"heads": 2}


@functools.lru_cache(8)
def recipe_of(heads):
    return Recipe(heads)


def shapes_of(recipe, shape, named):
    lengths = list(recipe.lengths)
    for name, value in named:
        lengths[recipe.names[name]] = value
    rows, columns = shape[0] * shape[1], shape[2]
    if columns % lengths[2] != 0:
        raise ValueError("heads")
    return [rows, columns // lengths[2], lengths[2]], recipe.order, {1: rows}, [rows, columns], 3


@pytest.fixture
def cached(monkeypatch):
    function = functools.lru_cache(1024)(shapes_of)
    monkeypatch.setitem(globals(), "cached_shapes", function)
    return function


kinds = {}


def rearranged(x):
    kinds.setdefault(type(x), "a tensor")
    recipe = recipe_of(4)
    first, order, added, last, _ = cached_shapes(recipe, x.shape, (("heads", 4),))  # noqa: F821
    return x.reshape(first).permute(order).reshape(last) * added[1]


def changed(x):
    first, *_ = cached_shapes(recipe_of(4), x.shape, (("heads", 4),))  # noqa: F821
    first[0] += 1
    return x * first[0]


def given_away(x):
    return x + 1, cached_shapes(recipe_of(4), x.shape, ())[0]  # noqa: F821


def kept_behind_a_break(x):
    first, *_ = cached_shapes(recipe_of(4), x.shape, ())  # noqa: F821
    torch._dynamo.graph_break()
    return x.reshape(first).sin()


@pytest.mark.parametrize("asked_before", [False, True])
def test_one_capture(cached, asked_before):
    kinds.clear()
    inputs = [torch.randn(2, n, 8) for n in LENGTHS]
    expected = [rearranged(x) for x in inputs] if asked_before else None
    compiled = oxyfuel.compile(rearranged, fullgraph=True)
    got = [compiled(x) for x in inputs]
    assert oxyfuel.stats()["graphs"] == 2
    torch.testing.assert_close(got, expected or [rearranged(x) for x in inputs])


@pytest.mark.parametrize("f", [changed, given_away, kept_behind_a_break])
def test_eager_results(cached, f):
    """Twice each: a list that the cache has is the same one, changed by then."""
    inputs = [torch.randn(2, n, 8) for n in LENGTHS for _ in range(2)]
    expected = [f(x) for x in inputs]
    cached.cache_clear()
    compiled = oxyfuel.compile(f)
    got = [compiled(x) for x in inputs]
    torch.testing.assert_close(got, expected)
    if f is given_away:
        for i in range(0, len(got), 2):
            assert got[i][1] is got[i + 1][1]


def test_sizes_that_raise(cached):
    compiled = oxyfuel.compile(rearranged)
    for shape in [(2, 3, 8), (2, 5, 8), (2, 5, 6), (2, 7, 12), (2, 7, 7)]:
        x = torch.randn(shape)
        if shape[2] % 4:
            with pytest.raises(ValueError, match="heads"):
                compiled(x)
        else:
            torch.testing.assert_close(compiled(x), rearranged(x))


@pytest.fixture
def package(tmp_path, monkeypatch):
    folder = tmp_path / "first_imported"
    folder.mkdir()
    (folder / "__init__.py").write_text("runs = []\n")
    (folder / "part.py").write_text("from . import runs\nruns.append(1)\nFACTOR = 3\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield
    for name in [n for n in sys.modules if n.startswith("first_imported")]:
        del sys.modules[name]


def imports_module(x):
    import first_imported.part

    return x * first_imported.part.FACTOR


def imports_part(x):
    from first_imported import part

    return x * part.FACTOR


def imports_name(x):
    from first_imported.part import FACTOR

    return x * FACTOR


def imports_if_there(x):
    try:
        import no_such_module_anywhere  # noqa: F401
    except ImportError:
        from first_imported import part

        return x * part.FACTOR
    return x


@pytest.mark.parametrize("f", [imports_module, imports_part, imports_name])
def test_a_first_import_is_no_break(package, f):
    compiled = oxyfuel.compile(f, fullgraph=True)
    for _ in range(3):
        assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 3.0))
    assert sys.modules["first_imported"].runs == [1]


def test_an_import_that_fails(package):
    compiled = oxyfuel.compile(imports_if_there)
    for _ in range(3):
        assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 3.0))


def test_an_import_behind_a_write(package):
    seen = []

    def f(x):
        seen.append(len(seen))
        from first_imported import part

        return x * part.FACTOR

    compiled = oxyfuel.compile(f)
    for _ in range(3):
        assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 3.0))
    assert seen == [0, 1, 2] and sys.modules["first_imported"].runs == [1]
