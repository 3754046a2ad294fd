"""Recurrent modules and cells in one graph, whatever they are given."""

import itertools

import pytest
import torch
from model_check import first_difference

import oxyfuel

nn = torch.nn
KINDS = {"rnn": nn.RNN, "gru": nn.GRU, "lstm": nn.LSTM}
CELLS = {"rnn": nn.RNNCell, "gru": nn.GRUCell, "lstm": nn.LSTMCell}


@pytest.fixture(autouse=True)
def strict_without_grad(monkeypatch):
    monkeypatch.setenv("OXYFUEL_STRICT", "1")
    oxyfuel.reset()
    with torch.no_grad():
        yield


def in_one_graph(function, *args):
    """Compares two calls with eager; there must be no break."""
    torch.manual_seed(2)
    expected = [function(*args), function(*args)]
    compiled = oxyfuel.compile(function, fullgraph=True)
    torch.manual_seed(2)
    assert not first_difference([compiled(*args), compiled(*args)], expected)
    assert oxyfuel.stats()["graphs"] == 1


def hidden(module, kind, *batch):
    size = (module.num_layers * (2 if module.bidirectional else 1), *batch)
    h = torch.randn(*size, module.proj_size or module.hidden_size)
    return (h, torch.randn(*size, module.hidden_size)) if kind == "lstm" else h


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("layers", "both", "first", "bias"),
    list(itertools.product((1, 2), (False, True), (False, True), (False, True)))[::3],
)
def test_sequences(kind, layers, both, first, bias):
    m = KINDS[kind](3, 4, layers, bias=bias, batch_first=first, bidirectional=both)
    x = torch.randn(2, 5, 3)
    batch = 2 if first else 5
    in_one_graph(m, x)
    oxyfuel.reset()
    in_one_graph(m, x, hidden(m, kind, batch))
    oxyfuel.reset()
    in_one_graph(m, x[0])
    oxyfuel.reset()
    in_one_graph(m, x[0], hidden(m, kind))


def test_projections():
    m = nn.LSTM(3, 5, 2, proj_size=2, bidirectional=True)
    in_one_graph(m, torch.randn(4, 2, 3), hidden(m, "lstm", 2))


@pytest.mark.parametrize("kind", KINDS)
def test_dropout_between_layers(kind):
    in_one_graph(KINDS[kind](3, 4, 3, dropout=0.5).train(), torch.randn(4, 2, 3))


@pytest.mark.parametrize("kind", KINDS)
def test_dtypes(kind):
    in_one_graph(KINDS[kind](3, 4).double(), torch.randn(4, 2, 3, dtype=torch.float64))


@pytest.mark.parametrize("kind", CELLS)
@pytest.mark.parametrize("bias", [True, False])
def test_cells(kind, bias):
    c = CELLS[kind](3, 4, bias=bias)
    for x in (torch.randn(2, 3), torch.randn(3)):
        h = torch.randn(*x.shape[:-1], 4)
        in_one_graph(c, x)
        oxyfuel.reset()
        in_one_graph(c, x, (h, h + 1) if kind == "lstm" else h)
        oxyfuel.reset()


@pytest.mark.parametrize("kind", CELLS)
def test_cell_over_time(kind):
    c = CELLS[kind](3, 4)

    def run(xs):
        state = None
        out = []
        for x in xs.unbind(1):
            state = c(x, state)
            out.append(state[0] if kind == "lstm" else state)
        return torch.stack(out, 1), state

    in_one_graph(run, torch.randn(2, 7, 3))


def test_parts_of_an_unsafe_split_share_memory():
    def chunked(x):
        parts = x.unsafe_chunk(3, 1)
        parts[0].add_(1)
        parts[1].mul_(2)
        return x.sum()

    def of_new_memory(x):
        y = x * 2
        parts = y.unsafe_split_with_sizes([1, 3, 2], 1)
        parts[1].mul_(3).add_(parts[0])
        y.add_(1)
        return y, parts[2]

    def split(x):
        return x.unsafe_split(2, 0)

    for function in (chunked, of_new_memory, split):
        oxyfuel.reset()
        a = torch.randn(4, 6)
        b = a.clone()
        found, expected = oxyfuel.compile(function, fullgraph=True)(a), function(b)
        assert not first_difference((found, a), (expected, b))
        if isinstance(expected, tuple):
            assert [t.storage_offset() for t in found] == [t.storage_offset() for t in expected]
