"""Upsampling, grid_sample, adaptive pooling, running extremes and draws of distributions, compiled,
against eager."""

from __future__ import annotations

import math
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from test_loop_rules import FLOATS, check, layouts

import oxyfuel

MODES = (("linear", 1), ("bilinear", 2), ("bicubic", 2), ("trilinear", 3))


@pytest.mark.parametrize("mode,dims", MODES)
@pytest.mark.parametrize("corners", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_upsample(mode, dims, corners, dtype):
    tolerance = 2e-5 if dtype != torch.float64 else 1e-12
    for x in layouts(torch.randn(2, 3, *(7, 5, 6)[:dims]).to(dtype)):
        for size in ((14, 10, 12), (7, 2, 3), (3, 9, 1), (21, 10, 51)):
            check(
                lambda a, s=size[:dims]: F.interpolate(a, s, mode=mode, align_corners=corners),
                x,
                tolerance=tolerance,
            )
    for factor, again in ((2.0, None), (1.7, None), (1.7, True), (0.6, None)):
        check(
            lambda a, f=factor, r=again: F.interpolate(
                a, scale_factor=f, mode=mode, align_corners=corners, recompute_scale_factor=r
            ),
            x,
            tolerance=tolerance,
        )


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize("vectors", [32, None])
def test_widths_of_upsampled_rows(mode, vectors):
    """Rows narrower than a vector and longer, with and without a rest, read near to each other or
    not."""
    options = {} if vectors is None else {"vector_bytes": vectors}
    widths = (
        (5, 40),
        (9, 19),
        (14, 56),
        (16, 32),
        (17, 35),
        (33, 66),
        (60, 57),
        (60, 131),
        (130, 60),
    )
    for dtype in (torch.float32, torch.bfloat16):
        for columns, wanted in widths:
            x = torch.randn(2, 2, 7, columns).to(dtype)
            for corners in (False, True):
                check(
                    lambda a, c=corners, w=wanted: F.interpolate(
                        a, (19, w), mode=mode, align_corners=c
                    ),
                    x,
                    tolerance=2e-5,
                    **options,
                )


@pytest.mark.parametrize("mode, dims", MODES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_places_on_an_element(mode, dims, dtype):
    """A place that is an element's but for a rounding has eager's neighbours: those that are no
    numbers, times 0, are none."""
    for times in (3, 7, 9):
        x = torch.randn(1, 2, *[2] * (dims - 1), 9, dtype=dtype)
        x[..., 2], x[0, 0, ..., 6] = float("nan"), float("inf")
        f = lambda x: F.interpolate(x, scale_factor=times, mode=mode)  # noqa: B023, E731
        assert torch.equal(oxyfuel.compile(f)(x).isnan(), f(x).isnan())


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.uint8])
def test_nearest(mode, dtype):
    for dims in (1, 2, 3):
        for x in layouts(torch.randint(0, 99, (2, 3, *(7, 5, 6)[:dims])).to(dtype)):
            for size in ((14, 10, 12), (7, 2, 3), (3, 9, 1), (19, 33, 64)):
                check(lambda a, s=size[:dims]: F.interpolate(a, s, mode=mode), x)
            for factor in (1.7, 0.6, 3.0):
                check(lambda a, f=factor: F.interpolate(a, scale_factor=f, mode=mode), x)


def points(*sizes, dtype=torch.float32) -> torch.Tensor:
    grid = torch.randn(*sizes).to(dtype)
    odd = torch.tensor(
        [-1.0, 1.0, 0.0, 2.5, -3.0, 1e10, math.inf, -math.inf, math.nan], dtype=dtype
    )
    grid.view(-1)[: len(odd)] = odd
    return grid


@pytest.mark.parametrize("corners", [False, True])
@pytest.mark.parametrize("outside", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_grid_sample(mode, outside, corners, dtype):
    def f(a, g):
        return F.grid_sample(a, g, mode, outside, corners)

    # Far outside and at no number eager's own vector and scalar code differ.
    tame = torch.randn(2, 11, 9, 2).to(dtype)
    for x in layouts(torch.randn(2, 2, 8, 6).to(dtype)):
        check(f, x, tame, tolerance=1e-4 if dtype == torch.float32 else 1e-10)
    for x in layouts(torch.randn(2, 5, 8, 6).to(dtype)):  # the library's but for bicubic
        compiled = oxyfuel.compile(f, options={"strict": True})
        torch.testing.assert_close(compiled(x, tame), f(x, tame))
    check(f, torch.randn(1, 1, 1, 4).to(dtype), tame[:1], tolerance=1e-4)
    if mode == "bicubic":
        return
    solid = torch.randn(2, 4, 5, 6, 3).to(dtype)
    check(f, torch.randn(2, 2, 5, 4, 6).to(dtype), solid, tolerance=1e-4)


@pytest.mark.parametrize("outside", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_volumes_at_any_point(mode, outside, channels, dtype):
    """Far outside, at infinity and at no number."""
    torch.manual_seed(0)
    x = torch.randn(2, channels, 5, 4, 6).to(dtype)
    grid = 3 * torch.randn(2, 4, 5, 7, 3).to(dtype)
    grid[1, 1:] *= 100
    for k, v in enumerate((math.nan, math.inf, -math.inf, 1e20, -7e9, 1e5)):
        grid.view(-1)[k::41] = v
    for corners in (False, True):
        f = lambda a, g, c=corners: F.grid_sample(a, g, mode, outside, c)
        check(f, x, grid, tolerance=1e-3, loops=False)


def test_grid_sample_reads_inside():
    for mode in ("bilinear", "nearest", "bicubic"):
        for outside in ("zeros", "border", "reflection"):
            grid = points(1, 30, 40, 2)
            x = torch.ones(1, 2, 5, 5)
            oxyfuel.reset()
            got = oxyfuel.compile(F.grid_sample)(x, grid, mode, outside, False)
            assert got.shape == (1, 2, 30, 40)


@pytest.mark.parametrize("dtype", FLOATS)
def test_adaptive_pooling(dtype):
    tolerance = 4 * torch.finfo(dtype).eps
    for x in layouts(torch.randn(2, 3, 11, 10).to(dtype)):
        for size in ((7, 7), (4, 3), (11, 5), (13, 20)):
            check(lambda a, s=size: F.adaptive_avg_pool2d(a, s), x, tolerance=tolerance)
            check(lambda a, s=size: F.adaptive_max_pool2d(a, s, return_indices=True), x)
    x = torch.randn(2, 3, 5, 7, 6).to(dtype)
    if dtype != torch.float16:
        check(lambda a: F.adaptive_avg_pool3d(a, (3, 4, 4)), x, tolerance=tolerance)
        check(lambda a: F.adaptive_max_pool3d(a, (3, 4, 4), return_indices=True), x)
    nan = torch.full((1, 2, 5, 5), math.nan, dtype=dtype)
    check(lambda a: F.adaptive_max_pool2d(a, (3, 3), return_indices=True), nan)


@pytest.mark.parametrize("dtype", [*FLOATS, torch.int64, torch.int32, torch.uint8, torch.bool])
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_running_extremes(dtype, dim):
    x = torch.randint(-3, 4, (9, 17, 12)).to(dtype)
    if dtype.is_floating_point:
        x[2, 3, 4] = math.nan
        x[1, 5, :6] = -math.inf
        x[3, 5, :6] = math.inf
    for y in layouts(x):
        check(lambda a: tuple(torch.cummax(a, dim)), y)
        check(lambda a: tuple(torch.cummin(a, dim)), y)
        check(lambda a: torch.cummax(a, dim)[0], y)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_logcumsumexp(dtype, dim):
    x = torch.randn(9, 17, 12)
    x[0, :4] = -math.inf
    x[3, 3, 3] = math.inf
    x[4, 4, 4] = math.nan
    for y in layouts(x.to(dtype)):
        check(lambda a: torch.logcumsumexp(a, dim), y)


@pytest.mark.parametrize("dtype", [*FLOATS, torch.int64, torch.int32, torch.uint8, torch.bool])
def test_reductions_made_of_others(dtype):
    x = torch.randint(-3, 4, (9, 17, 12)).to(dtype)
    if dtype.is_floating_point:
        x[2, 3, 4] = math.nan
    for y in layouts(x):
        for dim in (None, 0, 2, (0, 2)):
            check(lambda a, d=dim: torch.count_nonzero(a, d), y)
            if dtype != torch.bool:
                check(lambda a, d=dim: torch.nansum(a, d), y)
            if dtype.is_floating_point:
                check(lambda a, d=dim: torch.nanmean(a, d), y)
        check(lambda a: tuple(torch.aminmax(a)), y)
        check(lambda a: tuple(torch.aminmax(a, dim=1, keepdim=True)), y)


@pytest.mark.parametrize("dtype", FLOATS)
def test_special_functions(dtype):
    line = torch.linspace(-1, 1, 201, dtype=torch.float64)
    odd = torch.tensor([math.nan, math.inf, -math.inf, 0.0, -0.0, 2.0, -2.0], dtype=torch.float64)
    for y in (torch.cat((line, odd)), line.view(3, 67).t()):
        tolerance = max(4 * torch.finfo(dtype).eps, 1e-9)
        check(torch.erfinv, y.to(dtype), tolerance=tolerance)
        check(torch.digamma, (y * 7).to(dtype), tolerance=max(tolerance, 2e-6))


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8])
def test_divisors(dtype):
    for x in layouts(torch.randint(-90, 90, (20, 33)).to(dtype)):
        y = x.flip(0)
        check(torch.gcd, x, y)
        check(torch.lcm, x // 8, y // 8)
        check(torch.lcm, x, y)  # beyond int8
        check(lambda a, b: torch.gcd(a, b[0]), x, y)


@pytest.mark.parametrize("dtype", [*FLOATS, torch.int64, torch.uint8])
def test_circular_padding(dtype):
    for x in layouts(torch.randint(0, 9, (2, 3, 6, 20)).to(dtype)):
        for pad in ((1, 1, 1, 1), (3, 0, 0, 2), (0, 0, 2, 1), (20, 20, 6, 6), (5, 4, 0, 0)):
            check(lambda a, p=pad: F.pad(a, p, mode="circular") + 1, x)
    x = torch.randint(0, 9, (3, 6, 20)).to(dtype)
    check(lambda a: F.pad(a, (2, 3), mode="circular"), x)
    check(lambda a: F.pad(a, (2, 3), mode="circular"), x[0])
    check(lambda a: F.pad(a[None], (2, 3, 1, 0, 1, 2), mode="circular"), x[None])
    with pytest.raises(RuntimeError, match="wrapping around"):
        oxyfuel.compile(F.pad)(x, (21, 0), mode="circular")


def test_slices_that_are_no_circular_padding():
    def f(x, y):
        z = torch.zeros(4, 8)
        z[:, 2:6] = x
        z[:, :2] = z[:, 3:5]
        z[:, 6:] = z[:, 2:4]
        w = torch.full((4, 8), 7.0)
        w[:, 2:6] = y
        w[:, :2] = w[:, 4:6]
        return z, w

    check(f, torch.randn(4, 4), torch.randn(4, 4))


@pytest.mark.parametrize(
    "draw",
    [
        torch._standard_gamma,
        torch.poisson,
        lambda a: torch.poisson(a.bfloat16()),
        torch._sample_dirichlet,
        lambda a: torch.binomial(a.round(), a / 2),
        lambda a: torch._standard_gamma_grad(a, a),
        lambda a: torch.distributions.Gamma(a, a).rsample(),
    ],
)
def test_draws_of_distributions_in_every_layout(draw):
    for x in layouts(torch.rand(2, 3, 4, 5) + 0.5):
        results = []
        for f in (draw, oxyfuel.compile(draw, options={"strict": True})):
            torch.manual_seed(0)
            results.append((f(x), torch.get_rng_state()))
        assert torch.equal(results[0][0], results[1][0])
        assert results[0][0].stride() == results[1][0].stride()
        assert torch.equal(results[0][1], results[1][1])


RESIZED = {
    1: ("nearest", "nearest-exact", "linear"),
    2: ("nearest", "nearest-exact", "bilinear", "bicubic"),
    3: ("nearest", "nearest-exact", "trilinear"),
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("by", [{"size": 6}, {"scale_factor": 1.5}], ids=str)
@pytest.mark.parametrize(("rank", "mode"), [(r, m) for r, modes in RESIZED.items() for m in modes])
def test_no_images_are_resized(rank, mode, by, dynamic):
    f = partial(F.interpolate, mode=mode, **by)
    compiled = oxyfuel.compile(lambda x: f(x), fullgraph=True, dynamic=dynamic)
    rows = torch.rand(0, 3, *(4, 5, 6)[:rank])
    for x in (rows, rows.transpose(1, -1).contiguous().transpose(1, -1)):
        x = x.detach().requires_grad_()
        expected, got = f(x), compiled(x)
        assert (got.shape, got.stride()) == (expected.shape, expected.stride())
        for r in (expected, got):
            (gradient,) = torch.autograd.grad(r.sum(), x)
            assert gradient.shape == x.shape
