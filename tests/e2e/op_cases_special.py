"""More calls of ATen ops for op_cases.py: special functions, losses."""

from __future__ import annotations

import math

import torch
from op_cases import BF16, F16, F32, F64, FLOATS, case, ints, layouts, randn

ODD = [math.nan, math.inf, -math.inf, 0.0, -0.0, 1e30, -1e30, 0.5, 1.0, -1.0]


def special_cases() -> None:
    for dtype in FLOATS:
        x, y = randn(97, dtype=dtype), randn(97, dtype=dtype)
        odd = torch.tensor(ODD).to(dtype)
        pairs = odd.repeat_interleave(len(ODD)), odd.repeat(len(ODD))
        for name in ("sinc", "special_entr", "isposinf", "isneginf", "angle", "deg2rad", "rad2deg"):
            case(f"{name}.default", x)
            case(f"{name}.default", odd)
        for decimals in (0, 1, 3, -1):
            case("round.decimals", x * 10, decimals)
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
        case("special_xlog1py.default", x, x)
        case("special_xlog1py.other_scalar", x, 2)
        case("ldexp.Tensor", randn(9), x)
    case("special_xlog1py.self_scalar", 2.0, randn(9).abs())
    case("nextafter.default", ints(3), ints(3))
    case("celu.default", randn(3), 0.0)
    for x in layouts():
        case("sinc.default", x)
        case("isposinf.default", x)
        case("logaddexp2.default", x, x)


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
        case("nll_loss2d_forward.default", image, ints(2, 3, 4, low=0, high=7), weight, reduction, 2)
    for dtype in (BF16, F16):
        case("nll_loss_forward.default", randn(6, 7, dtype=dtype), ignoring, None, 0, -100)
    case("nll_loss_forward.default", randn(6, 7), ints(5, low=0, high=7), None, 0, -100)


FAMILIES = (special_cases, loss_cases)
