"""Distances of all pairs of rows in kernels, against eager's."""

import math

import pytest
import torch

import oxyfuel

ORDERS = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, math.inf]
SHAPES = [
    ((30, 3), (20, 3)),
    ((12, 64), (7, 64)),
    ((4, 30, 7), (4, 20, 7)),
    ((3, 1, 20, 5), (2, 22, 5)),
    ((40, 1), (30, 1)),
    ((1, 9), (1, 9)),
]


def points(shape, dtype):
    torch.manual_seed(len(shape))
    return torch.randn(shape).to(dtype)


@pytest.mark.parametrize("p", ORDERS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_distances_and_gradients(p, dtype):
    for first, second in SHAPES:
        a, b = points(first, dtype), points(second, dtype)
        if len(first) == 2:
            b[0] = a[0]  # no distance: no slope
        f = lambda a, b: torch.cdist(a, b, p=p)  # noqa: E731
        oxyfuel.reset()
        results = []
        for g in (f, oxyfuel.compile(f, fullgraph=True)):
            x, y = a.clone().requires_grad_(), b.clone().requires_grad_()
            out = g(x, y)
            (out * torch.linspace(-1, 1, out.shape[-1], dtype=dtype)).sum().backward()
            results.append((out.detach(), x.grad, y.grad))
        # Of no distance a gemm leaves a rounding, whose root is far from 0.
        tolerance = 5e-3 if dtype == torch.float32 else 1e-6
        near = slice(1, None) if len(first) == 2 and first[0] > 1 else slice(None)
        for o, e in zip(results[1], results[0], strict=True):
            assert o.stride() == e.stride()
            torch.testing.assert_close(o[near], e[near], rtol=tolerance, atol=tolerance)
        if dtype == torch.float32 or p != 2.0:  # gradients by gemms of f64
            assert oxyfuel.stats()["extern_calls"] == 0


@pytest.mark.parametrize("mode", ["donot_use_mm_for_euclid_dist", "use_mm_for_euclid_dist"])
def test_who_decides_for_a_gemm(mode):
    for many in (5, 40):
        a, b = points((many, 6), torch.float32), points((many, 6), torch.float32) + 3
        f = lambda a, b: torch.cdist(a, b, compute_mode=mode)  # noqa: E731
        torch.testing.assert_close(oxyfuel.compile(f, fullgraph=True)(a, b), f(a, b))


def test_special_numbers():
    a, b = points((6, 4), torch.float32), points((5, 4), torch.float32)
    a[0, 1], a[1, 2], b[2, 0], a[3] = math.nan, math.inf, -math.inf, b[1]
    for p in ORDERS:
        f = lambda a, b: torch.cdist(a, b, p=p)  # noqa: B023, E731
        oxyfuel.reset()
        torch.testing.assert_close(
            oxyfuel.compile(f, fullgraph=True)(a, b), f(a, b), equal_nan=True
        )


def test_no_points_and_no_coordinates():
    for first, second in (
        ((0, 3), (5, 3)),
        ((4, 3), (0, 3)),
        ((4, 0), (5, 0)),
        ((0, 2, 3), (5, 3)),
    ):
        a, b = torch.zeros(first), torch.zeros(second)
        for p in (1.0, 2.0, math.inf):
            f = lambda a, b: torch.cdist(a, b, p=p)  # noqa: B023, E731
            oxyfuel.reset()
            torch.testing.assert_close(oxyfuel.compile(f, fullgraph=True)(a, b), f(a, b))


def test_every_number_of_points():
    functions = (
        lambda a, b: torch.cdist(a, b, p=1.0),
        lambda a, b: torch.cdist(a, b, compute_mode="donot_use_mm_for_euclid_dist").sum(),
        lambda a, b: torch.cdist(a, b).argmin(1),
    )
    for f in functions:
        oxyfuel.reset()
        compiled = oxyfuel.compile(f, fullgraph=True)
        for many in (30, 33, 47, 64):
            a, b = points((many, 3), torch.float32), points((2 * many, 3), torch.float32)
            leaf = a.clone().requires_grad_()
            torch.testing.assert_close(compiled(a, b), f(a, b))
            if f(a, b).is_floating_point():
                compiled(leaf, b).sum().backward()
        assert oxyfuel.stats()["recompiles"] <= 3  # sizes that vary, and gradients
