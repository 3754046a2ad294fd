"""Tensors of classes that derive from torch.Tensor: the graph has them, their classes answer."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import oxyfuel

pytestmark = pytest.mark.usefixtures("strict")


class Plain(torch.Tensor):
    """What torch.Tensor answers: results are of the class."""


class Off(torch.Tensor):
    __torch_function__ = torch._C._disabled_torch_function_impl


class Image(torch.Tensor):
    """As torchvision's: of the class is what keeps it an image."""

    heard: list = []

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if not all(issubclass(cls, t) for t in types):
            return NotImplemented
        cls.heard.append(getattr(func, "__name__", "?"))
        with torch._C.DisableTorchFunctionSubclass():
            out = func(*args, **(kwargs or {}))
        if func in (torch.Tensor.clone, torch.Tensor.to, torch.Tensor.detach):
            return out.as_subclass(cls)
        return out.as_subclass(torch.Tensor) if isinstance(out, cls) else out

    @property
    def height(self):
        return self.shape[-2]

    @staticmethod
    def make(x):
        return x.as_subclass(Image)

    @classmethod
    def of(cls, x):
        return x.as_subclass(cls)

    def area(self):
        return self.height * self.shape[-1]


class Tagged(torch.Tensor):
    @staticmethod
    def __new__(cls, data, tag):
        return torch.Tensor._make_subclass(cls, data)

    def __init__(self, data, tag):
        self.tag = tag


class Told(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return super().__torch_function__(func, types, args, kwargs)


KINDS = [Plain, Off, Image, Told]


def image(kind, *size):
    return torch.randn(*(size or (4, 6))).as_subclass(kind)


def same(got, expected):
    assert type(got) is type(expected)
    if isinstance(expected, (tuple, list)):
        assert len(got) == len(expected)
        for a, b in zip(got, expected, strict=True):
            same(a, b)
    elif isinstance(expected, dict):
        same(list(got.items()), list(expected.items()))
    elif isinstance(expected, torch.Tensor):
        with torch._C.DisableTorchFunctionSubclass():
            assert vars(got) == vars(expected) and got.requires_grad == expected.requires_grad
            plain = [t.as_subclass(torch.Tensor).detach() for t in (got, expected)]
        torch.testing.assert_close(*plain, rtol=1e-5, atol=1e-5)
    else:
        assert got == expected


def check(fn, make, breaks=0):
    def run(f):
        torch.manual_seed(0)
        Image.heard.clear()
        return f(*make()), list(Image.heard)

    expected, got = run(fn), run(oxyfuel.compile(fn))
    same(got, expected)
    stats = oxyfuel.stats()
    assert (stats["graph_breaks"], stats["fallbacks"]) == (breaks, 0)


def write(x):
    x[0] = 1
    x += 1
    x.mul_(2)
    return x, x.sum(), x[1].zero_(), x


FUNCTIONS = {
    "operators": lambda x: (x + 1, x * 2, 2 - x, x @ x.t(), -x, abs(x), x > 0, x == x, x**2, x % 2),
    "mixed": lambda x: (x + Y, Y + x, torch.add(Y, x), torch.cat([x, Y]), Y @ x.t(), x > Y),
    "methods": lambda x: (x.sum(), x.reshape(-1), x.t(), x.clone(), x.detach(), x.double()),
    "lists": lambda x: (x.split(2), x.chunk(2), torch.stack([x, x]), x.unbind(0)),
    "functions": lambda x: (F.relu(x), F.softmax(x, -1), F.layer_norm(x, (6,)), torch.sin(x)),
    "attributes": lambda x: (x.shape, x.dtype, x.T, x.ndim, len(x), x.size(), x.numel()),
    "what it is": lambda x: (type(x).__name__, isinstance(x, torch.Tensor), x.requires_grad),
    "items": lambda x: (x[0], x[1:, ::2], x[None], x[..., 0], x[:, [0, 2]]),
    "writes": write,
    "itself": lambda x: x,
    "as a plain one": lambda x: x.as_subclass(torch.Tensor) + 1,
    "made": lambda x: (x.as_subclass(torch.Tensor) * 2).as_subclass(type(x)),
    "made and read": lambda x: [(m.shape, m.size(0), m[0], m.sum(), m + 1) for m in (x.clone(),)],
}
Y = torch.randn(4, 6, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_calls(name, kind):
    with torch.no_grad():
        check(FUNCTIONS[name], lambda: (image(kind),))


def test_own_members():
    def fn(x):
        return x.height, x.area(), Image.make(x * 2), Image.of(x), x.clone().height

    with torch.no_grad():
        check(fn, lambda: (image(Image),))


def test_made_in_the_code():
    check(lambda x: (x * 2).as_subclass(Plain) + 1, lambda: (torch.randn(3),))
    check(lambda x: (Tagged(x * 2, "a"), Tagged(x, "b").tag), lambda: (torch.randn(3),))


def test_what_shares_memory_keeps_its_class():
    def fn(x):
        y = x * 2
        z = y.as_subclass(Plain)
        return y, z, x.as_subclass(Plain), z.as_subclass(torch.Tensor)

    check(fn, lambda: (torch.randn(3),))
    oxyfuel.reset()
    y, z, alias, _ = oxyfuel.compile(fn)(x := torch.randn(3))
    y.add_(1)
    alias.mul_(2)
    same(z.as_subclass(torch.Tensor), y)
    same(alias.as_subclass(torch.Tensor), x)


def test_attributes():
    def fn(x):
        before, x.tag, x.other = x.tag, "c", 3
        return x, before, x.tag, x + 1

    check(fn, lambda: (Tagged(torch.randn(3), "b"),))


def test_several_in_containers():
    check(lambda xs: [x * 2 for x in xs], lambda: ([image(Image), image(Plain), Y],))
    oxyfuel.reset()
    check(lambda d: {k: v + 1 for k, v in d.items()}, lambda: ({"a": image(Plain), "b": Y},))


def test_behind_a_break():
    def fn(x):
        y = (x * 2).as_subclass(Image)
        oxyfuel.graph_break()
        return y.clone(), y + 1

    check(fn, lambda: (torch.randn(3, 4),), breaks=1)


@pytest.mark.parametrize("kind", KINDS)
def test_gradients(kind):
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.Linear(8, 3))
    found = []
    for call in (module, oxyfuel.compile(module)):
        module.zero_grad()
        torch.manual_seed(1)
        x = torch.randn(4, 6).as_subclass(kind).requires_grad_()
        call(x).square().sum().backward()
        found.append([x.grad, *(p.grad for p in module.parameters())])
    same(found[1], found[0])
    assert oxyfuel.stats()["graph_breaks"] == 0


def test_parameters():
    class Product(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(image(Plain, 6, 6))

        def forward(self, x):
            return x @ self.weight

    module = Product()
    check(module, lambda: (torch.randn(2, 6),))


def test_other_classes_and_sizes_are_other_captures():
    f = oxyfuel.compile(lambda x: x * x.shape[0])
    for x in (image(Image), Y, image(Plain), image(Image, 5, 6), image(Image, 7, 6)):
        same(f(x), x * x.shape[0])
    assert oxyfuel.stats()["fallbacks"] == 0


def test_classes_that_do_not_know_each_other():
    with pytest.raises(TypeError):
        oxyfuel.compile(lambda a, b: a + b)(image(Plain), image(Image))
