"""Modules that take the sizes of their parameters from their first input."""

import pytest
import torch
from model_check import first_difference, state_of

import oxyfuel

nn = torch.nn


@pytest.fixture(autouse=True)
def strict_without_grad(monkeypatch):
    monkeypatch.setenv("OXYFUEL_STRICT", "1")
    oxyfuel.reset()
    with torch.no_grad():
        yield


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.convolution = nn.LazyConv2d(4, 3)
        self.norm = nn.LazyBatchNorm2d()
        self.linear = nn.LazyLinear(5)

    def forward(self, x):
        return self.linear(self.norm(self.convolution(x)).flatten(1))


class OwnSizes(nn.modules.lazy.LazyModuleMixin, nn.Module):
    """Reads the values of its first input."""

    def __init__(self):
        super().__init__()
        self.scale = nn.UninitializedParameter()

    def initialize_parameters(self, x):
        if self.has_uninitialized_params():
            self.scale.materialize((x.shape[-1],))
            self.scale.fill_(x.max())

    def forward(self, x):
        return x * self.scale


def compare(make, *inputs, graphs=1):
    def outcome(compiled):
        torch.manual_seed(3)
        model = make()
        run = compiled(model)
        out = [run(x) for x in inputs]
        return [*out, *state_of(model)]

    expected = outcome(lambda m: m)
    assert not first_difference(outcome(oxyfuel.compile), expected)
    assert oxyfuel.stats()["graphs"] == graphs


@pytest.mark.parametrize("mode", [True, False])
def test_modules_in_a_module(mode):
    x = torch.randn(2, 3, 8, 8)
    compare(lambda: Net().train(mode), x, x + 1)


def test_other_sizes_later():
    compare(lambda: nn.LazyLinear(4), torch.randn(2, 3), torch.randn(5, 3), graphs=2)


def test_sizes_that_are_symbols():
    for make, x in [(Net, torch.ones(2, 3, 8, 8)), (lambda: nn.LazyLinear(4), torch.ones(2, 3))]:
        torch.manual_seed(3)
        model = make()
        out = oxyfuel.compile(model, dynamic=True)(x)
        torch.manual_seed(3)
        in_eager = make()
        expected = in_eager(x)
        assert not first_difference([out, *state_of(model)], [expected, *state_of(in_eager)])


def test_drawing_in_front():
    # Eager draws for the dropout, then for the parameters.
    compare(lambda: nn.Sequential(nn.Dropout(), nn.LazyLinear(4)), torch.randn(2, 3), graphs=2)


def test_a_hook_of_the_users():
    def make():
        m = nn.LazyLinear(4)
        m.register_forward_pre_hook(lambda module, args: (args[0] * 2,))
        return m

    compare(make, torch.randn(2, 3), torch.randn(2, 3))


def test_sizes_from_values():
    compare(OwnSizes, torch.randn(2, 3), torch.randn(2, 3), graphs=2)  # behind a break, and later


def test_a_wrong_input():
    model = nn.LazyConv2d(4, 3)
    compiled = oxyfuel.compile(model)
    with pytest.raises(RuntimeError, match="Expected"):
        compiled(torch.randn(3))
    assert isinstance(model, nn.LazyConv2d)
    compiled(torch.randn(1, 2, 5, 5))
    assert type(model) is nn.Conv2d


ASKS = {
    "isinstance": lambda m: isinstance(m, nn.LazyLinear),
    "type": lambda m: type(m).__name__,
    "class": lambda m: m.__class__ is nn.Linear,
    "attribute": lambda m: m.in_features,
    "items": lambda m: [type(k).__name__ for k in (m,)],
    "key": lambda m: {nn.LazyLinear: 1, nn.Linear: 2}[type(m)],
}


@pytest.mark.parametrize("name", ASKS)
def test_what_it_is_in_front_of_the_first_call(name):
    def f(m, x):
        before = ASKS[name](m)
        return m(x), before, ASKS[name](m)

    def outcome(run):
        out = []
        for _ in range(2):
            torch.manual_seed(3)
            model = nn.LazyLinear(4)
            out += [run(model, torch.ones(2, 3)), run(model, torch.ones(2, 3))]
        return out

    assert not first_difference(outcome(oxyfuel.compile(f)), outcome(f))
