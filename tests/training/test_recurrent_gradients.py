"""Recurrent layers and cells where gradients are needed: results, gradients of inputs, states and
parameters, and what varies in size."""

import pytest
import torch
from model_check import first_difference
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import oxyfuel

LAYERS = {"LSTM": nn.LSTM, "GRU": nn.GRU, "RNN": nn.RNN}
OPTIONS = {
    "plain": {},
    "no bias": {"bias": False},
    "bidirectional": {"bidirectional": True},
    "two layers": {"num_layers": 2},
    "two layers both ways": {"num_layers": 2, "bidirectional": True, "bias": False},
    "dropout between layers": {"num_layers": 3, "dropout": 0.3},
    "batch first": {"batch_first": True, "num_layers": 2},
}
LSTM_ALONE = {
    "projection": {"proj_size": 3},
    "projections both ways": {"proj_size": 3, "bidirectional": True, "num_layers": 2},
}
CASES = [
    pytest.param(name, options, id=f"{name}-{kind}")
    for name in LAYERS
    for kind, options in (OPTIONS | (LSTM_ALONE if name == "LSTM" else {})).items()
]
CASES.append(pytest.param("RNN", {"nonlinearity": "relu"}, id="RNN-relu"))


def states(module, *batch):
    """A state for a call, as leaves."""
    layers = module.num_layers * (2 if module.bidirectional else 1)
    hidden = torch.randn(layers, *batch, module.proj_size or module.hidden_size)
    if not isinstance(module, nn.LSTM):
        return hidden.requires_grad_()
    return hidden.requires_grad_(), torch.randn(layers, *batch, module.hidden_size).requires_grad_()


def tensors(tree):
    return torch.utils._pytree.tree_leaves(tree)


def trained(module, call, x, *more, which=slice(None)):
    """Results, gradients of all that goes in, and of the parameters, which are gone behind it."""
    torch.manual_seed(1)
    out = call(x, *more)
    roots = [t for t in tensors(out) if isinstance(t, torch.Tensor) and t.requires_grad][which]
    if roots:
        torch.autograd.backward(roots, [torch.randn_like(t) for t in roots])
    leaves = [t for t in tensors((x, more)) if isinstance(t, torch.Tensor)]
    found = [out, [t.grad for t in leaves], {n: p.grad for n, p in module.named_parameters()}]
    module.zero_grad()
    for t in leaves:
        t.grad = None
    return found


def in_one_graph(unsupported=0):
    stats = oxyfuel.stats()
    assert stats["graph_breaks"] == stats["grad_fallbacks"] == stats["fallbacks"] == 0
    assert stats["graphs"] >= 1 and stats["unsupported"] == unsupported


@pytest.mark.parametrize("training", [True, False], ids=["training", "evaluation"])
@pytest.mark.parametrize(("name", "options"), CASES)
def test_layer(name, options, training):
    module = LAYERS[name](4, 6, **options).train(training)
    compiled = oxyfuel.compile(module)
    x = torch.randn(5, 3, 4).requires_grad_()
    state = states(module, 5 if module.batch_first else 3)
    for args in ((x,), (x, state)):
        for _ in range(2):
            wanted = trained(module, module, *args)
            assert not first_difference(trained(module, compiled, *args), wanted)
    in_one_graph()


@pytest.mark.parametrize("which", [0, 1, 2], ids=["output", "hidden", "cell"])
@pytest.mark.parametrize("options", [{}, {"num_layers": 2, "bidirectional": True}])
def test_one_result_is_used(options, which):
    module = nn.LSTM(4, 6, **options)
    compiled = oxyfuel.compile(module)
    args = (torch.randn(5, 3, 4).requires_grad_(), states(module, 3))
    which = slice(which, which + 1)
    wanted = trained(module, module, *args, which=which)
    assert not first_difference(trained(module, compiled, *args, which=which), wanted)
    in_one_graph()


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_dtypes(name, dtype):
    module = LAYERS[name](4, 6, num_layers=2, dtype=dtype)
    compiled = oxyfuel.compile(module)
    x = torch.randn(5, 3, 4, dtype=dtype).requires_grad_()
    wanted = trained(module, module, x)
    assert not first_difference(trained(module, compiled, x), wanted)
    in_one_graph()


@pytest.mark.parametrize("name", LAYERS)
def test_autocast(name):
    module = LAYERS[name](4, 6)

    def call(x):
        with torch.autocast("cpu", torch.bfloat16):
            return module(x)

    compiled = oxyfuel.compile(call)
    x = torch.randn(5, 3, 4).requires_grad_()
    if name == "LSTM" and not torch.ops.mkldnn._is_mkldnn_bf16_supported():  # nor does eager
        for f in (call, compiled):
            with pytest.raises(RuntimeError, match="could not create a primitive descriptor"):
                f(x)
        return
    found, wanted = trained(module, compiled, x), trained(module, call, x)
    assert not first_difference(found[0], wanted[0])
    # A weight's gradient is summed over the steps in bfloat16, in whichever order.
    torch.testing.assert_close(found[1:], wanted[1:], rtol=0.03, atol=0.03)


@pytest.mark.parametrize("name", LAYERS)
def test_without_a_batch_and_of_what_is_not_row_major(name):
    module = LAYERS[name](4, 6)
    compiled = oxyfuel.compile(module)
    for x in (
        torch.randn(5, 4),
        torch.randn(4, 3, 5).transpose(0, 2),
        torch.randn(5, 3, 8)[..., ::2],
        torch.randn(1, 1, 4),
    ):
        x = x.detach().requires_grad_()
        wanted = trained(module, module, x)
        assert not first_difference(trained(module, compiled, x), wanted)
    in_one_graph()


@pytest.mark.parametrize("frozen", ["parameters", "inputs", "half"])
def test_some_parts_need_no_gradients(frozen):
    module = nn.LSTM(4, 6, num_layers=2)
    for name, p in module.named_parameters():
        p.requires_grad_(frozen == "inputs" or (frozen == "half" and name.endswith("_l1")))
    compiled = oxyfuel.compile(module)
    x = torch.randn(5, 3, 4).requires_grad_(frozen == "parameters")
    wanted = trained(module, module, x)
    assert not first_difference(trained(module, compiled, x), wanted)
    in_one_graph()


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("enforce_sorted", [True, False])
def test_packed_sequences(name, enforce_sorted):
    module = LAYERS[name](4, 6, num_layers=2, bidirectional=True)

    def call(x, lengths):
        packed = pack_padded_sequence(x, lengths, enforce_sorted=enforce_sorted)
        out, state = module(packed)
        return pad_packed_sequence(out), state

    compiled = oxyfuel.compile(call)
    x = torch.randn(5, 3, 4).requires_grad_()
    lengths = torch.tensor([5, 4, 2] if enforce_sorted else [2, 5, 4])
    wanted = trained(module, call, x, lengths)
    assert not first_difference(trained(module, compiled, x, lengths), wanted)
    assert oxyfuel.stats()["grad_fallbacks"] == oxyfuel.stats()["fallbacks"] == 0


CELLS = {"LSTMCell": nn.LSTMCell, "GRUCell": nn.GRUCell, "RNNCell": nn.RNNCell}


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("name", CELLS)
def test_cell(name, bias):
    module = CELLS[name](4, 6, bias=bias)
    compiled = oxyfuel.compile(module)
    hidden = torch.randn(3, 6).requires_grad_()
    state = (hidden, torch.randn(3, 6).requires_grad_()) if name == "LSTMCell" else hidden
    x = torch.randn(3, 4).requires_grad_()
    for args in ((x,), (x, state)):
        wanted = trained(module, module, *args)
        assert not first_difference(trained(module, compiled, *args), wanted)
    in_one_graph()


@pytest.mark.parametrize("options", [{}, {"num_layers": 2, "bidirectional": True, "dropout": 0.2}])
def test_lstm_of_any_batch_and_length(options):
    module = nn.LSTM(4, 6, **options)
    compiled = oxyfuel.compile(module)
    graphs = []
    for length, batch in ((5, 3), (7, 4), (2, 9), (12, 5), (5, 3)):
        args = (torch.randn(length, batch, 4).requires_grad_(), states(module, batch))
        wanted = trained(module, module, *args)
        assert not first_difference(trained(module, compiled, *args), wanted)
        graphs.append(oxyfuel.stats()["graphs"])
    assert graphs[1] == graphs[-1]
    in_one_graph()


@pytest.mark.parametrize("name", ["GRU", "RNN"])
def test_layer_of_any_batch(name):
    module = LAYERS[name](4, 6)
    compiled = oxyfuel.compile(module)
    graphs = []
    for batch in (3, 4, 9, 5):
        x = torch.randn(5, batch, 4).requires_grad_()
        assert not first_difference(trained(module, compiled, x), trained(module, module, x))
        graphs.append(oxyfuel.stats()["graphs"])
    assert graphs[1] == graphs[-1]
    in_one_graph()


def test_backward_that_never_comes_and_one_that_comes_late():
    module = nn.LSTM(4, 6)
    compiled = oxyfuel.compile(module)
    xs = [torch.randn(5, 3, 4).requires_grad_() for _ in range(3)]
    found = [compiled(x)[0] for x in xs]
    wanted = [module(x)[0] for x in xs]
    assert torch.equal(*(torch.autograd.grad(outs[0].sum(), xs[0])[0] for outs in (found, wanted)))
    with torch.no_grad():
        assert torch.equal(compiled(xs[0])[0], module(xs[0])[0])


def test_a_step_in_one_graph():
    results = []
    for wrap in (lambda f: f, oxyfuel.compile):
        torch.manual_seed(0)
        module = nn.LSTM(4, 6, num_layers=2)
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1)

        def step(x, module=module, optimizer=optimizer):
            loss = module(x)[0].square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            return loss

        run = wrap(step)
        losses = [run(torch.randn(5, 3, 4)).detach() for _ in range(4)]
        results.append([losses, dict(module.named_parameters())])
    assert not first_difference(results[1], results[0])


def test_behind_torch_compile():
    module = nn.LSTM(4, 6)

    def call(x, state):
        out, (h, c) = module(x * 2, state)
        return out.tanh(), h, c

    torch._dynamo.reset()
    compiled = torch.compile(call, backend="oxyfuel")
    x = torch.randn(5, 3, 4).requires_grad_()
    state = states(module, 3)
    wanted = trained(module, call, x, state)
    assert not first_difference(trained(module, compiled, x, state), wanted)
    torch._dynamo.reset()


def test_second_derivatives():
    module = nn.LSTM(4, 6)
    x = torch.randn(5, 3, 4).requires_grad_()
    found = []
    for call in (module, oxyfuel.compile(module)):
        (first,) = torch.autograd.grad(call(x)[0].sum(), x, create_graph=True)
        found.append((first, *torch.autograd.grad(first.sum(), x)))
    torch.testing.assert_close(*found)
