"""Random numbers that plans draw themselves (torch_bridge/random_draws) are eager's, and so is the
generator behind them."""

import pytest
import torch

import oxyfuel

STRICT = {"strict": True}
DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.int32,
          torch.int16, torch.int8, torch.uint8, torch.bool]  # fmt: skip
LAYOUTS = {
    "row_major": lambda x: x,
    "transposed": lambda x: x.transpose(0, 2),
    "channels_last": lambda x: x[None].to(memory_format=torch.channels_last),
    "sliced": lambda x: x[:, ::2],
    "expanded": lambda x: x[:1].expand(4, -1, -1),
    "empty": lambda x: x[:0],
    "scalar": lambda x: x[0, 0, 0],
}


def compare(f, *inputs, before=0):
    """Results, strides and the numbers drawn next, from a state in which `before` were drawn."""
    compiled = oxyfuel.compile(f, options=STRICT)
    for _ in range(2):
        found = []
        for call in (f, compiled):
            torch.manual_seed(3)
            torch.rand(before)
            with torch.no_grad():
                found.append((call(*inputs), torch.rand(5), torch.get_rng_state()))
        (a, after, state), (b, after_b, state_b) = found
        assert torch.equal(a, b) and a.stride() == b.stride() and a.dtype == b.dtype
        assert torch.equal(after, after_b) and torch.equal(state, state_b)


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: str(d).removeprefix("torch."))
@pytest.mark.parametrize("layout", LAYOUTS)
def test_bernoulli(dtype, layout):
    x = LAYOUTS[layout](torch.ones(4, 6, 35).to(dtype))
    compare(lambda x: torch.empty_like(x).bernoulli_(0.3), x, before=1)
    if layout not in ("sliced", "expanded"):  # those run in eager
        compare(lambda x: torch.bernoulli(x, 0.3), x, before=1)
        compare(lambda x: torch.bernoulli(x.t(), 0.3), torch.ones(7, 5).to(dtype))


@pytest.mark.parametrize("before", [0, 1, 2, 622, 623, 624, 625])
@pytest.mark.parametrize("count", [1, 311, 312, 313, 5000])
def test_dropout_at_every_place_of_a_state(before, count):
    compare(torch.nn.Dropout(0.1), torch.randn(count), before=before)


@pytest.mark.parametrize("p", [0.0, 1e-12, 0.25, 0.999, 1.0])
def test_probabilities(p):
    compare(lambda x: torch.bernoulli(x, p), torch.ones(1000))


def test_other_generators_and_failures_are_eagers():
    x = torch.ones(64)
    own = torch.Generator()
    expected = torch.bernoulli(x, 0.5, generator=own.manual_seed(1))
    f = oxyfuel.compile(lambda x: torch.bernoulli(x, 0.5, generator=own.manual_seed(1)))
    assert torch.equal(f(x), expected)
    with pytest.raises(RuntimeError, match="to be in .0, 1., but got p=1.5"):
        oxyfuel.compile(lambda x: torch.bernoulli(x, 1.5))(x)


def test_masks_of_a_training_step():
    blocks = [(torch.nn.Linear(16, 16), torch.nn.Dropout(0.3)) for _ in range(3)]
    model = torch.nn.Sequential(*[layer for block in blocks for layer in block])
    x = torch.randn(33, 16)
    gradients = []
    for f in (model, oxyfuel.compile(model, options=STRICT)):
        torch.manual_seed(0)
        model.zero_grad()
        for _ in range(2):
            f(x).square().sum().backward()
        gradients.append([p.grad.clone() for p in model.parameters()] + [torch.rand(3)])
    for a, b in zip(*gradients, strict=True):
        torch.testing.assert_close(a, b)
