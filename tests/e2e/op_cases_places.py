"""More calls of ATen ops for op_cases.py: writes and reads at computed places, running extremes,
divisors."""

from __future__ import annotations

import math

import torch
from op_cases import BF16, F32, F64, FLOATS, case, ints, randn


def scatter_cases() -> None:
    for dtype in (F32, F64, BF16, torch.int64, torch.uint8, torch.bool):
        x, source = ints(4, 6, low=0, dtype=dtype), ints(4, 6, low=0, dtype=dtype)
        index = ints(3, 4, low=0, high=4)
        for y in (x, ints(6, 4, low=0, dtype=dtype).t()):
            for dim in (0, -1):
                case("scatter.src", y, dim, index, source)
                case("scatter.value", y, dim, index, 1)
                if dtype not in (BF16, torch.bool):
                    case("scatter_add.default", y, dim, index, source)
                    case("scatter.reduce", y, dim, index, source, "multiply")
                    case("scatter.value_reduce", y, dim, index, 2, "add")
                if dtype != torch.bool:
                    for reduce in ("amax", "amin"):
                        case("scatter_reduce.two", y, dim, index, source, reduce, True)
            rows, some = torch.tensor([3, 0, 3]), ints(3, 6, low=0, dtype=dtype)
            case("index_copy.default", y, 0, rows, some)
            case("index_fill.int_Scalar", y, 1, rows - 4, 1)
            case("index_fill.int_Tensor", y, 1, rows, some[0, 0])
            case("index_put.default", y, [rows, None], some, False)
            case("index_put.default", y, [None, rows], some[:, :1].t(), False)
            case("index_put.default", y, [rows[:, None], rows], some[0, 0], False)
            case("index_put.default", y, [rows, None, None], some, False)
            if dtype != torch.bool:
                case("index_add.default", y, 0, rows, some)
                case("index_put.default", y, [rows, rows], some[:, 0], True)
                case("index_reduce.default", y, 0, rows, some, "amax", True)
        if dtype not in (torch.bool, BF16):
            case("index_add.default", x, 0, rows.int(), some, alpha_of(dtype))
        case("scatter.src", x, 0, index, source[:2])
        case("scatter.src", x, 2, index, source)
        case("index_add.default", x, 0, rows, some[:2])
        case("index_copy.default", x, 0, rows.int(), some)
    indices = ints(2, 5, low=0, high=4)
    case("embedding_dense_backward.default", randn(2, 5, 3), indices, 4, -1, False)
    case("embedding_dense_backward.default", randn(2, 5, 3), indices, 4, 2, False)


def alpha_of(dtype):
    return 2.5 if dtype.is_floating_point else 3


def sampling_cases() -> None:
    for dtype in (F32, F64, BF16):
        for corners in (False, True):
            image = randn(2, 3, 5, 6, dtype=dtype)
            case("upsample_linear1d.default", randn(2, 3, 5, dtype=dtype), [9], corners)
            names = ["upsample_bilinear2d.default", "upsample_bicubic2d.default"]
            for name in names if dtype != F32 else names[:1]:  # eager rounds cubic weights at will
                for size in ([10, 12], [3, 6], [1, 9]):
                    case(name, image, size, corners)
                case(name, image, [8, 10], corners, 1.7, 1.7)
            cube = randn(1, 2, 3, 4, 5, dtype=dtype)
            case("upsample_trilinear3d.default", cube, [6, 3, 7], corners)
            endless = image.clone()
            endless[0, 1, 2, 3], endless[1, 2, 1] = float("inf"), float("nan")
            for size in ([5, 12], [5, 6], [9, 6]):  # a dimension keeps its size
                case("upsample_bilinear2d.default", endless, size, corners)
            if dtype == BF16:
                continue
            grid, solid = randn(2, 4, 3, 2, dtype=dtype), randn(1, 2, 3, 4, 3, dtype=dtype)
            for outside in (0, 1, 2):
                for mode in (0, 1, 2):
                    case("grid_sampler_2d.default", image, grid, mode, outside, corners)
                for mode in (0, 1):
                    case("grid_sampler_3d.default", cube, solid, mode, outside, corners)
        case("_adaptive_avg_pool2d.default", randn(2, 3, 9, 8, dtype=dtype), [4, 3])
        case("adaptive_max_pool2d.default", randn(2, 3, 9, 8, dtype=dtype), [4, 3])
        case("adaptive_max_pool3d.default", randn(2, 3, 5, 6, 4, dtype=dtype), [3, 2, 3])


def running_cases() -> None:
    for dtype in FLOATS:
        x = randn(3, 6, 5, dtype=dtype)
        for dim in (0, 1, -1):
            case("logcumsumexp.default", x, dim)
            case("sort.default", x, dim, True)
            case("sort.stable", x[:, ::2, :1], True, dim)
        case("_logcumsumexp.default", x.transpose(0, 2), 1)
        case("erfinv.default", randn(20, dtype=dtype, scale=0.3))
        case("digamma.default", randn(20, dtype=dtype))
        case("polygamma.default", 0, randn(20, dtype=dtype).abs())
    ends = torch.tensor([1.0, -1.0, 1.5, math.nan, 0.0])
    case("erfinv.default", ends)
    case("digamma.default", torch.tensor([0.0, -0.0, -1.0, -2.0, math.inf, math.nan]))
    for dtype in (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8):
        x, y = ints(50, dtype=dtype), ints(50, dtype=dtype)
        case("gcd.default", x, y)
        case("lcm.default", x, y)
    case("gcd.default", randn(3), randn(3))


FAMILIES = (scatter_cases, sampling_cases, running_cases)
