"""Sorting of few elements and places in few boundaries: counts in kernels, with eager's order of
what is equal, NaN and both zeros."""

import math

import pytest
import torch

import oxyfuel

DTYPES = (
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int64,
    torch.int32,
    torch.uint8,
    torch.bool,
)
SPECIAL = torch.tensor([0.0, -0.0, 1.0, math.nan, -math.inf, math.inf, -1.0, 1.0])


def numbers(dtype, *shape):
    torch.manual_seed(0)
    if dtype == torch.bool:
        return torch.rand(shape) > 0.5
    if not dtype.is_floating_point:
        return torch.randint(0, 9, shape).to(dtype)
    few = SPECIAL[torch.randint(0, len(SPECIAL), shape)]
    return torch.where(torch.rand(shape) > 0.3, few, torch.randn(shape)).to(dtype)


def check(f, *tensors, kernels=True, signs=True):
    oxyfuel.reset()
    with torch.no_grad():
        expected, found = f(*tensors), oxyfuel.compile(f, fullgraph=True)(*tensors)
    torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)
    single = isinstance(found, torch.Tensor)
    for o, e in [(found, expected)] if single else zip(found, expected, strict=True):
        assert (o.dtype, o.stride()) == (e.dtype, e.stride())
        if signs and o.dtype.is_floating_point:
            assert torch.equal(o.signbit() | o.isnan(), e.signbit() | e.isnan())
    if kernels:
        assert oxyfuel.stats()["extern_calls"] == 0


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [2, 3, 8, 16])
def test_sort(size, dtype, descending):
    f = lambda x: x.sort(dim=-1, descending=descending)  # noqa: E731
    check(f, numbers(dtype, 50, size), kernels=dtype != torch.bool)


@pytest.mark.parametrize("size", [1, 17, 32, 33, 100])
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bfloat16])
def test_stable_sort(size, dtype):
    f = lambda x: x.sort(dim=1, descending=True, stable=True)  # noqa: E731
    check(f, numbers(dtype, 20, size, 3), kernels=17 <= size <= 32)


@pytest.mark.parametrize(
    "lay",
    [
        lambda x: x.transpose(0, 2),
        lambda x: x[:, ::2],
        lambda x: x[..., 1:],
        lambda x: x[:1].expand(4, -1, -1),
        lambda x: x[:0],
        lambda x: x[0, 0, 0],
    ],
)
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_layouts(lay, dim):
    x = lay(numbers(torch.float32, 5, 8, 9))
    dim = min(dim, x.dim() - 1) if x.dim() else 0
    check(lambda x: torch.sort(x, dim), x, kernels=False)
    check(lambda x: x.argsort(dim), x, kernels=False)


def test_sorted_in_a_chain():
    def f(x, w):
        values, places = (x * 2).relu().sort(-1, descending=True)
        return values[:, :2] / 4, w[places[:, :2]]

    torch.manual_seed(0)
    check(f, torch.randn(300, 8), torch.randn(8, 16), kernels=False)


def test_gradients_of_sort():
    f = lambda x: (x.sort(0)[0] * torch.arange(6.0)[:, None]).sum()  # noqa: E731
    results = []
    for run in (f, oxyfuel.compile(f, fullgraph=True)):
        torch.manual_seed(0)
        x = torch.randn(6, 10, requires_grad=True)
        run(x).backward()
        results.append(x.grad)
    torch.testing.assert_close(results[1], results[0])


@pytest.mark.parametrize("right", [False, True])
@pytest.mark.parametrize("int32", [False, True])
@pytest.mark.parametrize("count", [0, 1, 7, 64, 65])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64])
def test_bucketize(dtype, count, int32, right):
    boundaries = torch.arange(count).to(dtype) - 3
    x = numbers(dtype, 40, 11)
    f = lambda x, b: torch.bucketize(x, b, out_int32=int32, right=right)  # noqa: E731
    check(f, x, boundaries, kernels=1 <= count <= 64)
    check(f, x.t(), boundaries, kernels=False)


@pytest.mark.parametrize("side", [None, "left", "right"])
@pytest.mark.parametrize("rows", [(), (3,), (2, 3)])
def test_searchsorted(rows, side):
    sequence = numbers(torch.float32, *rows, 12).nan_to_num().sort(-1)[0]
    x = numbers(torch.float32, *rows, 5)
    f = lambda s, x: torch.searchsorted(s, x, side=side)  # noqa: E731
    check(f, sequence, x)
    check(lambda s, x: torch.searchsorted(s, x, right=True) + 1, sequence, x)
    sorter = torch.argsort(sequence.flip(-1), -1)
    check(lambda s, x: torch.searchsorted(s.flip(-1), x, sorter=sorter), sequence, x, kernels=False)


def test_sizes_that_vary():
    f = lambda x, b: (x.sort(-1)[0], torch.bucketize(x, b))  # noqa: E731
    oxyfuel.reset()
    compiled = oxyfuel.compile(f, fullgraph=True, dynamic=True)
    for rows, columns, count in ((3, 4, 5), (7, 12, 3), (2, 40, 90), (5, 16, 64)):
        x, b = torch.randn(rows, columns), torch.randn(count).sort()[0]
        torch.testing.assert_close(compiled(x, b), f(x, b))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [2, 3, 9, 17, 32, 33])
def test_selections_by_rank(size, dtype):
    """Of zeros of both signs, which are equal, either is the k-th."""
    x = numbers(dtype, 40, size)
    kernels = size <= 32
    if dtype != torch.bool:
        check(lambda x: x.median(-1).values, x, kernels=kernels, signs=False)
        check(lambda x: x.t().median(0, keepdim=True)[0], x, kernels=kernels, signs=False)
        for k in (1, size // 2 + 1, size):
            check(lambda x: x.kthvalue(k, 1)[0], x, kernels=kernels, signs=False)  # noqa: B023
        check(lambda x: x.median(-1), x, kernels=False)
        check(lambda x: x.kthvalue(2, 0, keepdim=True), x[:5], kernels=False)


@pytest.mark.parametrize("size", [17, 33, 64, 65])
@pytest.mark.parametrize("dtype", [torch.float32, torch.int32, torch.float16])
def test_sorted_values(size, dtype):
    x = torch.randn(30, size).mul(9).to(dtype)
    for descending in (False, True):
        f = lambda x: x.sort(-1, descending=descending)[0]  # noqa: B023, E731
        check(f, x, kernels=size <= 64)
    if dtype == torch.float32:
        check(lambda x: x.quantile(0.3, -1), x, kernels=size <= 64)
        check(lambda x: x.nanquantile(0.9, 1), x, kernels=False)


def test_gradients_of_selections():
    x = torch.randn(20, 9)
    for f in (
        lambda x: x.median(-1)[0],
        lambda x: x.kthvalue(3, -1)[0],
        lambda x: x.sort(-1)[0] * torch.arange(9.0),
        lambda x: x.quantile(0.4, -1),
    ):
        grads = []
        for g in (f, oxyfuel.compile(f, fullgraph=True)):
            v = x.clone().requires_grad_()
            g(v).square().sum().backward()
            grads.append(v.grad)
        torch.testing.assert_close(grads[1], grads[0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    "bins, low, high", [(1, -1, 1), (10, -2.5, 0.3), (64, -3, 3), (7, 0, 1e-3)]
)
def test_histograms(dtype, bins, low, high):
    x = torch.randn(40, 30, dtype=dtype)
    x[0, :9] = torch.tensor([math.nan, math.inf, -math.inf, low, high, 0.0, -0.0, 1e30, -1e-30])
    f = lambda x: torch.histc(x, bins, low, high)  # noqa: E731
    for v in (x, x.t(), x[:, ::3], x[:0], torch.linspace(low, high, 1000, dtype=dtype)):
        check(f, v)


def test_histograms_of_other_ends():
    """Those of the data, and halves, are the library's."""
    x = torch.randn(100)
    check(lambda x: torch.histc(x, 8), x, kernels=False)
    check(lambda x: torch.histc(x, 8, 1, 1), x, kernels=False)
    check(lambda x: torch.histc(x, 8, -1, 1), x.half(), kernels=False)


def test_every_length():
    for f in (lambda x: x.median(0)[0], lambda x: x.t().median(-1)[0], lambda x: x.histc(5, -1, 1)):
        oxyfuel.reset()
        compiled = oxyfuel.compile(f, fullgraph=True)
        for n in (5, 9, 40, 33):
            x = torch.randn(n, 4)
            torch.testing.assert_close(compiled(x), f(x))
        assert oxyfuel.stats()["recompiles"] == 1
