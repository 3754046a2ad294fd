"""What stood in the way of other modules."""

import abc
import collections.abc

import pytest
import torch
from model_check import first_difference

import oxyfuel

nn, F = torch.nn, torch.nn.functional


@pytest.fixture(autouse=True)
def strict_without_grad(monkeypatch):
    monkeypatch.setenv("OXYFUEL_STRICT", "1")
    oxyfuel.reset()
    with torch.no_grad():
        yield


def in_one_graph(function, *args, **kwargs):
    """Compares with eager; there must be no break."""
    found = oxyfuel.compile(function, fullgraph=True)(*args, **kwargs)
    assert not first_difference(found, function(*args, **kwargs))
    assert oxyfuel.stats()["graphs"] == 1


@pytest.mark.parametrize("kind", [nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d])
@pytest.mark.parametrize("size", [None, 8, "tuple"])
def test_transposed_convolutions(kind, size):
    m = kind(4, 6, 4, 2, 1, groups=2)
    rank = {nn.ConvTranspose1d: 1, nn.ConvTranspose2d: 2, nn.ConvTranspose3d: 3}[kind]
    given = () if size is None else ([8] * rank if size == 8 else (9,) * rank,)
    in_one_graph(m, torch.randn(2, 4, *[4] * rank), *given)


def test_isinstance_of_an_abstract_class_outlives_registrations():
    Meter = abc.ABCMeta("Meter", (), {})
    Other = type("Other", (), {})

    def count(x, what):
        one = isinstance(what, (list, Meter)) + isinstance(what, collections.abc.Iterable)
        return x + one + 2 * issubclass(type(what), Meter)

    compiled, x, what = oxyfuel.compile(count), torch.zeros(3), Other()
    for _ in range(3):
        assert torch.equal(compiled(x, what), x)
        Meter.register(type("Unrelated", (), {}))
    assert oxyfuel.stats()["graphs"] == 1
    Meter.register(Other)
    assert torch.equal(compiled(x, what), x + 3)
    assert oxyfuel.stats()["graphs"] == 2


def test_functions_of_torch_that_tell_of_metadata():
    def cast(x, y):
        dtype = F._none_or_dtype(y)
        return x.to(dtype), F._none_or_dtype(None)

    in_one_graph(cast, torch.ones(3), torch.ones(2, dtype=torch.float64))


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("weights", [False, True])
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("mask", ["none", "bool", "float", "padding", "both"])
def test_attention(first, weights, training, mask):
    m = nn.MultiheadAttention(8, 2, batch_first=first).train(training)
    x = torch.randn(3, 5, 8)
    length, batch = (5, 3) if first else (3, 5)
    masks = {}
    if mask in ("bool", "both"):
        masks["attn_mask"] = torch.ones(length, length).triu(1).bool()
    if mask == "float":
        masks["attn_mask"] = torch.randn(length, length)
    if mask in ("padding", "both"):
        masks["key_padding_mask"] = torch.zeros(batch, length, dtype=torch.bool)
        masks["key_padding_mask"][0, -1] = True
    in_one_graph(m, x, x, x, need_weights=weights, **masks)
    oxyfuel.reset()
    key = torch.randn(3, 5, 8)
    in_one_graph(m, x, key, key, need_weights=weights, average_attn_weights=False, **masks)


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("norm_first", [False, True])
def test_layers(first, norm_first):
    made = {"batch_first": first, "norm_first": norm_first}
    x, y = torch.randn(4, 3, 8), torch.randn(4, 3, 8)
    in_one_graph(nn.TransformerEncoderLayer(8, 2, 16, **made).eval(), x)
    oxyfuel.reset()
    in_one_graph(nn.TransformerDecoderLayer(8, 2, 16, **made).eval(), x, y)


def test_code_that_raises_only_where_it_is_compiled():
    def choose(x, missing=None):
        if not torch.compiler.is_compiling():
            missing = x * 2
        return x + missing.shape[0]

    in_one_graph(choose, torch.ones(3))


def test_code_that_raises_wherever_it_runs():
    def fail(x):
        if torch.compiler.is_compiling():
            raise KeyError("compiled")
        raise ValueError("eager")

    with pytest.raises(ValueError, match="eager"):
        oxyfuel.compile(fail)(torch.ones(3))
