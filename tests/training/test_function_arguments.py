"""What custom autograd functions are given beside tensors (numbers, modules, lists)."""

import pytest
import torch
from model_check import first_difference
from recipes_objectives import Reversal
from torch import nn
from torch.autograd import Function

import oxyfuel


class OfOperators(Function):
    """Operators of a number and a tensor, both ways, and of numbers."""

    @staticmethod
    def forward(ctx, x, rate, shift):
        ctx.rates = rate, 1 - shift
        return (rate - x) / (2.0 * rate) + (x + shift) * -rate + torch.mul(x, shift)

    @staticmethod
    def backward(ctx, g):
        rate, rest = ctx.rates
        return g * rate + rest * g.sum() - g / rate, None, None


class OfBounds(Function):
    """Comparisons of a tensor and a number, both ways, and clamps."""

    @staticmethod
    def forward(ctx, x, least):
        ctx.save_for_backward(x)
        ctx.least = least
        return x.clamp(least, max=2) + torch.clip(x, max=least)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        inside = (x > ctx.least) | (ctx.least > 2 * x) & (x != ctx.least)
        return g * inside + x.ge(ctx.least).to(x) * ctx.least, None


class AsksForSign(Function):
    @staticmethod
    def forward(ctx, x, rate):
        ctx.rate = rate
        return x * rate

    @staticmethod
    def backward(ctx, g):
        return g * ctx.rate if ctx.rate > 1 else g, None


class WritesInPlace(AsksForSign):
    @staticmethod
    def backward(ctx, g):
        g = g.clone()
        g *= ctx.rate
        return g, None


class OfGlobal(Function):
    rate = 1.0

    @staticmethod
    def forward(ctx, x, rate):
        return x * rate * OfGlobal.rate

    @staticmethod
    def backward(ctx, g):
        return g * OfGlobal.rate, None


@pytest.mark.parametrize("size", [(3,), ()], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize(
    ("function", "breaks"),
    [
        (Reversal, 0),
        (OfOperators, 0),
        (OfBounds, 0),
        (AsksForSign, 1),
        (WritesInPlace, 0),
        (OfGlobal, 1),
    ],
    ids=lambda f: getattr(f, "__name__", None),
)
def test_floats_that_vary(function, breaks, dtype, size):
    def fn(x, rate, shift):
        if function is OfOperators:
            return function.apply(x * 2, rate, shift).tanh()
        return function.apply(x * 2, rate).tanh()

    def train(f):
        torch.manual_seed(0)
        out = []
        for i in range(6):
            x = torch.randn(size, dtype=dtype, requires_grad=True)
            OfGlobal.rate = 1.0 + i / 7
            y = f(x, 0.3 + i / 3, -0.1 * i)
            y.sum().backward()
            out += [y.detach(), x.grad]
        return out

    expected, found = train(fn), train(oxyfuel.compile(fn))
    torch.testing.assert_close(found, expected)
    stats = oxyfuel.stats()
    assert stats["fallbacks"] == 0
    if not breaks and (size or function in (Reversal, OfOperators)):
        assert (stats["graphs"], stats["graph_breaks"]) == (2, 0)


@pytest.mark.parametrize(
    ("function", "breaks"),
    [(Reversal, 0), (OfOperators, 0), (OfBounds, 0), (AsksForSign, 1)],
    ids=lambda f: getattr(f, "__name__", None),
)
def test_floats_that_vary_in_graphs_of_torch_compile(function, breaks):
    def fn(x, rate):
        args = (rate, 0.1) if function is OfOperators else (rate,)
        return function.apply(x * 2, *args).tanh()

    def train(f):
        torch.manual_seed(0)
        out = []
        for i in range(5):
            x = torch.randn(3, requires_grad=True)
            y = f(x, 1.3 + i / 3)
            y.sum().backward()
            out += [y.detach(), x.grad]
        return out

    found = train(torch.compile(fn, backend="oxyfuel"))
    torch.testing.assert_close(found, train(fn))
    stats = oxyfuel.stats()
    assert stats["fallbacks"] == 0
    if not breaks:
        assert (stats["graphs"], stats["plans"], stats["graph_breaks"]) == (2, 2, 0)


class ReadsModule(Function):
    @staticmethod
    def forward(ctx, x, module):
        ctx.scale = module.scale
        return x * module.scale

    @staticmethod
    def backward(ctx, g):
        return g * ctx.scale, None


class ReadsModuleLater(Function):
    @staticmethod
    def forward(ctx, x, module):
        ctx.module = module
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g * ctx.module.scale, None


@pytest.mark.parametrize("function", [ReadsModule, ReadsModuleLater])
@pytest.mark.parametrize("requires", [False, True])
def test_tensors_of_a_module_that_the_graph_has_as_well(function, requires):
    class WithScale(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.ones(3), requires_grad=requires)

        def forward(self, x):
            return function.apply(x + self.scale, self)

    def train(wrap):
        module = WithScale()
        run, out = wrap(module), []
        for value in (1.0, 2.0, 3.0):
            module.scale = nn.Parameter(torch.full((3,), value), requires_grad=requires)
            x = torch.ones(3, requires_grad=True)
            y = run(x)
            y.sum().backward()
            out += [y.detach(), x.grad, module.scale.grad]
        return out

    assert not first_difference(train(oxyfuel.compile), train(lambda m: m))
    assert oxyfuel.stats()["unsupported"] == 0


class Holder(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3, bias=False)
        self.register_buffer("offset", torch.ones(3))
        self.listed = [torch.ones(3)]
        self.pair = (1, torch.ones(3))

    def replace(self, value, requires):
        self.linear.weight = nn.Parameter(torch.full((3, 3), value), requires_grad=requires)
        self.offset = torch.full((3,), value)
        self.listed[0] = torch.full((3,), value)
        self.pair = (1, torch.full((3,), value))


HELD = [
    lambda h: h.linear(torch.ones(3)),
    lambda h: sum(p.sum() for p in h.parameters()),
    lambda h: next(h.buffers()),
    lambda h: h.listed[0],
    lambda h: h.pair[1],
]


@pytest.mark.parametrize("read", HELD, ids=["call", "parameters", "buffer", "list", "tuple"])
@pytest.mark.parametrize("later", [False, True], ids=["forward", "backward"])
def test_what_an_argument_holds_after_the_graph_has_read_it(read, later):
    class Reads(Function):
        @staticmethod
        def forward(ctx, x, holder):
            ctx.holder = holder
            return x * 2 if later else x * read(holder)

        @staticmethod
        def backward(ctx, g):
            return g * read(ctx.holder), None

    def train(wrap):
        torch.manual_seed(0)
        holder, out = Holder(), []
        run = wrap(lambda x: Reads.apply(x + read(holder), holder) * 1)
        for value, requires in ((1.0, False), (2.0, False), (3.0, True)):
            holder.replace(value, requires)
            x = torch.ones(3, requires_grad=True)
            y = run(x)
            y.sum().backward()
            out += [y.detach(), x.grad, holder.linear.weight.grad]
        return out

    assert not first_difference(train(oxyfuel.compile), train(lambda f: f))
    assert oxyfuel.stats()["unsupported"] == 0


def test_tensors_in_a_list_that_is_an_argument():
    class OfList(Function):
        @staticmethod
        def forward(ctx, x, tensors):
            ctx.tensors = tensors
            return x * tensors[0]

        @staticmethod
        def backward(ctx, g):
            return g * ctx.tensors[0], None

    def train(wrap):
        tensors, out = [torch.ones(3)], []
        run = wrap(lambda x: OfList.apply(x + tensors[0], tensors) * 1)
        for value in (1.0, 2.0):
            tensors[0] = torch.full((3,), value)
            x = torch.ones(3, requires_grad=True)
            y = run(x)
            y.sum().backward()
            out += [y.detach(), x.grad]
        return out

    assert not first_difference(train(oxyfuel.compile), train(lambda f: f))
    assert oxyfuel.stats()["graph_breaks"] == 0
