"""More calls of ATen ops for op_cases.py: special functions, losses."""

from __future__ import annotations

import math

import torch
from op_cases import BF16, F16, F32, F64, FLOATS, case, ints, layouts, randn

BESSEL = [
    "i0.default",
    *(f"special_{name}.default" for name in ("i0e", "i1", "i1e", "spherical_bessel_j0", "airy_ai")),
    *(f"special_bessel_{name}.default" for name in ("j0", "j1", "y0", "y1")),
    *(f"special_modified_bessel_{name}.default" for name in ("i0", "i1", "k0", "k1")),
    *(f"special_scaled_modified_bessel_{name}.default" for name in ("k0", "k1")),
]
ERRORS = [f"special_{name}.default" for name in ("erfcx", "log_ndtr", "ndtri")]
CHEBYSHEV = [f"{shift}chebyshev_polynomial_{kind}" for shift in ("", "shifted_") for kind in "tuvw"]
POLYNOMIALS = [
    *CHEBYSHEV,
    *("hermite_polynomial_h", "hermite_polynomial_he"),
    *("laguerre_polynomial_l", "legendre_polynomial_p"),
]
ODD = [math.nan, math.inf, -math.inf, 0.0, -0.0, 1e30, -1e30, 0.5, 1.0, -1.0]


def special_cases() -> None:
    for dtype in FLOATS:
        x, y = randn(97, dtype=dtype), randn(97, dtype=dtype)
        odd = torch.tensor(ODD).to(dtype)
        pairs = odd.repeat_interleave(len(ODD)), odd.repeat(len(ODD))
        for name in ("sinc", "special_entr", "isposinf", "isneginf", "angle", "deg2rad", "rad2deg"):
            case(f"{name}.default", x)
            case(f"{name}.default", odd)
        for name in BESSEL:
            case(name, x * 20)
            case(name, torch.linspace(-12, 12, 401).to(dtype))
            case(name, odd)
        for decimals in (0, 1, 3, -1):
            case("round.decimals", x * 10, decimals)
        for order in (0, 1, 2, 5):
            case("polygamma.default", order, y.abs() + 0.1)
            case(
                "polygamma.default",
                order,
                torch.tensor([math.nan, math.inf, 0.0, -0.0, 30.0, -1.0], dtype=dtype),
            )
        case("special_zeta.default", x.abs() + 1.05, y.abs() + 0.1)
        case("special_zeta.default", *pairs)
        case("special_zeta.other_scalar", x, 2.3)
        case("special_zeta.self_scalar", 3, y * 3)
        case("special_xlog1py.default", x, y.abs())
        case("special_xlog1py.default", *pairs)
        case("logaddexp2.default", x, y)
        case("logaddexp2.default", *pairs)
        case("celu.default", x)
        case("celu.default", x, 0.3)
        case("nextafter.default", x, y)
        case("nextafter.default", *pairs)
    for dtype in (torch.int64, torch.int32, torch.uint8, torch.int8, torch.bool):
        x = ints(9, low=0, high=5, dtype=dtype)
        for name in ("sinc", "special_entr", "isposinf", "isneginf", "angle", "deg2rad"):
            case(f"{name}.default", x)
        for name in BESSEL:
            case(name, x)
        case("polygamma.default", 2, x)
        case("special_zeta.default", x, x)
        case("special_xlog1py.default", x, x)
        case("special_xlog1py.other_scalar", x, 2)
        case("ldexp.Tensor", randn(9), x)
    case("ldexp.Tensor", randn(5), randn(10, 1, 5))
    case("ldexp.Tensor", randn(10, 2, 5), randn(10, 1, 5))
    case("special_xlog1py.self_scalar", 2.0, randn(9).abs())
    case("nextafter.default", ints(3), ints(3))
    case("celu.default", randn(3), 0.0)
    for x in layouts():
        case("sinc.default", x)
        case("special_i1.default", x)
        case("isposinf.default", x)
        case("logaddexp2.default", x, x)


def error_function_cases() -> None:
    for dtype in FLOATS:
        for name in ERRORS:
            case(name, torch.linspace(-8, 40, 401).to(dtype))
            case(name, torch.linspace(0, 1, 301).to(dtype))
            case(name, torch.tensor([*ODD, 1e-7, 1e-14, 1 - 2**-20, -40.0, 2e8]).to(dtype))
    for dtype in (torch.int64, torch.uint8, torch.bool):
        for name in ERRORS:
            case(name, ints(9, low=0, high=3, dtype=dtype))
    for x in layouts():
        case("special_erfcx.default", x)


def polynomial_cases() -> None:
    """Values at NaN are left out: eager's result there was never written."""
    near = [1 - 2**-24, 1 - 2**-23, 1 - 2**-22, 2**-25, 2**-24, 1e-20]
    points = [-1.0, 1.0, 0.0, -0.0, 0.5, 1.5, -2.0, *near, *(-v for v in near)]
    degrees = [-math.inf, math.inf, math.nan, -1.0, -0.5, 0.0, 1.0, 2.5, 3.0, 7.0, 12.0, 1e19]
    for name in (f"special_{p}" for p in POLYNOMIALS):
        for dtype in FLOATS:
            x, n = randn(97, dtype=dtype), ints(97, low=-1, high=9).to(dtype)
            case(f"{name}.default", x, n)
            case(f"{name}.n_scalar", x, 4)
            case(f"{name}.x_scalar", 0.3, n)
            case(f"{name}.default", randn(5, 1, dtype=dtype), ints(4, low=0, high=6).to(dtype))
            pairs = (torch.tensor(v, dtype=F64).to(dtype) for v in (points, degrees))
            x, n = torch.meshgrid(*pairs, indexing="ij")
            case(f"{name}.default", x.contiguous(), n.contiguous())
        case(f"{name}.default", randn(9), ints(9, low=0, high=9))
        case(f"{name}.n_scalar", randn(97, dtype=F64), 9.7)
        case(f"{name}.default", ints(9), ints(9, low=0, high=4, dtype=torch.int32))
        case(f"{name}.n_scalar", ints(9, low=0, high=2, dtype=torch.bool), 3)
    case("special_hermite_polynomial_h.default", randn(8), torch.tensor(129.0))
    case("special_hermite_polynomial_he.default", randn(8, dtype=F64), torch.tensor(513))
    for x in layouts():
        case("special_legendre_polynomial_p.n_scalar", x, 3)


def incomplete_gamma_cases() -> None:
    values = [*ODD, 1e-7, 1.1, 10.0, 20.0, 150.0, 200.0, 5000.0]
    for name in ("igamma.default", "igammac.default"):
        for dtype in FLOATS:
            a, x = (torch.rand(97).to(dtype) * 10 for _ in range(2))
            case(name, a, x)
            case(name, a[:, None][:5], x[:4] / 8)
            case(name, a * 20 + 20, (a * 20 + 20) * (x / 10 + 0.5))
            pairs = torch.tensor(values).to(dtype)
            case(name, pairs.repeat_interleave(len(values)), pairs.repeat(len(values)))
        near = torch.logspace(2.4, 5, 61, dtype=F64)
        for distance in (-4.4, -1.0, 0.0, 1.0, 4.4):
            case(name, near, near + distance * near.sqrt())
        case(name, torch.rand(9), torch.rand(9, dtype=F64))
        case(name, torch.rand(9), torch.tensor(2.0, dtype=F64))
        case(name, ints(9), ints(9))
        for x in layouts():
            case(name, x.abs(), x.abs())


def loss_cases() -> None:
    for reduction in (0, 1, 2):
        for dtype in FLOATS:
            x, y = randn(6, 5, dtype=dtype), randn(6, 5, dtype=dtype)
            if dtype != F16:
                case("mse_loss.default", x, y, reduction)
            case("soft_margin_loss.default", x, y.sign(), reduction)
            for scale in (1.0, 0.4):
                case("smooth_l1_loss.default", x, y, reduction, scale)
                case("huber_loss.default", x, y, reduction, scale)
            case("smooth_l1_loss.default", x, y, reduction, 0.0)
            p = torch.rand(6, 5).to(dtype)
            name = "binary_cross_entropy_with_logits.default"
            case(name, x, p, None, None, reduction)
            case(name, x, p, p[0], p[1] + 1, reduction)
            case("binary_cross_entropy.default", x.sigmoid(), p, None, reduction)
            case("binary_cross_entropy.default", x.sigmoid().t(), p.t(), p[0, :1], reduction)
        case("mse_loss.default", randn(5, 6).t(), randn(6, 1), reduction)
        case("huber_loss.default", randn(5, 6).t(), randn(6, 5), reduction, 1.0)
    case("huber_loss.default", randn(3), randn(3, dtype=BF16), 0, 1.0)
    nll_cases()


def nll_cases() -> None:
    weight = torch.rand(7)
    target = ints(6, low=0, high=7)
    ignoring = torch.tensor([1, -100, 3, 0, -100, 6])
    for reduction in (0, 1, 2):
        for dtype in (F32, F64):
            x = randn(6, 7, dtype=dtype)
            case("nll_loss_forward.default", x, target, None, reduction, -100)
            case("nll_loss_forward.default", x, ignoring, weight.to(dtype), reduction, -100)
            case("nll_loss_forward.default", x, target, None, reduction, 3)
            case("nll_loss_forward.default", x, torch.full((6,), 3), None, reduction, 3)
        case("nll_loss_forward.default", randn(7), torch.tensor(2), weight, reduction, -100)
        case("nll_loss_forward.default", randn(7, 6).t(), target, weight, reduction, -100)
        image = randn(2, 7, 3, 4)
        case("nll_loss2d_forward.default", image, ints(2, 3, 4, low=0, high=7), None, reduction, 2)
        case(
            "nll_loss2d_forward.default", image, ints(2, 3, 4, low=0, high=7), weight, reduction, 2
        )
    for dtype in (BF16, F16):
        case("nll_loss_forward.default", randn(6, 7, dtype=dtype), ignoring, None, 0, -100)
    case("nll_loss_forward.default", randn(6, 7), ints(5, low=0, high=7), None, 0, -100)


def rearrange_cases() -> None:
    every = (F32, BF16, torch.int64, torch.uint8, torch.bool)
    for dtype in every:
        for mode in ("reflection", "replication"):
            line = ints(2, 3, 7, low=0, dtype=dtype)
            case(f"{mode}_pad1d.default", line, [2, 3])
            case(f"{mode}_pad1d.default", line.transpose(1, 2), [0, 2])
            case(f"{mode}_pad2d.default", ints(2, 3, 4, 5, dtype=dtype), [1, 2, 3, 0])
            case(f"{mode}_pad3d.default", ints(1, 2, 3, 4, 5, dtype=dtype), [1, 2, 3, 0, 1, 1])
        case("replication_pad1d.default", ints(2, 3, dtype=dtype), [6, 5])
        case("pixel_shuffle.default", ints(2, 8, 3, 5, dtype=dtype), 2)
        case("pixel_shuffle.default", ints(9, 3, 5, dtype=dtype).transpose(1, 2), 3)
        case("pixel_unshuffle.default", ints(2, 2, 6, 4, dtype=dtype), 2)
        case("channel_shuffle.default", ints(2, 6, 3, 5, dtype=dtype), 3)
        for offset in (-1, 0, 2):
            x, dims = ints(3, 4, 5, dtype=dtype), (2, 0)
            src = ints(*x.diagonal(offset, *dims).shape, dtype=dtype)
            case("diagonal_scatter.default", x, src, offset, *dims)
        case("narrow_copy.default", ints(3, 5, dtype=dtype).t(), 0, 1, 3)
        case("narrow_copy.default", ints(3, 5, dtype=dtype), -1, -2, 2)
        for turns in (-1, 0, 1, 2, 3):
            case("rot90.default", ints(3, 4, 5, dtype=dtype), turns, [0, 2])
            case("rot90.default", ints(3, 4, dtype=dtype).t(), turns, [1, 0])
    for x in (randn(2, 3, 6, 7), randn(3, 6, 7), randn(2, 3, 7, 6, dtype=BF16).transpose(2, 3)):
        case("im2col.default", x, [3, 2], [1, 1], [1, 0], [1, 2])
        case("im2col.default", x, [2, 2], [2, 1], [1, 1], [2, 1])
    for dtype in (F32, F64, BF16, F16):
        x = randn(2, 18, 24, dtype=dtype)
        case("col2im.default", x, [4, 6], [3, 3], [1, 1], [1, 1], [1, 1])
        case("col2im.default", x[0], [13, 8], [3, 2], [2, 1], [1, 0], [2, 2])
        case("col2im.default", x.mT.contiguous().mT, [6, 12], [1, 3], [1, 1], [0, 0], [1, 3])
        case("col2im.default", x[:, :, :6], [3, 8], [2, 3], [1, 2], [0, 1], [1, 2])
    for scale in (2, 3, 5):
        for exact in ("upsample_nearest", "_upsample_nearest_exact"):
            case(f"{exact}1d.default", randn(2, 3, 7), [7 * scale])
            case(f"{exact}2d.default", randn(2, 3, 4, 5), [4 * scale, 5], float(scale), None)
            case(f"{exact}3d.default", randn(1, 2, 3, 4, 5), [3 * scale, 4 * scale, 5 * scale])


def pool_cases() -> None:
    for dtype in (F32, BF16, F64):
        x = randn(2, 3, 9, 8, dtype=dtype)
        for image in (x, x.to(memory_format=torch.channels_last), x[0], x.transpose(2, 3)):
            case("max_pool2d_with_indices.default", image, [3, 3], [2, 2], [1, 1])
            case("max_pool2d_with_indices.default", image, [2, 3], [], [0, 0], [2, 1])
            case("max_pool2d_with_indices.default", image, [3, 2], [2, 2], [1, 1], [1, 1], True)
            case("avg_pool2d.default", image, [3, 3], [2, 2], [1, 1])
            case("avg_pool2d.default", image, [3, 3], [2, 2], [1, 1], False, False)
            case("avg_pool2d.default", image, [3, 2], [2, 3], [1, 1], True, True)
            case("avg_pool2d.default", image, [3, 2], [2, 3], [1, 1], True, False)
            case("avg_pool2d.default", image, [2], [1], [0], False, True, 7)
        case("_adaptive_avg_pool2d.default", x, [3, 4])
        case("_adaptive_avg_pool2d.default", x, [9, 2])
        cube = randn(2, 3, 5, 6, 4, dtype=dtype)
        case("max_pool3d_with_indices.default", cube, [2, 3, 2], [2, 1, 2], [1, 1, 0])
        case("avg_pool3d.default", cube, [2, 3, 2], [2, 1, 2], [1, 1, 0], True, False)
        case("_adaptive_avg_pool3d.default", cube, [5, 3, 2])
    odd = torch.tensor(ODD + [math.nan] * 6 + [-math.inf] * 20).view(1, 4, 9)
    case("max_pool2d_with_indices.default", odd, [3, 3], [1, 2], [1, 1])
    case("max_pool2d_with_indices.default", randn(2, 3, 9, 8), [3, 3], [2, 2], [2, 2])
    case("avg_pool2d.default", randn(2, 3, 9, 8), [3, 3], [2, 2], [2, 2])


def scan_cases() -> None:
    for name in ("cumsum.default", "cumprod.default"):
        for dtype in (*FLOATS, torch.int64, torch.int32, torch.uint8, torch.bool):
            x = ints(3, 6, 5, low=-2, high=3, dtype=dtype)
            for dim in (0, 1, -1):
                case(name, x, dim)
            case(name, x.transpose(0, 2), 1)
            case(name, x[:, ::2], 1)
            case(name, ints(7, low=0, high=3, dtype=dtype), 0, F32)
            case(name, ints(1, 4, low=0, high=3, dtype=dtype), 0)
        case(name, randn(3, 40), 1)
        case(name, randn(3, 0), 1)
        case(name, randn(), 0)
        case(name, randn(3, 4), 1, F64)
        case(name, torch.tensor(ODD), 0)
        case(name, randn(3), 1)


FAMILIES = (
    special_cases,
    error_function_cases,
    polynomial_cases,
    incomplete_gamma_cases,
    loss_cases,
    rearrange_cases,
    pool_cases,
    scan_cases,
)
