"""Recurrent modules and cells in one graph, whatever they are given."""

import itertools

import pytest
import torch
from model_check import first_difference

import oxyfuel

nn, F = torch.nn, torch.nn.functional
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


# ---- packed sequences: their kernels read lengths out of a CPU tensor, at breaks

rnn = nn.utils.rnn


def at_each_length(function, make):
    """The same as eager for growing and shrinking inputs, one capture and then symbols."""
    compiled = oxyfuel.compile(function)
    for n in (5, 7, 3, 4):
        args = make(n)
        assert not first_difference(compiled(*args), function(*args))
    assert oxyfuel.stats()["fallbacks"] == 0


def of_lengths(n):
    return torch.randn(3, n, 4), torch.tensor([n - 2, n, 1])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("both", [False, True])
def test_packed_sequences(kind, both):
    m = KINDS[kind](4, 6, 2, batch_first=True, bidirectional=both)

    def run(x, lengths):
        packed = rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        out, _ = m(packed)
        return rnn.pad_packed_sequence(out, batch_first=True)[0] * 2

    at_each_length(run, of_lengths)
    packed = lambda n: (rnn.pack_padded_sequence(*of_lengths(n), True, enforce_sorted=False),)
    at_each_length(lambda p: m(p)[0].data * 2, packed)


def test_packed_gradients():
    m = nn.LSTM(4, 6, batch_first=True)

    def run(x, lengths):
        packed = rnn.pack_padded_sequence(x * 2, lengths, batch_first=True, enforce_sorted=False)
        return rnn.pad_packed_sequence(m(packed)[0], batch_first=True)[0].sin()

    with torch.enable_grad():
        compiled = oxyfuel.compile(run)
        for n in (5, 7, 4):
            x, lengths = of_lengths(n)
            gradients = []
            for function in (run, compiled):
                leaf = x.clone().requires_grad_()
                function(leaf, lengths).square().sum().backward()
                gradients.append(leaf.grad)
            assert not first_difference(*gradients)


@pytest.mark.parametrize("kind", KINDS)
def test_batch_sizes(kind):
    """torch.lstm and its like themselves, of batch sizes that are given or computed."""
    m = KINDS[kind](4, 3)
    op = {"rnn": torch.rnn_tanh, "gru": torch.gru, "lstm": torch.lstm}[kind]
    rest = list(m.parameters()), True, 1, 0.0, False, False
    start = torch.zeros(1, 2, 3)
    start = (start, start) if kind == "lstm" else start
    data = lambda n: (torch.randn(2 * n, 4), torch.tensor([2] * n))
    at_each_length(lambda d, b: op(d, b, start, *rest)[0] + 1, data)
    at_each_length(lambda d, b: op(d, b * 1, start, *rest)[0] + 1, data)
    at_each_length(lambda d, b: torch._pad_packed_sequence(d, b, True, 0.0, len(b))[0] + 1, data)


def test_lengths_of_ctc_loss():
    def run(x, targets, of_inputs, of_targets):
        return F.ctc_loss(x.log_softmax(-1), targets, of_inputs, of_targets) * 2

    for dtype in (torch.int64, torch.int32):
        lengths = lambda of, n, dtype=dtype: torch.full((n,), of, dtype=dtype)
        make = lambda n, lengths=lengths: (
            torch.randn(n + 9, n, 5),
            torch.randint(1, 5, (n, 3)),
            lengths(n + 9, n),
            lengths(3, n),
        )
        at_each_length(run, make)
