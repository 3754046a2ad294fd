"""Tensors of classes that wrap others (__tensor_flatten__): followed down to what they wrap."""

import types

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.testing._internal.two_tensor import TwoTensor
from torch.utils._python_dispatch import return_and_correct_aliasing

import oxyfuel

pytestmark = pytest.mark.usefixtures("strict_without_grad")
aten = torch.ops.aten


class Scaled(torch.Tensor):
    """int8 numbers and one scale; torch asks it below its functions alone."""

    @staticmethod
    def __new__(cls, data, scale):
        return torch.Tensor._make_wrapper_subclass(cls, data.shape, dtype=scale.dtype)

    def __init__(self, data, scale):
        self.data_, self.scale = data, scale

    def __tensor_flatten__(self):
        return ["data_", "scale"], None

    @classmethod
    def __tensor_unflatten__(cls, inner, context, size, stride):
        return cls(inner["data_"], inner["scale"])

    __torch_function__ = torch._C._disabled_torch_function_impl

    def wide(self):
        return self.data_.to(self.scale.dtype) * self.scale

    @classmethod
    def __torch_dispatch__(cls, func, types, args, kwargs):
        if func in (aten.t.default, aten.detach.default, aten.clone.default):
            out = cls(func(args[0].data_), args[0].scale)
            return return_and_correct_aliasing(func, args, kwargs, out)
        if func is aten.mul_.Tensor:
            args[0].scale.mul_(args[1])
            return return_and_correct_aliasing(func, args, kwargs, None)

        def plain(a):
            if isinstance(a, (list, tuple)):
                return [plain(x) for x in a]
            return a.wide() if isinstance(a, Scaled) else a

        return func(*plain(args), **(kwargs or {}))


class Asked(Scaled):
    """The same, asked by torch's functions too, as torchao's classes are."""

    table: dict = {}

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func in cls.table:
            return cls.table[func](*args, **(kwargs or {}))
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))


def linear(x, w, bias=None):
    out = (x @ w.data_.t().to(x.dtype)) * w.scale
    return out if bias is None else out + bias


Asked.table[F.linear] = linear


def scaled(rows=8, columns=8, kind=Scaled):
    return kind(torch.randint(-128, 127, (rows, columns), dtype=torch.int8), torch.tensor(0.1))


def check(fn, *inputs, graphs=1):
    with torch.no_grad():
        expected = fn(*inputs)
        oxyfuel.reset()
        got = oxyfuel.compile(fn)(*inputs)
    same(got, expected)
    stats = oxyfuel.stats()
    assert (stats["graph_breaks"], stats["fallbacks"]) == (0, 0)
    assert stats["graphs"] == graphs


def close(got, expected):
    torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-4)


def same(got, expected):
    assert type(got) is type(expected)
    if isinstance(expected, (tuple, list)):
        assert len(got) == len(expected)
        for a, b in zip(got, expected, strict=True):
            same(a, b)
    elif isinstance(expected, (Scaled, TwoTensor)):
        assert got.shape == expected.shape and got.stride() == expected.stride()
        assert got.dtype == expected.dtype and vars(got).keys() == vars(expected).keys()
        for name in expected.__tensor_flatten__()[0]:
            same(getattr(got, name), getattr(expected, name))
    elif isinstance(expected, torch.Tensor):
        close(got, expected)
    else:
        assert got == expected


FUNCTIONS = {
    "linear": lambda x, w: F.linear(x, w),
    "linear with a bias": lambda x, w: F.linear(x, w, x[0]),
    "operators": lambda x, w: (w + 1, x * w, 2 - w, x @ w, w.t() @ x, -w, w > 0, w == w),
    "functions": lambda x, w: (torch.add(x, w), torch.where(x > 0, w, 0.0), F.softmax(w, -1)),
    "lists": lambda x, w: (torch.cat([x, w]), torch.stack([w, w]), w.split(2), w.chunk(2)),
    "methods": lambda x, w: (x.add(w), w.sum(1, keepdim=True), w.reshape(-1), w[1:3], w[0, 1]),
    "composites": lambda x, w: (F.layer_norm(w, (8,)), F.gelu(w), torch.einsum("ij,jk", w, x)),
    "out of one": lambda x, w: (w.t(), w.detach(), w.t().clone(), x + 1),
    "made here": lambda x, w: (type(w)(x.to(torch.int8), x.sum()), x),
    "made and used": lambda x, w: type(w)(x.to(torch.int8), x.sum()).t() @ x,
    "what it wraps": lambda x, w: (w.data_ * 2, w.scale + x, w.wide()),
}


@pytest.mark.parametrize("kind", [Scaled, Asked])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_calls(name, kind):
    check(FUNCTIONS[name], torch.randn(8, 8), scaled(kind=kind))


def test_what_it_tells():
    def fn(x, w):
        size = w.shape[0] + w.size(1) + w.dim() + w.numel() + len(w)
        facts = (w.dtype, w.device, w.stride(), w.is_contiguous(), w.requires_grad, w.ndim)
        return x + size, facts, isinstance(w, Scaled), isinstance(w, nn.Parameter), type(w).__name__

    for kind in (Scaled, Asked):
        check(fn, torch.randn(8, 8), scaled(kind=kind))


def test_parameters_of_modules():
    for kind in (Scaled, Asked):
        m = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4)).eval()
        for layer in (m[0], m[2]):
            weight = scaled(*layer.weight.shape, kind=kind)
            layer.weight = nn.Parameter(weight, requires_grad=False)
        check(m, torch.randn(3, 8))


def test_guards():
    f = oxyfuel.compile(lambda x, w: F.linear(x, w) + w.shape[0])
    with torch.no_grad():
        for w in (scaled(), scaled(), scaled(4, 8), torch.randn(8, 8), scaled(kind=Asked)):
            x = torch.randn(3, 8)
            close(f(x, w), F.linear(x, w) + w.shape[0])
        w = scaled()
        f(x, w)
        w.scale = torch.tensor(3.0)
        close(f(x, w), F.linear(x, w) + w.shape[0])
        w.data_ = w.data_.double()
        w.scale = w.scale.double()
    assert oxyfuel.stats()["fallbacks"] == 0


OPERATORS = {
    "add": lambda x, w: (w + 1, 1 + w, x + w, w - x, 2 - w, x * w, w / 2),
    "compare": lambda x, w: (w < x, x < w, w >= 0, w != x, w == x),
    "matmul": lambda x, w: (x @ w, w @ x, w % 3, w**2, -w, abs(w)),
    "getters": lambda x, w: (w.shape, w.dtype, w.T, len(w), w[0], torch.relu(w), w.t()),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_which_function_a_class_is_asked_for(name):
    class Told(Asked):
        heard: list = []

        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            cls.heard.append(getattr(func, "__name__", "?"))
            return super().__torch_function__(func, types, args, kwargs)

    x, w = torch.rand(8, 8), scaled(kind=Told)
    expected = OPERATORS[name](x, w)
    asked = list(Told.heard)
    Told.heard.clear()
    got = oxyfuel.compile(OPERATORS[name])(x, w)
    assert Told.heard == asked
    same(got, expected)
    assert oxyfuel.stats()["graph_breaks"] == 0


def test_one_object_in_two_places():
    f = oxyfuel.compile(lambda x, a, b: (x @ a.t(), a is b, x @ b.t()))
    x, w = torch.randn(2, 8), scaled()
    for a, b in ((w, w), (w, scaled()), (w, w)):
        same(f(x, a, b), (x @ a.t(), a is b, x @ b.t()))


def test_varying_sizes_beside_it():
    f, w = oxyfuel.compile(lambda x, w: F.linear(x, w)), scaled()
    with torch.no_grad():
        for rows in (2, 3, 5, 9):
            x = torch.randn(rows, 8)
            close(f(x, w), F.linear(x, w))
    assert oxyfuel.stats()["recompiles"] <= 1


def doubles_in_place(w, x):
    w.mul_(2)
    return w @ x


def replaces_an_attribute(w, x):
    w.scale = w.scale * 2
    return w @ x


@pytest.mark.parametrize("fn", [doubles_in_place, replaces_an_attribute])
def test_writes(fn):
    ours, eagers, x = scaled(), scaled(), torch.randn(8, 8)
    eagers.data_ = ours.data_
    with torch.no_grad():
        close(oxyfuel.compile(fn)(ours, x), fn(eagers, x))
    close(ours.scale, eagers.scale)


def test_behind_a_break():
    def fn(x, w):
        made = type(w)(x.to(torch.int8), x.sum())
        oxyfuel.graph_break()
        return made @ x, w.t() @ x

    x, w = torch.randn(8, 8), scaled()
    with torch.no_grad():
        same(oxyfuel.compile(fn)(x, w), fn(x, w))
    assert oxyfuel.stats()["graph_breaks"] == 1


def test_errors_are_eagers():
    with torch.no_grad(), pytest.raises(RuntimeError, match="shape|size"):
        oxyfuel.compile(lambda x, w: F.linear(x, w))(torch.randn(3, 7), scaled())


def two():
    return TwoTensor(torch.randn(4, 4), torch.randn(4, 4))


@pytest.mark.parametrize(
    "fn",
    [
        lambda a, b, x: (a + b, a.sin(), a @ b, torch.relu(a), a.sum(), a + x, x * a),
        lambda a, b, x: (a.chunk(2), a.view(-1), a.permute(1, 0).contiguous(), torch.stack([a, b])),
        lambda a, b, x: F.layer_norm(F.gelu(a @ x), (4,)).softmax(-1),
        lambda a, b, x: a.add_(1).mul_(2),
    ],
)
def test_two_tensors(fn):
    a, b, x = two(), two(), torch.randn(4, 4)
    copy = TwoTensor(a.a.clone(), a.b.clone())
    with torch.no_grad():
        expected = fn(copy, b, x)
        got = oxyfuel.compile(fn)(a, b, x)
    same(got, expected)
    same(a, copy)
    assert oxyfuel.stats()["graph_breaks"] == 0


def test_one_that_wraps_some_that_wrap():
    nested = TwoTensor(two(), two())
    check(lambda a: (a * 2 + a.sum(), a.t()), nested)


def test_read_only_views_of_dicts():
    held = {"a": 1.5}
    view = types.MappingProxyType(held)
    f = oxyfuel.compile(lambda x: (x * view["a"], view.get("b", 2), "a" in view, len(view)))
    for value in (1.5, 3.0):
        held["a"] = value
        got = f(torch.ones(2))
        assert got[0].tolist() == [value, value] and got[1:] == (2, True, 1)
    assert oxyfuel.stats()["graph_breaks"] == 0


def test_what_torch_captured():
    """torch.compile hands on calls on such tensors as they are."""
    layer = nn.Linear(8, 4)
    layer.weight = nn.Parameter(scaled(4, 8, kind=Asked), requires_grad=False)
    for fn, inputs in (
        (lambda x, w: F.linear(x, w) + 1, (torch.randn(3, 8), scaled())),
        (lambda a, b: a.sin() @ b, (two(), two())),
        (layer, (torch.randn(3, 8),)),
    ):
        torch._dynamo.reset()
        same(torch.compile(fn, backend="oxyfuel")(*inputs), fn(*inputs))
    stats = oxyfuel.stats()
    assert (stats["graphs"], stats["graph_breaks"], stats["fallbacks"]) == (3, 0, 0)
    assert stats["unsupported"] == 0
