"""Arithmetic on complex numbers in kernels of ours: against eager, in every layout, with the zeros,
infinities and NaN of its formulas."""

import itertools
import math

import pytest
import torch

import oxyfuel

DTYPES = (torch.complex64, torch.complex128)
LAYOUTS = {
    "contiguous": lambda t: t,
    "transposed": lambda t: t.transpose(0, 1).contiguous().transpose(0, 1),
    "sliced": lambda t: torch.cat([t, t], 1)[:, 3 : 3 + t.shape[1]],
    "stepped": lambda t: torch.stack([t, t * 0], -1).flatten(1)[:, ::2],
    "expanded": lambda t: t[:1].expand(t.shape),
}
SPECIAL = (0.0, -0.0, 1.0, -2.5, math.inf, -math.inf, math.nan, 1e-30, 1e30)

# name -> (function of two tensors, whether it is eager's formula to the bit)
FUNCTIONS = {
    "add": (lambda a, b: a + b, True),
    "add_alpha": (lambda a, b: torch.add(a, b, alpha=2.5), True),
    "add_complex_alpha": (lambda a, b: torch.add(a, b, alpha=2.5 - 1j), True),
    "sub": (lambda a, b: a - b, True),
    "mul": (lambda a, b: a * b, True),
    "mul_real": (lambda a, b: a * b.real, True),
    "mul_number": (lambda a, b: a * 2.5, True),
    "mul_complex_number": (lambda a, b: (1 - 2j) * a, True),
    "neg": (lambda a, b: -a, True),
    "square": (lambda a, b: a**2, True),
    "abs": (lambda a, b: a.abs(), False),
    "angle": (lambda a, b: a.angle(), False),
    "conj": (lambda a, b: a.conj().resolve_conj() + 1, True),
    "parts": (lambda a, b: (a * b).real, True),
    "complex": (lambda a, b: torch.complex(a.real + 1, b.imag), True),
    "where": (lambda a, b: torch.where(a.real > 0, a, b), True),
    "eq": (lambda a, b: a == b, True),
    "ne": (lambda a, b: a != b, True),
    "div": (lambda a, b: a / b, False),
    "sgn": (lambda a, b: a.sgn(), False),
    "times_one": (lambda a, b: (a * 1 + b) * 1.0, True),
    "times_ones": (lambda a, b: torch.ones_like(a) * (a * 1), True),
    "plus_zero": (lambda a, b: (a + 0) * 2 + 0.0, True),
    "minus_zero": (lambda a, b: a - 0 - 0.0 * b, True),
    "over_one": (lambda a, b: (a / 1 + b) / 1, False),
    "one_over": (lambda a, b: 1 / a, False),
}
FINITE_ONLY = {
    "exp": lambda a, b: a.exp(),
    "polar": lambda a, b: torch.polar(a.real, b.imag),
    "sum": lambda a, b: (a * b).sum(1),
    "mean": lambda a, b: (a + b).mean(0),
    "chain": lambda a, b: ((a * b + a.conj()) / (b * b + 3)).abs(),
    "rotate": lambda a, b: torch.view_as_real(torch.view_as_complex(torch.view_as_real(a)) * b),
    "gather": lambda a, b: (a * b)[:, torch.tensor([2, 0, 2])] * a[:, :3],
    "cat": lambda a, b: torch.cat([a * b, a]).flip(0) + 1,
    "cat_real": lambda a, b: torch.cat([a.real * 2, a * b, (b.imag > 0), b.real.double()]),
    "stack_real": lambda a, b: torch.stack([a * b, b.imag + 1], -1) * a[..., None],
    "cast": lambda a, b: (a * b).to(torch.complex128) + b.real,
    "expanded": lambda a, b: ((a * b)[:1].expand(17, 29) + 1, (a * b)[:, :1].expand(17, 29)),
    "reshaped": lambda a, b: (a[:, None] * b[:1, None]).mT.reshape(-1) + 1,
    "solve": lambda a, b: torch.linalg.solve(a[:, :17] + 9 * torch.eye(17), -b) + 1,
    "outer": lambda a, b: a[:, None] * b[None, :, 0, None],
    "fft": lambda a, b: (torch.fft.fft(a * b) * 2).abs(),
    "product": lambda a, b: (a * 2) @ (b + 1).mT,
    "reals": lambda a, b: a.real**2 + (a * b).imag ** 2,
    "twice": lambda a, b: (a * b, (a * b).real, a * b + 1),
}


def pairs(dtype):
    torch.manual_seed(0)
    return torch.randn(17, 29, dtype=dtype), torch.randn(17, 29, dtype=dtype)


def special(dtype):
    """Every two numbers of special parts, as many as eager multiplies in vectors."""
    numbers = [complex(x, y) for x, y in itertools.product(SPECIAL, repeat=2)]
    both = torch.tensor(list(itertools.product(numbers, repeat=2)), dtype=dtype)
    return both[:6560, 0].contiguous(), both[:6560, 1].contiguous()


def bits(t):
    """NaN are alike."""
    t = torch.view_as_real(t.resolve_conj()) if t.is_complex() else t
    return torch.where(t.isnan(), torch.nan, t).signbit(), t


def both(f, *tensors, dynamic=None):
    oxyfuel.reset()
    compiled = oxyfuel.compile(f, fullgraph=True, dynamic=dynamic)
    with torch.no_grad():
        return f(*tensors), compiled(*tensors)


def assert_same_layout(found, expected):
    for f, e in zip(*[x if isinstance(x, tuple) else (x,) for x in (found, expected)], strict=True):
        assert (f.dtype, f.shape, f.stride()) == (e.dtype, e.shape, e.stride())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_special_numbers(name, dtype):
    f, exact = FUNCTIONS[name]
    expected, found = both(f, *special(dtype))
    if exact:
        for e, o in zip(bits(expected), bits(found), strict=True):
            torch.testing.assert_close(o, e, rtol=0, atol=0, equal_nan=True)
        return
    # Eager's quotients overflow elsewhere, by fused multiplications.
    numbers = torch.isfinite(torch.view_as_real(expected) if expected.is_complex() else expected)
    numbers = numbers.all(-1) if expected.is_complex() else numbers
    torch.testing.assert_close(found[numbers], expected[numbers], rtol=1e-5, atol=0)
    if not expected.is_complex():
        torch.testing.assert_close(found, expected, equal_nan=True)


ELEMENTARY = ("exp", "log", "sqrt", "reciprocal", "sin", "cos")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ELEMENTARY)
def test_functions_of_special_numbers(name, dtype):
    most = 89.0 if dtype == torch.complex64 else 710.0
    parts = (*SPECIAL, 0.3, -0.7, 20.0, -50.0, most, -most)
    x = torch.tensor([complex(a, b) for a, b in itertools.product(parts, repeat=2)], dtype=dtype)
    f = getattr(torch, name)
    expected, found = [torch.view_as_real(t) for t in both(lambda x: f(x), x)]
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["exp", "sin", "cos"])
def test_powers_of_e_beside_the_smallest_numbers(name, dtype):
    info = torch.finfo(dtype.to_real())
    least, most = info.tiny * info.eps, 89.0 if dtype == torch.complex64 else 710.0
    small = (least, -least, info.tiny / 3, info.tiny)
    far = [s * k * most for s in (1, -1) for k in (0.9, 1, 1.3, 1.99, 2.1, 3)]
    pairs = itertools.product(*((far, small) if name == "exp" else (small, far)))
    x = torch.tensor([complex(a, b) for a, b in pairs], dtype=dtype)
    expected, found = [torch.view_as_real(t) for t in both(getattr(torch, name), x)]
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=2 * least)


@pytest.mark.parametrize("dtype", DTYPES)
def test_roots_of_the_largest_and_smallest_numbers(dtype):
    info = torch.finfo(dtype.to_real())
    sizes = (info.max, info.max / 3, info.tiny, info.tiny * info.eps, 3 * info.tiny * info.eps)
    parts = (*SPECIAL, *sizes, *(-size for size in sizes))
    x = torch.tensor([complex(a, b) for a, b in itertools.product(parts, repeat=2)], dtype=dtype)
    expected, found = [torch.view_as_real(t) for t in both(torch.sqrt, x)]
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=0, equal_nan=True)


@pytest.mark.parametrize("name", [*ELEMENTARY, "tanh"])
def test_functions(name):
    f = getattr(torch, name)
    for dtype in DTYPES:
        x = torch.randn(50, 33, dtype=dtype)
        expected, found = both(lambda x: f(x * 2) + 1, x)
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("adjoint", [False, True])
def test_results_that_are_lazily_conjugated(left, adjoint):
    """As torch's solve of a factorized matrix from the right is."""
    torch.manual_seed(0)
    a, b = torch.randn(2, 3, 3, dtype=torch.complex64)
    lu, pivots = torch.linalg.lu_factor(a)

    def f(lu, b):
        x = torch.linalg.lu_solve(lu, pivots, b, left=left, adjoint=adjoint)
        return x * 2, x.real + 1

    expected, found = both(f, lu, b)
    torch.testing.assert_close(found, expected)
    gradients = []
    for run in (f, oxyfuel.compile(f)):
        leaves = [t.detach().clone().requires_grad_() for t in (lu, b)]
        sum(o.abs().sum() for o in run(*leaves)).backward()
        gradients.append([t.grad for t in leaves])
    torch.testing.assert_close(gradients[1], gradients[0], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", [*FUNCTIONS, *FINITE_ONLY])
def test_layouts(name, layout, dtype):
    f = FINITE_ONLY.get(name) or FUNCTIONS[name][0]
    a, b = pairs(dtype)
    expected, found = both(f, LAYOUTS[layout](a), b)
    torch.testing.assert_close(found, expected)
    assert_same_layout(found, expected)


@pytest.mark.parametrize("shape", [(), (0, 3), (1, 1), (2, 0, 4), (5, 1, 7)])
@pytest.mark.parametrize("name", ["add", "mul", "div", "abs", "exp", "conj", "where", "mul_real"])
def test_shapes(name, shape):
    f = FINITE_ONLY.get(name) or FUNCTIONS[name][0]
    expected, found = both(f, *torch.randn(2, *shape, dtype=torch.complex64))
    torch.testing.assert_close(found, expected)
    assert_same_layout(found, expected)


@pytest.mark.parametrize("name", ["mul", "div", "abs", "chain", "sum", "rotate", "fft"])
def test_sizes_that_vary(name):
    f = FINITE_ONLY.get(name) or FUNCTIONS[name][0]
    oxyfuel.reset()
    compiled = oxyfuel.compile(f, fullgraph=True, dynamic=True)
    for rows, columns in ((17, 29), (3, 8), (64, 5)):
        a, b = torch.randn(2, rows, columns, dtype=torch.complex64)
        torch.testing.assert_close(compiled(a, b), f(a, b))
    assert oxyfuel.stats()["plans"] == 1


@pytest.mark.parametrize("number", [2, 2.5, True, 1 - 2j])
@pytest.mark.parametrize("of", [torch.float32, torch.float64, torch.int64, torch.bool])
def test_mixed_operands(of, number):
    real = torch.tensor([[0, 1, 2], [3, 4, 5]]).to(of)
    for dtype in DTYPES:
        z = torch.randn(2, 3, dtype=dtype)
        expected, found = both(lambda r, z: (r * z + r - z / (r + 1)) * number, real, z)
        torch.testing.assert_close(found, expected)
        assert_same_layout(found, expected)


def test_writes():
    def f(z, r):
        z.mul_(1 + 2j)
        z.real.add_(r)
        z[1:].imag.copy_(r[1:] * 2)
        return z * z.conj()

    z, r = torch.randn(4, 5, dtype=torch.complex64), torch.randn(4, 5)
    theirs, ours = z.clone(), z.clone()
    expected = f(theirs, r)
    found = oxyfuel.compile(f, fullgraph=True)(ours, r)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("name", ["mul", "div", "abs", "chain", "exp", "where", "fft", "outer"])
@pytest.mark.parametrize("layout", ["contiguous", "transposed", "sliced"])
def test_gradients(name, layout):
    f = FINITE_ONLY.get(name) or FUNCTIONS[name][0]
    compiled = oxyfuel.compile(f, fullgraph=True)
    gradients = []
    for run in (f, compiled):
        a, b = [t.requires_grad_() for t in pairs(torch.complex64)]
        out = run(LAYOUTS[layout](a), b)
        out.backward(torch.ones_like(out).cumsum(-1))
        gradients.append([t.grad for t in (a, b)])
    for found, expected in zip(gradients[1], gradients[0], strict=True):
        if expected is None:
            assert found is None
        else:
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_one_kernel():
    a, b = pairs(torch.complex64)
    both(lambda a, b: ((a * b + a.conj()) / (b + 3)).abs(), a, b)
    stats = oxyfuel.stats()
    assert stats["kernels"] == 1 and stats["extern_calls"] == 0
