"""NumPy in captured code: arrays are tensors of the graph, and what comes out is what NumPy gives:
the type, the dtype, the shape, the memory that is shared."""

import itertools
import operator
import warnings

import numpy as np
import pytest
import torch

import oxyfuel

pytestmark = [pytest.mark.usefixtures("strict"), pytest.mark.filterwarnings("ignore")]


def same(found, expected):
    assert type(found) is type(expected), (type(found), type(expected))
    if isinstance(expected, (list, tuple)):
        assert len(found) == len(expected)
        for a, b in zip(found, expected, strict=True):
            same(a, b)
    elif isinstance(expected, (np.ndarray, np.generic)):
        assert found.dtype == expected.dtype and found.shape == expected.shape
        if expected.dtype.kind == "f":
            np.testing.assert_allclose(found, expected, rtol=3e-6, atol=1e-6)
        else:
            np.testing.assert_array_equal(found, expected)
    elif isinstance(expected, torch.Tensor):
        torch.testing.assert_close(found, expected)
    else:
        assert found == (pytest.approx(expected) if isinstance(expected, float) else expected)


def agree(function, *inputs, breaks=0, backend="eager"):
    """Two calls, each on copies of the inputs, which are compared as well."""
    oxyfuel.reset()
    compiled = oxyfuel.compile(function, backend=backend) if backend else oxyfuel.compile(function)
    copied = lambda: [x.copy() if isinstance(x, np.ndarray) else x for x in inputs]  # noqa: E731
    for _ in range(2):
        mine, theirs = copied(), copied()
        try:
            expected = function(*theirs)
        except Exception as e:
            with pytest.raises(type(e)) as raised:
                compiled(*mine)
            assert str(raised.value) == str(e)
        else:
            same(compiled(*mine), expected)
        same(mine, theirs)
    if breaks is not None:
        assert oxyfuel.stats()["graph_breaks"] == breaks


def values(dtype, shape=(3, 4)):
    rng = np.random.default_rng(len(shape))
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if np.dtype(dtype).kind in "iu":
        return rng.integers(0 if dtype == "uint8" else -9, 9, shape).astype(dtype)
    return rng.standard_normal(shape).astype(dtype)


DTYPES = ["float32", "float64", "int64", "int32", "uint8", "bool"]

UNARY = [
    "negative",
    "positive",
    "absolute",
    "fabs",
    "sign",
    "sqrt",
    "square",
    "exp",
    "exp2",
    "expm1",
    "log",
    "log2",
    "log10",
    "log1p",
    "sin",
    "cos",
    "tan",
    "arcsin",
    "arccos",
    "arctan",
    "sinh",
    "cosh",
    "tanh",
    "arcsinh",
    "arccosh",
    "arctanh",
    "floor",
    "ceil",
    "trunc",
    "rint",
    "isnan",
    "isinf",
    "isfinite",
    "signbit",
    "logical_not",
    "deg2rad",
    "rad2deg",
    "invert",
    "reciprocal",
    "sum",
    "prod",
    "mean",
    "var",
    "std",
    "max",
    "min",
    "ptp",
    "any",
    "all",
    "argmax",
    "argmin",
    "cumsum",
    "cumprod",
    "ravel",
    "transpose",
    "squeeze",
    "atleast_1d",
    "atleast_2d",
    "sort",
    "copy",
    "zeros_like",
    "ones_like",
    "empty_like",
    "shape",
    "ndim",
    "size",
    "triu",
    "tril",
    "diff",
]
BINARY = [
    "add",
    "subtract",
    "multiply",
    "divide",
    "power",
    "equal",
    "not_equal",
    "less",
    "less_equal",
    "greater",
    "greater_equal",
    "floor_divide",
    "remainder",
    "fmod",
    "maximum",
    "minimum",
    "fmax",
    "fmin",
    "hypot",
    "copysign",
    "logaddexp",
    "logaddexp2",
    "logical_and",
    "logical_or",
    "logical_xor",
    "bitwise_and",
    "bitwise_or",
    "bitwise_xor",
    "left_shift",
    "right_shift",
    "arctan2",
    "isclose",
]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", UNARY)
def test_a_function_of_one_array(name, dtype):
    function = getattr(np, name)
    filled = np.zeros_like if name == "empty_like" else lambda a: a
    agree(lambda a: filled(function(a)), values(dtype), breaks=None)


@pytest.mark.parametrize(
    ("one", "other"), list(itertools.product(DTYPES, ["float32", "int64", "uint8", "bool"]))
)
@pytest.mark.parametrize("name", BINARY)
def test_a_function_of_two_arrays(name, one, other):
    function = getattr(np, name)
    agree(lambda a, b: function(a, b), values(one), values(other, (4,)), breaks=None)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", BINARY)
def test_a_function_of_an_array_and_a_number(name, dtype):
    function = getattr(np, name)
    for n in (2, 0, 2.5, -1, True, 300, np.float32(1.5), np.float64(3.0), np.int64(4)):
        agree(lambda a, n=n: (function(a, n), function(n, a)), values(dtype), breaks=None)


CASES = {
    "operators": lambda a: (a + 1, 1 - a, a * 2.5, 2 / (a * a + 1), a**2, -a, abs(a), a @ a.T,
                            a > 0, a == a),
    "reductions": lambda a: (a.sum(), a.sum(0), a.sum(axis=(0, 1)), a.mean(axis=1, keepdims=True),
                             a.max(-1), a.min()),
    "moments": lambda a: (a.var(), a.std(axis=0), np.var(a, ddof=1),
                          np.std(a, axis=1, ddof=1, keepdims=True)),
    "norms": lambda a: (np.linalg.norm(a), np.linalg.norm(a, axis=1),
                        a / np.linalg.norm(a, axis=-1, keepdims=True)),
    "places": lambda a: (a.argmax(), a.argmin(axis=1), np.argmax(a, axis=0, keepdims=True)),
    "shapes": lambda a: (a.reshape(2, 6), a.reshape(-1), a.T, a.ravel(), a[None],
                         np.swapaxes(a, 0, 1), a.flatten()),
    "attributes": lambda a: (a.shape, a.ndim, a.size, a.dtype == np.float32, a.itemsize, a.nbytes,
                             a.strides, len(a), a.real + 1, a.real is a, a.sum().real),
    "dtypes": lambda a: (a.dtype.name, str(a.dtype), repr(a.dtype), f"{a.dtype!s:>9}",
                         a.dtype.kind, a.astype(np.float32).dtype.name,
                         np.issubdtype(a.dtype, np.floating), a + 1),
    "indices": lambda a: (a[0], a[0, 1], a[-1], a[1:, ::2], a[..., 1], a[:, None], a[[2, 0]],
                          a[a.argmax(0)]),
    "two_lists": lambda a: a[np.array([0, 1, 2]), np.array([1, 1, 3])],
    "joins": lambda a: (np.concatenate([a, a * 2]), np.stack([a, a], axis=1), np.vstack([a, a]),
                        np.hstack((a, a))),
    "splits": lambda a: (np.split(a, 2, axis=1), np.split(a, [1, 2]), np.split(a, 3)),
    "repeats": lambda a: (np.repeat(a, 2), np.repeat(a, 3, axis=1), np.tile(a, (2, 1)),
                          np.roll(a, 1), np.roll(a, 2, 1)),
    "choices": lambda a: (np.where(a > 0, a, 0), np.where(a > 0, 1.0, -1.0), np.clip(a, -0.5, 0.5),
                          a.clip(0, None)),
    "softmax": lambda a: np.exp(a - a.max(-1, keepdims=True))
    / np.exp(a - a.max(-1, keepdims=True)).sum(-1, keepdims=True),
    "products": lambda a: (np.dot(a, a.T), np.outer(a[0], a[1]), np.einsum("ij,kj->ik", a, a),
                           a[0] @ a[1], np.dot(a[0], 2)),
    "made": lambda a: (np.zeros((2, 3)), np.ones(4, dtype=np.int32), np.full((2,), 7), np.eye(3),
                       np.arange(5), np.empty(0)),
    "ranges": lambda a: (np.arange(1, 10, 2), np.arange(0.0, 1.0, 0.1), np.linspace(0, 1, 7),
                         a * np.arange(4), np.arange(-0.1, 1, 0.3, dtype=np.float32),
                         np.arange(-1, 5, 1 + 1e-9), np.linspace(0, 1, 7, endpoint=False),
                         np.linspace(-1, 1, 5, dtype=np.float32)),
    "grids": lambda a: (np.meshgrid(a[0], a[1]), np.meshgrid(a, a[0], indexing="ij"),
                        np.meshgrid(a[0], [1, 2, 3], sparse=True), np.meshgrid(a[0])),
    "shifts": lambda a: (np.fft.fftshift(a), np.fft.ifftshift(a, axes=1), np.fft.fftshift(a, 0)),
    "not_a_number": lambda a: (np.nan_to_num(a / np.maximum(a, 0)), np.nan_to_num(a > 0),
                               np.nan_to_num(a / 0 + a, nan=1, posinf=2, neginf=-3),
                               np.nan_to_num(a.sum())),
    "along": lambda a: (np.take_along_axis(a, np.array([[0, -1]]), axis=1),
                        np.take_along_axis(a, a.argmax(1, keepdims=True), 1),
                        np.take_along_axis(a, np.array([3, 0]), None)),
    "of_lists": lambda a: (np.array([1, 2, 3]), np.array([[1.5, 2], [3, 4]]),
                           np.array([1, 2], dtype=np.float32), a + [1, 2, 3, 4]),
    "casts": lambda a: (a.astype(np.float64), a.astype("int64"), a.astype(bool),
                        a.astype(np.float32), (a > 0).astype(int)),
    "scalars": lambda a: (a[0, 0] + 1, a.sum() * 2, np.sqrt(a.sum() ** 2), a[0, 0] * a,
                          a.mean() > 0, np.float32(2) * a),
    "truths": lambda a: (a - True, True - a, a.sum() - True, a * False, a.astype(int) - True,
                         (a > 0) + True),
    "rows": lambda a: [row * i for i, row in enumerate(a)],
    "unpacked": lambda a: (lambda x, y, z: (z, x + y))(*a),
    "kinds": lambda a: (isinstance(a, np.ndarray), isinstance(a.sum(), np.floating),
                        type(a) is np.ndarray, hasattr(a, "detach")),
    "to_torch": lambda a: (torch.from_numpy(a) + 1, torch.as_tensor(a * 2), torch.tensor(a).relu()),
    "from_torch": lambda a: (torch.from_numpy(a).relu().numpy() + 1, np.asarray(torch.ones(3)) * 2),
    "full_like": lambda a: (np.full_like(a, 3), np.zeros_like(a, dtype=int), np.identity(2),
                            np.moveaxis(a, 0, 1)),
}  # fmt: skip


@pytest.mark.parametrize("backend", ["eager", None], ids=["eager", "native"])
@pytest.mark.parametrize("name", CASES)
def test_one_graph(name, backend):
    agree(CASES[name], values("float32"), backend=backend)


@pytest.mark.parametrize("name", CASES)
def test_other_layouts(name):
    agree(CASES[name], np.asfortranarray(values("float32")), breaks=None)
    agree(CASES[name], values("float64", (6, 8))[::2, ::2], breaks=None)


def writes(a, b):
    a += b
    a[0] = 5
    a[1:, 1] *= 2
    a[a > 4] = 0
    np.add(a, 1, out=a)
    c = a.copy()
    c -= b
    a[1:] = a[:-1]
    v = a.reshape(-1)
    v[2] = 9
    return a, c, a is a


@pytest.mark.parametrize("backend", ["eager", None], ids=["eager", "native"])
def test_writes_are_seen(backend):
    agree(lambda a: writes(a, np.ones(4, np.float32)), values("float32"), backend=backend)
    agree(writes, values("float32"), values("float32", (4,)), backend=backend, breaks=None)


def test_memory_is_shared_as_in_numpy():
    def f(x, a):
        return x.numpy(), torch.from_numpy(a), a[1:], a.T, a

    compiled = oxyfuel.compile(f)
    for _ in range(2):
        x, a = torch.zeros(3), np.zeros((3, 2), np.float32)
        of_x, of_a, part, turned, again = compiled(x, a)
        assert again is a
        x[0], a[2, 1] = 7, 8
        assert of_x[0] == 7 and of_a[2, 1] == 8 and part[1, 1] == 8 and turned[1, 2] == 8
        of_a[1, 1] = 3
        assert a[1, 1] == 3
    assert oxyfuel.stats()["graph_breaks"] == 0


def test_arrays_that_share_memory():
    def f(a, b):
        a += 1
        return b * 2

    compiled = oxyfuel.compile(f)
    for apart in (True, False):
        a = np.arange(4.0)
        b = a.copy() if apart else a
        expected_a, expected = a + 1, (b if apart else a + 1) * 2
        assert (compiled(a, b) == expected).all() and (a == expected_a).all()


def test_one_array_given_twice():
    def f(a, b):
        return a is b, a + b

    compiled = oxyfuel.compile(f)
    a = np.ones(3)
    for b in (a, a.copy(), a):
        same(compiled(a, b), f(a, b))


def test_other_types_and_shapes_are_captured_again():
    compiled = oxyfuel.compile(lambda a: a * 2 + 1)
    for a in (np.ones(3), np.ones(4), np.ones(3, np.float32), np.ones((2, 3), int), np.ones(3)):
        same(compiled(a), a * 2 + 1)
    same(compiled(np.broadcast_to(np.float64(2), (3,))), np.full(3, 5.0))  # cannot be written
    same(compiled(np.ones(6)[::-2]), np.full(3, 3.0))
    same(compiled(np.ones(3, np.complex128)), np.full(3, 3 + 0j))


BREAKS = {
    "backwards_reshaped": lambda a: a[::-1].reshape(-1) * 2,
    "backwards_as_a_tensor": lambda a: torch.from_numpy(a[::-1]),
    "backwards_copied_as_a_tensor": lambda a: torch.tensor(a[::-1]),
    "nothing_backwards": lambda a: (a[1:2:-1], a[0:0][::-1]),
    "a_mask": lambda a: a[a > 0] + 1,
    "text": lambda a: f"{a.sum():.3f}",
    "a_number": lambda a: float(a.sum()) + int(a.size),
    "a_choice": lambda a: a + 1 if a.sum() > 0 else a - 1,
    "median": lambda a: np.median(a) + 1,
    "percentile": lambda a: np.percentile(a, 30, axis=0),
    "options": lambda a: np.add(a, 1, where=a > 0, out=np.zeros_like(a)),
    "item": lambda a: a.item(3) + 1,
    "lists": lambda a: (a + 1).tolist(),
    "where": lambda a: np.where(a > 0),
    "unique": lambda a: np.unique(np.sign(a)),
    "random": lambda a: a + np.random.default_rng(0).random(4),
    "of_a_tensor": lambda a: np.sum(torch.from_numpy(a) * 2) + 1,
    "with_a_tensor": lambda a: torch.from_numpy(a) * a.sum(),
    "a_method": lambda a: (a * 2).searchsorted(1.0) if a.ndim == 1 else a.tobytes(),
    "wrong_shapes": lambda a: a + np.ones(5),
    "out_of_range": lambda a: a[7],
    "wrong_axis": lambda a: a.sum(axis=5),
    "no_such_attribute": lambda a: a.detach(),
    "attribute_set": lambda a: setattr(a, "shape", (4, 3)) or a.shape,
    "integer_zero": lambda a: a.astype(int) // np.zeros(4, int),
    "legacy_tensor": lambda a: (torch.Tensor(a), torch.Tensor([a[0], a[1]])),
    "legacy_tensor_of_integers": lambda a: torch.LongTensor(a.astype(int)),
    "transformed": lambda a: np.abs(np.fft.rfft(a)) + np.fft.fft(a).real,
    "complex": lambda a: (a.astype(np.complex64) * 2).real,
    "not_a_complex_number": lambda a: np.nan_to_num(a + 1j * np.inf),
    "a_grid_of_no_kind": lambda a: np.meshgrid(a, a, indexing="zz"),
    "copied": lambda a: __import__("copy").deepcopy(a) + 1,
}  # fmt: skip


@pytest.mark.parametrize("name", BREAKS)
def test_what_numpy_does_itself(name):
    agree(BREAKS[name], values("float32"), breaks=None)


def test_arrays_live_across_breaks():
    def f(a):
        b, total = a * 2, a.sum()
        views = {"v": b[1:], "t": [total]}
        oxyfuel.graph_break()
        b += 1
        return b, views["v"], views["t"][0] + 1, type(total)

    # The second: `b` is written, and what came from in front of the first shares its memory.
    agree(f, values("float32"), breaks=2)


def test_a_module_with_arrays():
    class Scaled(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(4, 4)
            self.mean, self.std = np.arange(4, dtype=np.float32), np.full(4, 2, np.float32)

        def forward(self, a):
            x = torch.from_numpy((a - self.mean) / self.std)
            return self.linear(x).numpy().argmax(axis=-1)

    with torch.no_grad():
        module = Scaled()
        compiled = oxyfuel.compile(module)
        a = values("float32")
        for shift in (0, 1):
            module.mean += shift
            same(compiled(a), module(a))
    assert oxyfuel.stats()["graph_breaks"] == 0


def test_the_reason_is_named():
    with pytest.raises(oxyfuel.GraphBreak, match=r"(?s)NumPy.*median.*test_arrays.py"):
        oxyfuel.compile(lambda a: np.median(a), fullgraph=True)(np.ones(3))


def test_nothing_warns_of_arrays_that_cannot_be_written():
    a = np.ones(3)
    a.flags.writeable = False
    compiled = oxyfuel.compile(lambda x, a: x + 1, backend="eager")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2):
            compiled(torch.ones(3), a)


def test_scalars_with_tensors_count_as_numbers():
    compiled = oxyfuel.compile(lambda x, s: x * s + s, backend="eager")
    for s in (np.float64(2), np.float64(3), np.float32(1.5), np.int64(2)):
        same(compiled(torch.ones(2), s), torch.ones(2) * s + s)
    assert oxyfuel.stats()["graph_breaks"] == 0


WITH_SCALAR = {
    "full": lambda t, v: torch.full((2,), v),
    "new_full": lambda t, v: t.new_full((2,), v),
    "full_like": torch.full_like,
    "plus": lambda t, v: t + v,
    "times": lambda t, v: v * t,
    "equal": lambda t, v: t == v,
    "where": lambda t, v: torch.where(t > 0, t, v),
    "clamp": lambda t, v: t.clamp(v),
    "arange": lambda t, v: torch.arange(0, 3, v),
    "as_tensor": lambda t, v: torch.as_tensor(v),
    "item": lambda t, v: t[v],
    "set": lambda t, v: (t := t.clone(), operator.setitem(t, 0, v))[0],
    "set_all": lambda t, v: (t := t.clone(), t.__setitem__(slice(None), v))[0],
    "set_some": lambda t, v: (t := t.clone(), operator.setitem(t, t > 0, v))[0],
}


@pytest.mark.parametrize("name", WITH_SCALAR)
def test_scalars_where_torch_takes_numbers(name):
    """A boolean counts as a float; only some may be assigned to an item."""

    def outcome(function, *args):
        try:
            return function(*args)
        except Exception as e:
            return type(e), str(e)

    scalars = [np.bool_(True), np.float32(1.5), np.float64(1.5), np.int64(1), np.int32(1)]
    function = WITH_SCALAR[name]
    for tensor in (torch.arange(3.0), torch.arange(3), torch.arange(3) > 1):
        for s in scalars:
            oxyfuel.reset()
            compiled = oxyfuel.compile(function, backend="eager")
            expected = outcome(function, tensor, s)
            for _ in range(2):
                same(outcome(compiled, tensor, s), expected)


def backwards_written(a):
    b = a[::-1]
    b[0] = 7
    b += 1
    b[1:, ::-1] *= 2
    a[::-1, 0] = np.arange(3)
    np.add(b, 1, out=b)
    a[0] = 3
    return b.sum(), b, b * 2, a


def backwards_over_a_tensor(a):
    t = torch.from_numpy(a) + 1
    b = t.numpy()[::-1]
    picked = b[[0, 1]]
    t[0] = 5
    return picked, b * 1, b, t


BACKWARDS = {
    "used": lambda a: (a[::-1] * 2, a[:, ::-1].T + 1, np.sin(a[::-1, ::-2]), a[::-1] + a),
    "views": lambda a: (b := a[::-1], b[1:], b[1:, ::-2].T, b[0], b[-1, 1], b[::-1], b[..., ::-1]),
    "parts": lambda a: (a[2:0:-1], a[::-1][1:3, 1], a[-1:-3:-1], a[::-2][-1], a[1::-1]),
    "strides": lambda a: (a[::-1].strides, a.T[::-1].strides, a[:, ::-2].strides, a[::-1].shape),
    "copies": lambda a: (a[:, ::-1].copy(), np.ascontiguousarray(a[::-1]), a.T[::-1].astype("f8")),
    "tensors": lambda a: torch.from_numpy(a[:, ::-1].copy()) + torch.tensor(a[::-1].copy()),
    "reduced": lambda a: (a[::-1].mean(0), a[::-1].argmax(), a[::-1] @ a.T, np.cumsum(a[::-1])),
    "joined": lambda a: (np.concatenate([a[::-1], a]), np.stack([a[::-1], a]), a[::-1].flatten()),
    "turned": lambda a: (np.flip(a), np.flip(a, 1), np.flip(a, (0, -1)), np.flipud(a)),
    "turned_sideways": lambda a: np.fliplr(a) + 1,
    "rows": lambda a: [row.sum() for row in a[::-1]],
    "written": backwards_written,
    "over_a_tensor": backwards_over_a_tensor,
}  # fmt: skip


@pytest.mark.parametrize("backend", ("eager", None))
@pytest.mark.parametrize("name", BACKWARDS)
def test_slices_that_run_backwards(name, backend):
    agree(BACKWARDS[name], values("float32"), backend=backend)


@pytest.mark.parametrize("name", ("used", "views", "parts", "copies", "turned", "written"))
def test_the_layout_of_what_runs_backwards(name):
    function, a = BACKWARDS[name], values("float32")
    theirs = function(a.copy())
    for mine, expected in zip(oxyfuel.compile(function)(a.copy()), theirs, strict=True):
        assert getattr(mine, "strides", None) == getattr(expected, "strides", None)


def test_a_copy_keeps_the_order():
    a = np.arange(12.0).reshape(3, 4)
    for f in (lambda a: np.copy(a.T), lambda a: a.T.copy(), lambda a: np.array(a.T)):
        assert oxyfuel.compile(f)(a).strides == f(a).strides


def test_scalars_that_vary_are_inputs():
    compiled = oxyfuel.compile(lambda a, s: a * s, backend="eager")
    for s in (1.5, 2.5, 3.5):
        same(
            compiled(np.ones(3, np.float32), np.float32(s)), np.ones(3, np.float32) * np.float32(s)
        )
    assert oxyfuel.stats()["graphs"] == 1


def test_no_place_along_an_axis():
    def f(a, at):
        return np.take_along_axis(a, at, 1)

    agree(f, values("float32"), np.array([[0, -4], [3, 1], [2, 2]]))
    with pytest.raises(IndexError, match="4 is out of bounds"):
        oxyfuel.compile(f)(values("float32"), np.array([[4]]))


def test_options_that_only_numpy_takes():
    def f(a):
        return np.array(a, subok=True, ndmin=3) + 1

    agree(f, values("float32"), breaks=1)


def test_numpys_own_code_is_left_alone():
    """What it calls where a call of it breaks is no code of the user's."""

    def f(x, rows):
        mask = np.zeros((3, 4), dtype=bool)
        np.put_along_axis(mask, rows, True, 1)
        return x * torch.from_numpy(mask)

    agree(f, torch.randn(3, 4), np.array([[1], [0], [3]]), breaks=1)


def test_scalars_as_keys():
    def f(x, s):
        return x * {0.5: 1.0, 1.5: 2.0}.get(s, 9.0), s in {0.5, 1.5}

    compiled = oxyfuel.compile(f)
    x = torch.ones(2)
    for s in (0.5, np.float64(1.5), np.float64(-2.5), 2.5, np.float32(0.5), np.int64(3)):
        same(compiled(x, s), f(x, s))
    assert oxyfuel.stats()["fallbacks"] == 0


@pytest.mark.parametrize("sequence", ([0, 1], (0, 1), "ab"))
@pytest.mark.parametrize("left", (True, False))
@pytest.mark.parametrize("reduce", ("argmax", "mean"))
def test_sequences_times_scalars(sequence, left, reduce):
    """A scalar of integers repeats them, where an array would be multiplied by each."""

    def f(x):
        scalar = getattr((x * 2).numpy(), reduce)()
        try:
            return sequence * scalar if left else scalar * sequence
        except TypeError as e:
            return str(e)

    x = torch.tensor([0.5, 0.25, 2.0])
    assert oxyfuel.compile(f)(x) == f(x)


def test_records():
    """They find their attributes by code in Python, also their class."""

    def caught(x, t):
        try:
            return x + 1, t + t
        except TypeError as e:
            return x + 1, type(e).__name__

    given = np.rec.array([(1, 2.0)], dtype=[("a", "i4"), ("b", "f4")])
    for program in (lambda x, t: (x + 1, t == t), lambda x, t: (x + 1, t != t), caught):
        compiled = oxyfuel.compile(program)
        for _ in range(2):
            x = torch.ones(2)
            assert repr(compiled(x, given)) == repr(program(x, given))
    assert oxyfuel.stats()["fallbacks"] == 0


TENSORS_OF = {
    "tensor": torch.tensor,
    "as_tensor": torch.as_tensor,
    "asarray": torch.asarray,
    "asarray_float": lambda s: torch.asarray(s, dtype=torch.float32),
    "of_a_class": lambda s: (
        torch.DoubleTensor([s, s]) if s.dtype.kind == "f" else torch.LongTensor([s + s, s])
    ),
    "result_type": lambda s: torch.ones((), dtype=torch.result_type(torch.ones(2).long(), s)),
}


@pytest.mark.parametrize("dtype", ["float64", "float32", "int64", "int32", "uint8", "bool"])
@pytest.mark.parametrize("name", TENSORS_OF)
def test_tensors_of_scalars(name, dtype):
    if (name, dtype) == ("of_a_class", "bool"):
        pytest.skip("torch takes none")
    scalar = values(dtype)[1, 2]
    agree(lambda s: TENSORS_OF[name](s), scalar, breaks=None if dtype == "uint8" else 0)
    if name != "result_type":
        agree(lambda a: TENSORS_OF[name](a[1, 2]), values(dtype))


def test_asarray():
    a, x = values("float32"), torch.ones(2)
    agree(lambda a: torch.asarray(a).mul_(2), a)
    agree(lambda a: torch.asarray(a, copy=True).mul_(2), a)
    agree(lambda a: torch.asarray(a, dtype=torch.float64), a)
    agree(lambda a: torch.asarray(a, dtype=torch.float64, copy=False), a, breaks=1)
    compiled = oxyfuel.compile(lambda x: torch.asarray(x, requires_grad=True))
    assert compiled(x) is x and x.requires_grad


NUMBERS_OF_ARRAYS = {
    "a sum": lambda x, a: x + a.sum(),
    "a mean": lambda x, a: (x * a.mean() + 1) / a.max(),
    "an element": lambda x, a: x * a[1],
    "in front": lambda x, a: a.sum() * x,
    "half precision": lambda x, a: x.half() - a.sum(),
    "integers": lambda x, a: x.long() * a.sum(),
    "compared": lambda x, a: (x > a.mean(), x == a[2]),
    "a function": lambda x, a: torch.mul(x, a.sum()),
    "no dimensions": lambda x, a: x[0] * a.sum(),
}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", NUMBERS_OF_ARRAYS)
def test_computed_scalars_count_as_numbers(name, dtype):
    """They are numbers of the graph, also with gradients, and others are no new capture."""
    f, compiled = NUMBERS_OF_ARRAYS[name], oxyfuel.compile(NUMBERS_OF_ARRAYS[name])
    compiled(torch.ones(3), np.ones(3, dtype))
    before = oxyfuel.stats()
    for scale in (1, 2):
        a = np.arange(3, dtype=dtype) * scale
        same(compiled(torch.arange(3.0), a), f(torch.arange(3.0), a))
    after = oxyfuel.stats()
    assert [after[key] - before[key] for key in ("graphs", "graph_breaks")] == [0, 0]
    if name in ("a sum", "a mean"):
        xs = [torch.arange(3.0, requires_grad=True) for _ in range(2)]
        for g, x in zip((f, compiled), xs):
            g(x, a).square().sum().backward()
        torch.testing.assert_close(xs[1].grad, xs[0].grad)


@pytest.mark.parametrize(
    "f",
    [
        lambda x, a: x ** a[2],
        lambda x, a: torch.where(x > 1, x, a.sum()),
        lambda x, a: x.index_put((torch.tensor(0),), torch.tensor(a.sum(), dtype=x.dtype)),
        lambda x, a: x * a.astype(np.int64).sum(),
    ],
)
def test_computed_scalars_elsewhere(f):
    compiled = oxyfuel.compile(f)
    for scale in (1, 2):
        a = np.arange(3.0) * scale
        same(compiled(torch.arange(3.0), a), f(torch.arange(3.0), a))


def test_norms_and_means_of_complex_numbers():
    def f(x):
        a = x.numpy()
        norms = [np.linalg.norm(a), np.linalg.norm(a, axis=1)]
        return [*norms, a.mean(), np.mean(a, axis=0), a.var(), np.std(a, axis=1)]

    x = torch.randn(3, 4, dtype=torch.complex64)
    for result, expected in zip(oxyfuel.compile(f)(x), f(x), strict=True):
        assert result.dtype == expected.dtype
        np.testing.assert_allclose(result, expected, rtol=1e-5)


@pytest.mark.parametrize(
    "f",
    [
        lambda x, i: x[i] * 2,
        lambda x, i: x[i, i],
        lambda x, i: x[:, i, None] + x[i][0],
        lambda x, i: x[..., np.arange(3)] + x[np.array([0, 1]), 1:2].sum(),
    ],
)
def test_arrays_index_tensors(f):
    def writes(x, i):
        y = x.clone()
        y[i] = x[0] + 1
        y[i, i] += 1
        y[np.array([1, 2])] = 2.0
        return y

    for g in (f, writes):
        compiled = oxyfuel.compile(g, fullgraph=True)
        for index in ([0, 2], [1, -1], [3, 3, 0]):
            x, i = torch.randn(4, 4), np.array(index)
            if g is writes:
                i = np.array(sorted(set(index)))
            assert torch.equal(compiled(x.clone(), i), g(x.clone(), i))


def test_masks_and_bad_indices_that_are_arrays():
    def f(x, i):
        return x[i]

    compiled, x = oxyfuel.compile(f), torch.randn(4, 4)
    assert torch.equal(compiled(x, x[0].numpy() > 0), f(x, x[0].numpy() > 0))
    for _ in range(2):
        with pytest.raises(IndexError, match="out of"):
            compiled(x, np.array([4]))
