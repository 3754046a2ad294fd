"""A compiled module is the module in all but its call."""

import abc
import collections
import copy
import io
import pickle
import types
import typing

import pytest
import torch

import oxyfuel

X = torch.randn(2, 4, generator=torch.Generator().manual_seed(0))


pytestmark = pytest.mark.usefixtures("strict_without_grad")


class Net(torch.nn.Module):
    """A module with all that a module can hold."""

    kind = "net"

    def __init__(self, size=4):
        super().__init__()
        self.inner = torch.nn.Linear(size, size)
        self.norm = torch.nn.BatchNorm1d(size)
        self.scale = torch.nn.Parameter(torch.ones(size))
        self.register_buffer("shift", torch.zeros(size))
        self.dropout = torch.nn.Dropout(0.5)
        self.label = "first"

    def forward(self, x, *, factor=1.0):
        return self.dropout(self.norm(self.inner(x)) * self.scale * factor + self.shift)

    def describe(self):
        return f"{self.label} {self.kind}"

    @property
    def width(self):
        return self.scale.shape[0]


def both():
    torch.manual_seed(0)
    module = Net().eval()
    return module, oxyfuel.compile(module)


def same(a, b):
    return torch.allclose(a, b, rtol=1e-5, atol=1e-6)


def test_class_and_attributes():
    module, compiled = both()
    assert isinstance(compiled, Net) and isinstance(compiled, torch.nn.Module)
    assert compiled.__class__ is Net
    assert type(compiled).__name__ == "Net" and type(compiled).__module__ == Net.__module__
    assert compiled.kind == "net" and compiled.width == 4 and compiled.describe() == "first net"
    assert compiled.inner is module.inner and compiled.scale is module.scale
    assert repr(compiled) == repr(module) and dir(compiled)
    with pytest.raises(AttributeError, match="no_such"):
        print(compiled.no_such)
    compiled.label = "second"
    assert module.label == "second" and module.describe() == "second net"
    del compiled.label
    assert not hasattr(module, "label")
    assert same(compiled(X), module(X)) and same(compiled(X, factor=2.0), module(X, factor=2.0))
    assert compiled._orig_mod is module


def test_a_class_that_lists_its_subclasses_does_not_hear_of_it():
    made = []

    class Registered(torch.nn.Linear):
        def __init_subclass__(cls, *, tag, **rest):
            made.append(tag)

    compiled = oxyfuel.compile(Registered(4, 4))
    assert isinstance(compiled, Registered) and not made and compiled(X).shape == (2, 4)


def test_a_class_with_its_own_new():
    class Own(torch.nn.Module):
        def __new__(cls, size):
            made = super().__new__(cls)
            made.size = size
            return made

        def __init__(self, size):
            torch.nn.Module.__init__(self)

        def forward(self, x):
            return x * self.size

    module = Own(3)
    module.size = 3
    assert torch.equal(oxyfuel.compile(module)(X), X * 3)


def test_state_dict():
    module, compiled = both()
    assert list(compiled.state_dict()) == list(module.state_dict())
    other = Net()
    before = compiled(X)
    compiled.load_state_dict(other.state_dict())
    assert torch.equal(module.inner.weight, other.inner.weight) and not same(compiled(X), before)
    assert same(compiled(X), module(X))
    saved = io.BytesIO()
    torch.save(compiled.state_dict(), saved)
    saved.seek(0)
    assert list(torch.load(saved)) == list(module.state_dict())


def test_names():
    module, compiled = both()
    for walk in ("named_parameters", "named_buffers", "named_children"):
        assert list(map(str, getattr(compiled, walk)())) == list(map(str, getattr(module, walk)()))
    names = dict(compiled.named_modules())
    assert list(names) == list(dict(module.named_modules())) and names[""] is compiled
    assert compiled.get_submodule("inner") is module.inner


def test_train_and_eval():
    module, compiled = both()
    compiled(X)
    assert compiled.train() is compiled and module.training and module.dropout.training
    torch.manual_seed(3)
    noisy = compiled(X)
    assert compiled.norm.num_batches_tracked == 1 and (noisy == 0).any()
    assert module.eval() is module and not compiled.training
    assert same(compiled(X), module(X)) and not (compiled(X) == 0).any()


def test_parameters_set_through_either():
    module, compiled = both()
    compiled(X)
    module.scale = torch.nn.Parameter(torch.full((4,), 2.0))
    assert compiled.scale is module.scale and same(compiled(X), module(X))
    compiled.shift = torch.full((4,), 3.0)
    assert module.shift is compiled.shift and same(compiled(X), module(X))
    compiled.inner = torch.nn.Linear(4, 4)
    assert module.inner is compiled.inner and same(compiled(X), module(X))
    module.inner.weight.zero_()
    assert same(compiled(X), module(X))
    compiled.requires_grad_(False)
    assert not module.scale.requires_grad


def test_to():
    module, compiled = both()
    compiled(X)
    assert compiled.to(torch.float64) is compiled and module.scale.dtype == torch.float64
    assert same(compiled(X.double()), module(X.double()))
    assert compiled.half().scale.dtype == torch.float16 and compiled.float() is compiled
    assert same(compiled(X), module(X))


@pytest.mark.parametrize("through_compiled", [True, False])
def test_hooks(through_compiled):
    module, compiled = both()
    target = compiled if through_compiled else module
    called = []

    def forward_hook(m, args, result):
        called.append("forward")
        assert isinstance(m, Net)
        return result + 1

    def pre_hook(m, args, kwargs):
        called.append("pre")
        return (args[0] * 2,), kwargs

    def state_hook(m, state, prefix, metadata):
        called.append("state")
        state[f"{prefix}extra"] = torch.ones(1)

    compiled(X)
    handles = [
        target.register_forward_hook(forward_hook),
        target.register_forward_pre_hook(pre_hook, with_kwargs=True),
        target.register_state_dict_post_hook(state_hook),
    ]
    expected = module(X)
    called.clear()
    assert same(compiled(X), expected) and called == ["pre", "forward"]
    assert "extra" in compiled.state_dict() and "extra" in module.state_dict()
    for handle in handles:
        handle.remove()
    called.clear()
    assert same(compiled(X), module(X)) and not called
    handle = module.inner.register_forward_hook(lambda m, args, result: result * 0)
    assert same(compiled(X), module(X))
    handle.remove()
    assert same(compiled(X), module(X))


def test_pickle_is_one_of_the_original():
    module, compiled = both()
    compiled(X)
    for pickled in (module, compiled):
        back = pickle.loads(pickle.dumps(pickled))
        assert type(back) is Net and same(back(X), module(X))
    saved = io.BytesIO()
    torch.save(compiled, saved)
    saved.seek(0)
    assert type(torch.load(saved, weights_only=False)) is Net


def test_copies_are_compiled_and_apart():
    module, compiled = both()
    twin = copy.deepcopy(compiled)
    assert isinstance(twin, Net) and type(twin) is not Net and same(twin(X), module(X))
    twin.scale.zero_()
    assert module.scale.any() and same(twin(X), twin.shift.expand(2, 4))
    assert type(copy.deepcopy(module)) is Net
    both_inside = torch.nn.ModuleList([compiled, module])
    first, second = copy.deepcopy(both_inside)
    assert first.scale is second.scale and first.scale is not module.scale
    shallow = copy.copy(compiled)
    assert shallow.scale is module.scale and same(shallow(X), module(X))


def test_inside_others():
    module, compiled = both()
    outer = torch.nn.Sequential(collections.OrderedDict(first=compiled, second=torch.nn.ReLU()))
    plain = torch.nn.Sequential(collections.OrderedDict(first=module, second=torch.nn.ReLU()))
    assert list(outer.state_dict()) == list(plain.state_dict())
    assert same(outer(X), plain(X))
    oxyfuel.reset()
    assert same(oxyfuel.compile(outer, fullgraph=True)(X), plain(X))
    assert oxyfuel.stats()["graphs"] == 1
    assert same(oxyfuel.compile(compiled, fullgraph=True)(X), module(X))
    outer.to(torch.float64)
    assert module.scale.dtype == torch.float64


def test_methods_and_marks():
    module = Net().eval()

    class Caller:
        @oxyfuel.compile
        def run(self, x):
            return module(x) + 1

    assert same(Caller().run(X), module(X) + 1)
    method = oxyfuel.compile(module.forward)
    assert same(method(X), module(X)) and method.__self__ is module
    assert same(oxyfuel.compile(oxyfuel.compile(module.forward))(X), module(X))
    assert oxyfuel.compile(Net, disable=True) is Net
    marked = oxyfuel.disable(module.forward)
    assert oxyfuel.compile(marked) is marked


def test_module_compile():
    module, _ = both()
    expected = module(X)
    module._compiled_call_impl = oxyfuel.compile(module._call_impl)
    assert same(module(X), expected)
    assert same(pickle.loads(pickle.dumps(module))(X), expected)
    assert same(copy.deepcopy(module)(X), expected)
    assert same(oxyfuel.compile(torch.torch.nn.Sequential(module), fullgraph=True)(X), expected)


@pytest.mark.parametrize("to", [
    lambda m, x: m.to(x.dtype),
    lambda m, x: m.to("cpu"),
    lambda m, x: m.to(device="cpu", dtype=torch.float32),
    lambda m, x: m.float(),
    lambda m, x: m.to(memory_format=torch.contiguous_format),
])  # fmt: skip
@pytest.mark.parametrize("training", [False, True])
def test_a_module_moved_to_where_it_is(to, training):
    """As a router in transformers asks for its dtype in each call."""
    inner = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4)).train(training)

    class Outer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = inner

        def forward(self, x):
            self.inner = to(self.inner, x)
            return self.inner(x) * 2

    outer = Outer()
    before = list(inner.parameters())
    x = torch.randn(3, 4)
    state = {k: v.clone() for k, v in inner.state_dict().items()}
    expected = outer(x)
    inner.load_state_dict(state)
    with torch.enable_grad():
        got = oxyfuel.compile(outer)(x)
        got.sum().backward()
    torch.testing.assert_close(got, expected)
    assert outer.inner is inner
    assert all(a is b and a.grad is not None for a, b in zip(inner.parameters(), before))
    stats = oxyfuel.stats()
    assert stats["graph_breaks"] == 0 and stats["fallbacks"] == 0


def test_a_module_moved_to_another_dtype():
    def f(m, x):
        return m.to(torch.float64)(x.double())

    x = torch.randn(3, 4)
    for run in (f, oxyfuel.compile(f)):
        torch.manual_seed(0)
        m = torch.nn.Linear(4, 4)
        out = run(m, x)
        assert out.dtype == m.weight.dtype == torch.float64
        torch.testing.assert_close(out, m(x.double()))


class Mixin:
    pass


class Slots:
    __slots__ = ()


@pytest.mark.parametrize(
    "bases",
    [(abc.ABC, torch.nn.Module), (Mixin, torch.nn.Module), (torch.nn.Module, Mixin),
     (Slots, torch.nn.Linear), (typing.Generic[typing.TypeVar("T")], torch.nn.Module),
     (abc.ABC, torch.nn.Sequential)],
)  # fmt: skip
def test_classes_with_other_bases(bases):
    names = {"forward": lambda self, x: x + 1, "__module__": __name__}
    cls = types.new_class("A", bases, {}, lambda namespace: namespace.update(names))
    for each in (cls, type("B", (cls,), {})):
        module = each(3, 3) if issubclass(each, torch.nn.Linear) else each()
        compiled = oxyfuel.compile(module)
        assert isinstance(compiled, each)
        torch.testing.assert_close(compiled(torch.ones(2)), torch.full((2,), 2.0))


def test_slots_are_the_modules():
    class Scaled(torch.nn.Module):
        __slots__ = ("factor",)

        def __init__(self):
            super().__init__()
            self.factor = 3.0

        def forward(self, x):
            return x * self.factor

    module, x = Scaled(), torch.randn(4)
    compiled = oxyfuel.compile(module)
    torch.testing.assert_close(compiled(x), x * 3)
    compiled.factor = 5.0
    assert module.factor == 5.0
    torch.testing.assert_close(compiled(x), x * 5)
    del module.factor
    assert not hasattr(compiled, "factor")


def test_parametrized_through_the_compiled_module():
    module = torch.nn.Linear(3, 3)
    compiled, x = oxyfuel.compile(module), torch.randn(2, 3)
    compiled(x)
    torch.nn.utils.parametrizations.weight_norm(compiled)
    assert hasattr(module, "parametrizations")
    with torch.no_grad():
        compiled.parametrizations.weight.original0.mul_(2)
    torch.testing.assert_close(compiled(x), module(x))
    torch.testing.assert_close(compiled.weight, module.weight)
