"""Convolutions in bfloat16 and float16 where the library has no kernels for them: in f32, no
farther from convolutions in f64 than eager's."""

import pytest
import torch
import torch.nn.functional as F

import oxyfuel

pytestmark = pytest.mark.usefixtures("fresh")

DTYPES = [torch.bfloat16, torch.float16]
R = torch.randn
CASES = {
    "plain": (lambda x, w, b: F.conv2d(x, w, b, padding=1), R(2, 16, 9, 7), R(24, 16, 3, 3), 24),
    "point": (lambda x, w, b: F.conv2d(x, w, b).relu(), R(2, 32, 6, 6), R(8, 32, 1, 1), 8),
    "strided": (lambda x, w, b: F.conv2d(x, w, b, 2, 3), R(1, 3, 20, 20), R(16, 3, 7, 7), 16),
    "dilated": (lambda x, w, b: F.conv2d(x, w, b, 1, 2, 2), R(2, 8, 9, 9), R(8, 8, 3, 3), 8),
    "grouped": (lambda x, w, b: F.conv2d(x, w, b, groups=4), R(2, 8, 9, 9), R(16, 2, 3, 3), 16),
    "depthwise": (lambda x, w, b: F.conv2d(x, w, b, groups=8), R(2, 8, 9, 9), R(8, 1, 3, 3), 8),
    "one channel": (lambda x, w, b: F.conv2d(x, w, b), R(2, 1, 9, 9), R(4, 1, 3, 3), 4),
    "one pixel": (lambda x, w, b: F.conv2d(x, w, b), R(2, 1, 1, 1), R(4, 1, 1, 1), 4),
    "no batch": (lambda x, w, b: F.conv2d(x, w, b), R(8, 9, 9), R(4, 8, 3, 3), 4),
    "line": (lambda x, w, b: F.conv1d(x, w, b, padding=1), R(2, 8, 50), R(16, 8, 3), 16),
    "volume": (lambda x, w, b: F.conv3d(x, w, b), R(1, 4, 5, 6, 7), R(8, 4, 3, 3, 3), 8),
    "transposed": (
        lambda x, w, b: F.conv_transpose2d(x, w, b, 2, 1, 1),
        R(2, 8, 6, 6),
        R(8, 12, 3, 3),
        12,
    ),
}


def check(got, expected, exact):
    assert got.dtype == expected.dtype and got.stride() == expected.stride()
    off = [(x.double() - exact).abs() for x in (got, expected)]
    assert float(off[0].mean()) <= 1.05 * float(off[1].mean()) + 1e-9
    assert float(off[0].max()) <= 1.5 * float(off[1].max()) + 1e-9


LAYOUTS = [(name, False) for name in CASES]
LAYOUTS += [(name, True) for name, (_, x, _, _) in CASES.items() if x.dim() == 4]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("name", "last"), LAYOUTS)
def test_convolutions_in_f32(name, dtype, last):
    function, x, w, channels = CASES[name]
    given = [t.to(dtype) for t in (x, w / 4, torch.linspace(-1, 1, channels))]
    if last:
        given[0] = given[0].contiguous(memory_format=torch.channels_last)
    compiled = oxyfuel.compile(function, options={"machine": "plain, avx2"})
    results = []
    for f, cast in (
        (compiled, torch.clone),
        (function, torch.clone),
        (function, torch.Tensor.double),
    ):
        leaves = [cast(t).requires_grad_() for t in given]
        out = f(*leaves)
        with torch.no_grad():
            seed = torch.linspace(-1, 1, out.numel()).view(out.shape).to(dtype).to(out.dtype)
        out.backward(seed)
        results.append([out.detach(), *(leaf.grad for leaf in leaves)])
    for got, expected, exact in zip(*results, strict=True):
        check(got, expected, exact)
    assert oxyfuel.stats()["fallbacks"] == 0


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_sizes_that_vary(dtype):
    function, _, w, _ = CASES["plain"]
    w, b = w.to(dtype), torch.ones(24, dtype=dtype)
    compiled = oxyfuel.compile(function, options={"machine": "plain, avx2"})
    with torch.no_grad():
        for n in (1, 2, 5, 3, 8):
            x = R(n, 16, 9, 4 + n).to(dtype)
            exact = function(x.double(), w.double(), b.double())
            check(compiled(x, w, b), function(x, w, b), exact)
    assert oxyfuel.stats()["recompiles"] <= 2
