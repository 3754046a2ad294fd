"""Calls of ATen ops that exercise the rows of the op table: every family, with layouts, dtypes and
argument forms."""

from __future__ import annotations

import math

import torch

CASES: list[tuple[str, list]] = []


def case(op: str, *args) -> None:
    """One call: `aten.` op with arguments in the order of its schema, keyword-only ones
    included."""
    CASES.append((op if op.startswith("prims.") else f"aten.{op}", list(args)))


def randn(*shape, dtype=torch.float32, scale=2.0):
    return (torch.randn(shape) * scale).to(dtype)


def ints(*shape, low=-9, high=9, dtype=torch.int64):
    return torch.randint(low, high, shape).to(dtype)


def layouts(dtype=torch.float32):
    """The same kind of numbers in the layouts that decide output strides."""
    yield randn(3, 5, dtype=dtype)
    yield randn(5, 3, dtype=dtype).t()
    yield randn(3, 10, dtype=dtype)[:, ::2]
    yield randn(1, 5, dtype=dtype).expand(3, 5)
    yield randn(dtype=dtype)
    yield randn(0, 5, dtype=dtype)
    yield randn(2, 3, 4, dtype=dtype).permute(1, 2, 0)
    yield randn(2, 3, 4, 5, dtype=dtype).to(memory_format=torch.channels_last)
    yield randn(2, 1, 4, 5, dtype=dtype).permute(0, 3, 1, 2)


BF16, F16, F32, F64 = torch.bfloat16, torch.float16, torch.float32, torch.float64
FLOATS = (F32, F64, BF16, F16)


def fake_quantize_cases() -> None:
    for dtype in FLOATS:
        for x in layouts(dtype):
            case("fake_quantize_per_tensor_affine_cachemask.default", x, 0.25, 1, -8, 7)
            scale, zero, on = torch.tensor([0.25]), torch.tensor([1]).int(), torch.ones(1)
            case(
                "_fake_quantize_per_tensor_affine_cachemask_tensor_qparams.default",
                *(x, scale, zero, on, -8, 7),
            )
            if x.numel() and x.dim():
                n = x.shape[0]
                case(
                    "fake_quantize_per_channel_affine_cachemask.default",
                    *(x, torch.full((n,), 0.25), torch.zeros(n).int(), 0, -8, 7),
                )


def unary_cases() -> None:
    anywhere = [
        "abs",
        "neg",
        "sign",
        "sgn",
        "positive",
        "floor",
        "ceil",
        "round",
        "trunc",
        "frac",
        "exp",
        "expm1",
        "exp2",
        "sin",
        "cos",
        "tan",
        "atan",
        "sinh",
        "cosh",
        "tanh",
        "asinh",
        "erf",
        "erfc",
        "sigmoid",
        "silu",
        "relu",
        "relu6",
        "mish",
        "hardswish",
        "hardsigmoid",
        "isnan",
        "isinf",
        "signbit",
        "nan_to_num",
        "logical_not",
        "softplus",
        "elu",
        "leaky_relu",
        "hardtanh",
        "softshrink",
        "hardshrink",
    ]
    positive = ["log", "log2", "log10", "log1p", "sqrt", "rsqrt", "reciprocal", "lgamma"]
    for name in anywhere + positive:
        for dtype in FLOATS:
            x = randn(97, dtype=dtype)
            case(f"{name}.default", x.abs() + 0.01 if name in positive else x)
    for name in ("asin", "acos", "atanh", "logit"):
        for dtype in FLOATS:
            x = torch.rand(97).mul(0.98).add(0.01).to(dtype)
            case(f"{name}.default", x)
    case("acosh.default", torch.rand(50) + 1.01)
    for x in layouts():
        case("exp.default", x)
        case("relu.default", x)
        case("gelu.default", x)
        case("isnan.default", x)
        case("clone.default", x)
        case("clone.default", x, torch.contiguous_format)
        case("_to_copy.default", x, BF16)
        case("_to_copy.default", x, torch.bool)
        case("clamp.default", x, -0.5, 0.5)
        case("pow.Tensor_Scalar", x, 2)
    for approximate in ("none", "tanh"):
        for dtype in FLOATS:
            case("gelu.default", randn(97, dtype=dtype), approximate)
    odd = torch.tensor([math.nan, math.inf, -math.inf, 0.0, -0.0, 1e30, -1e30, 0.5, 1.5, 2.5])
    for name in [
        "relu",
        "abs",
        "sign",
        "round",
        "floor",
        "isnan",
        "isinf",
        "nan_to_num",
        "exp",
        "tanh",
        "sigmoid",
        "silu",
        "signbit",
        "softshrink",
        "hardshrink",
        "hardtanh",
        "leaky_relu",
    ]:
        case(f"{name}.default", odd)
    # Of infinities ATen's gelu makes NaN in vectors of AVX-512, and only there.
    case("gelu.default", odd[~odd.isinf()])
    case("nan_to_num.default", odd, 3.0, 4.0, -4.0)
    for name in (
        "neg",
        "frac",
        "floor",
        "ceil",
        "relu",
        "round",
        "trunc",
        "silu",
        "gelu",
        "mish",
        "hardswish",
        "leaky_relu",
        "hardtanh",
        "sgn",
        "nan_to_num",
        "bitwise_not",
        "softplus",
        "elu",
    ):
        case(f"{name}.default", ints(5) > 0)
        case(f"{name}.default", ints(5))
    for name in ("bitwise_not", "frac"):
        case(f"{name}.default", randn(5))
    for dtype in (torch.int64, torch.int32, torch.uint8, torch.bool):
        x = ints(17, low=0, high=5).to(dtype)
        for name in (
            "exp",
            "sin",
            "sqrt",
            "sigmoid",
            "abs",
            "sign",
            "isnan",
            "logical_not",
            "bitwise_not",
            "relu",
            "floor",
            "reciprocal",
        ):
            if name in ("relu", "floor") and dtype == torch.bool:
                continue
            case(f"{name}.default", x)
        for to in (F32, BF16, torch.int64, torch.bool, torch.uint8):
            case("_to_copy.default", x, to)
    for dtype in FLOATS:
        case("log_sigmoid_forward.default", randn(7, 5, dtype=dtype))
        case("glu.default", randn(7, 6, dtype=dtype))
    for x in layouts():
        case("log_sigmoid_forward.default", x)
        case("glu.default", x, 0)
        case("glu.default", x, -1)
    case("elu.default", randn(50), 0.7, 1.3, 0.9)
    case("softplus.default", randn(50) * 10, 2.0, 5.0)
    case("leaky_relu.default", randn(50), 0.2)
    case("hardtanh.default", randn(50), -0.3, 1.2)
    case("threshold.default", randn(50), 0.1, 7.0)
    case("_prelu_kernel.default", randn(4, 5), randn(1, 5))
    case("prims.convert_element_type.default", randn(3, 4), BF16)
    case("logit.default", torch.rand(30), 0.1)


def binary_cases() -> None:
    for x in layouts():
        for y in layouts():
            if x.dim() in (0, y.dim()) or y.dim() == 0:
                if 0 not in (x.dim(), y.dim()) and x.shape != y.shape:
                    continue
                case("add.Tensor", x, y)
                case("gt.Tensor", x, y)
        case("add.Tensor", x, 1)
        case("mul.Tensor", x, 0.3)
        case("lt.Scalar", x, 0)
    case("add.Tensor", randn(4, 1, 5), randn(3, 1))
    case("mul.Tensor", randn(5, 4).t(), randn(5))
    case("add.Tensor", randn(2, 3, 4, 5).to(memory_format=torch.channels_last), randn(1, 3, 1, 1))
    case("add.Tensor", randn(1, 3, 1, 1), randn(2, 3, 4, 5).to(memory_format=torch.channels_last))
    dtypes = (
        F32,
        F64,
        BF16,
        F16,
        torch.int64,
        torch.int32,
        torch.int16,
        torch.int8,
        torch.uint8,
        torch.bool,
    )
    for a in dtypes:
        for b in dtypes:
            x, y = ints(11, low=0, high=4).to(a), ints(11, low=1, high=5).to(b)
            for op in (
                "add.Tensor",
                "mul.Tensor",
                "div.Tensor",
                "eq.Tensor",
                "maximum.default",
                "atan2.default",
            ):
                case(op, x, y)
            case("add.Tensor", x, y[0])
            case("mul.Tensor", x[0], y)
        for number in (3, 2.5, True):
            x = ints(11, low=0, high=4).to(a)
            for op in ("add.Tensor", "mul.Tensor", "div.Tensor", "eq.Scalar", "pow.Tensor_Scalar"):
                if op.startswith("pow") and (number is True or (a == torch.bool)):
                    continue
                case(op, x, number)
    for dtype in FLOATS:
        x, y = randn(97, dtype=dtype), randn(97, dtype=dtype)
        for op in ["add", "sub", "mul", "div"]:
            case(f"{op}.Tensor", x, y)
            case(f"{op}.Tensor", x, 0.1)
            case(f"{op}.Tensor", x, torch.tensor(0.3))
            case(f"{op}.Scalar", x, 0.7)
        case("add.Tensor", x, y, 0.3)
        case("sub.Tensor", x, y, 0.3)
        case("add.Tensor", x, y, 2)
        case("rsub.Scalar", x, 0.1)
        case("rsub.Tensor", x, y, 0.5)
        for op in (
            "floor_divide.default",
            "remainder.Tensor",
            "fmod.Tensor",
            "maximum.default",
            "minimum.default",
            "fmax.default",
            "fmin.default",
            "atan2.default",
            "copysign.Tensor",
            "hypot.default",
            "heaviside.default",
            "logaddexp.default",
        ):
            case(op, x, y)
        for op in ("remainder.Scalar", "fmod.Scalar", "copysign.Scalar"):
            case(op, x, 0.3)
        case("floor_divide.default", x, 0.3)
        for mode in ("floor", "trunc"):
            case("div.Tensor_mode", x * 20, y, mode)
            case("div.Tensor_mode", x[:1] * 20, y, mode)
        for mode in (None, "floor", "trunc"):
            case("div.Tensor_mode", x, y, mode)
            case("div.Tensor_mode", x, 0.3, mode)
        case("xlogy.Tensor", x, y.abs())
        for n in (0, 1, 2, 3, 4, 0.5, -0.5, -1, -2, 2.5, 1.7):
            case("pow.Tensor_Scalar", x.abs() + 0.1, n)
        case("pow.Tensor_Tensor", x.abs() + 0.1, y)
        case("pow.Scalar", 2.0, y)
        case("pow.Scalar", 2.0, y[:30].reshape(2, 3, 5))
        case("lt.Tensor", x, y)
        case("ge.Scalar", x, 0.1)
    x, y = ints(31), ints(31)
    for op in ("bitwise_and", "bitwise_or", "bitwise_xor"):
        case(f"{op}.Tensor", x, y)
        case(f"{op}.Tensor", x > 0, y > 0)
        case(f"{op}.Scalar", x, 6)
    for op in ("logical_and", "logical_or", "logical_xor"):
        case(f"{op}.default", x, randn(31))
    for n in (3, -3):
        for op in ("floor_divide.default", "remainder.Scalar", "fmod.Scalar"):
            case(op, x, n)
        case("div.Tensor_mode", x, n, "trunc")
        case("div.Tensor_mode", x, n, "floor")
    case("bitwise_left_shift.Tensor", x, ints(31, low=0, high=70))
    case("bitwise_right_shift.Tensor", x, ints(31, low=0, high=70))
    case("bitwise_left_shift.Tensor_Scalar", x.int(), 3)
    for op in ("__lshift__", "__rshift__"):
        case(f"{op}.Tensor", x, x.abs() % 70)
        for of in (x, x.to(torch.int8), x > 0):
            case(f"{op}.Scalar", of, 2)
            case(f"{op}.Scalar", of, True)
    for n in (7, 8, 9, 200):
        case("bitwise_left_shift.Tensor_Scalar", x.to(torch.uint8), n)
        case("bitwise_right_shift.Tensor_Scalar", x.to(torch.uint8), n)
        case("__rshift__.Scalar", x.to(torch.int8), n % 128)
    for n in (0, 1, 2, 3, 5):
        case("pow.Tensor_Scalar", x, n)
    flags, reals = ints(7) > 0, randn(7)
    for op in ("add", "sub", "mul", "div"):
        case(f"{op}.Tensor", flags, flags)
    for op in (
        "bitwise_and.Tensor",
        "bitwise_left_shift.Tensor",
        "lerp.Scalar",
        "addcdiv.default",
        "addcmul.default",
        "hypot.default",
        "logaddexp.default",
        "heaviside.default",
        "fmod.Tensor",
        "remainder.Tensor",
        "pow.Tensor_Tensor",
        "maximum.default",
        "fmax.default",
        "copysign.Tensor",
        "rsub.Tensor",
        "floor_divide.default",
    ):
        more = {"lerp": [0.3], "addcdiv": [], "addcmul": []}.get(op.partition(".")[0], [])
        for a in (flags, ints(7, low=1), reals):
            for b in (torch.ones(7, dtype=torch.bool), ints(7, low=1), reals):
                third = [b] if op.startswith("addc") else []
                case(op, a, b, *third, *more)
    nans = torch.tensor([math.nan, 1.0, -1.0, math.inf])
    for op in ("maximum", "minimum", "fmax", "fmin"):
        case(f"{op}.default", nans, nans.roll(1))


def blend_cases() -> None:
    for x in layouts():
        case("where.self", x > 0, x, torch.tensor(0.5))
        case("where.self", torch.tensor(True), x, torch.zeros_like(x))
        case("masked_fill.Scalar", x, x > 0, -1e9)
        case("masked_fill.Tensor", x, x > 0, torch.tensor(2.0))
    case("masked_fill.Scalar", randn(5), randn(3, 5) > 0, 1)
    case("where.self", randn(3, 1) > 0, randn(3), ints(3, 3))
    for dtype in FLOATS:
        a, b, c = (randn(97, dtype=dtype) for _ in range(3))
        for value in (1, 0.3):
            case("addcmul.default", a, b, c, value)
            case("addcdiv.default", a, b, c, value)
        for w in (0.3, 0.7):
            case("lerp.Scalar", a, b, w)
        case("lerp.Tensor", a, b, torch.rand(97).to(dtype))
        case("clamp.default", a, -0.1, 0.2)
        case("clamp.default", a, None, 0.2)
        case("clamp.default", a, 0.1)
        case("clamp.default", a, 0.5, -0.5)
        case("clamp.Tensor", a, b, c)
        case("clamp_min.default", a, 0.1)
        case("clamp_max.default", a, 0.1)
        case("clamp_min.Tensor", a, b)
        case("clamp_max.Tensor", a, b)
    case("clamp.default", ints(20), 2.5)
    case("clamp.default", ints(20), -2, 2)
    case("addcmul.default", ints(5), ints(5), ints(5), 2)


def view_cases() -> None:
    for x in layouts():
        rank = x.dim()
        case("alias.default", x)
        case("unsqueeze.default", x, 0)
        case("unsqueeze.default", x, -1)
        case("squeeze.default", x)
        case("detach.default", x)
        if rank == 0:
            case("expand.default", x, [3, 1])
            case("view.default", x, [1, 1])
            continue
        case("expand.default", x, [2, *[-1] * rank])
        case("permute.default", x, list(range(rank))[::-1])
        case("transpose.int", x, 0, -1)
        case("slice.Tensor", x, -1, 1, None, 2)
        case("slice.Tensor", x, 0, -2, 100)
        case("slice.Tensor", x, 0, 3, 1)
        case("squeeze.dim", x, 0)
        case("squeeze.dims", x, [0, -1])
        case("flip.default", x, [0, -1] if rank > 1 else [0])
        case("split.Tensor", x, 2, -1)
        case("unbind.int", x, 0)
        case("unfold.default", x, -1, 2, 2)
        if rank > 1:
            case("diagonal.default", x)
            case("diagonal.default", x, 1, 0, -1)
            case("diagonal.default", x, -1)
        if rank == 2:
            case("t.default", x)
        if x.shape[0]:
            case("select.int", x, 0, -1)
            case("select.int", x, -1, 1)
            case("repeat.default", x, [2, *[1] * (rank - 1), 2])
            case("slice_scatter.default", x, torch.zeros_like(x)[1:], 0, 1)
            case("select_scatter.default", x, torch.zeros_like(x)[0], 0, 1)
            case("roll.default", x, [1], [0])
        if x.is_contiguous():
            case("view.default", x, [-1] if x.numel() else [0])
            case("roll.default", x, [3])
        case("copy.default", x, torch.ones(()))
        case("copy.default", x, ints(*x.shape))
        case("zero.default", x)
    x = randn(4, 6, 10)
    case("view.default", x, [2, 2, 6, 5, -1])
    case("view.default", x, [24, 10])
    case("view.default", x, [4, 60])
    case("view.default", x, [3, 8, 10])
    case("view.default", x.transpose(0, 1), [6, 4, 2, 5])
    case("view.default", x[:, :, ::2], [24, 5])
    case("view.default", x[:, ::2], [4, 3, 2, 5])
    case("_unsafe_view.default", x, [24, 10])
    case("reshape.default", x, [6, 4, 10])
    case("view.default", x.unsqueeze(1), [4, 6, 1, 10, 1])
    case("split_with_sizes.default", x, [1, 2, 3], 1)
    case("slice_scatter.default", x, torch.zeros(4, 2, 10), 1, 1, 5, 2)
    case("roll.default", x, [1, -3], [0, 2])
    for dtype in (*FLOATS, torch.int32, torch.uint8):
        a, b = (randn(4, 3, 5).abs().to(dtype) for _ in range(2))
        case("linalg_cross.default", a, b, 1)
        case("linalg_cross.default", a[:3].mT, b[1:].mT, 0)
    case("linalg_cross.default", randn(2, 7, 3), randn(2, 7, 3), -1)
    case("repeat.default", x, [2, 1, 3, 1])
    case("view.dtype", randn(5), torch.int32)
    case("view.dtype", ints(5, dtype=torch.int32), torch.float32)
    case("as_strided.default", x, [3, 2], [1, 7], 5)
    for op, *args in (
        ("view_copy.default", [24, 10]),
        ("t_copy.default",),
        ("expand_copy.default", [2, 5, 3]),
        ("permute_copy.default", [1, 0]),
        ("transpose_copy.int", 0, 1),
        ("slice_copy.Tensor", 0, 1),
        ("select_copy.int", 0, 1),
        ("unsqueeze_copy.default", 0),
        ("squeeze_copy.default",),
        ("alias_copy.default",),
        ("split_copy.Tensor", 2),
        ("unbind_copy.int",),
        ("diagonal_copy.default",),
        ("unfold_copy.default", 0, 2, 1),
    ):
        base = x if op.startswith("view") else randn(3, 5).t()
        case(op, base, *args)


def creation_cases() -> None:
    x = randn(3, 5).t()
    case("full.default", [2, 3], 7)
    case("full.default", [2, 3], 1.5)
    case("full.default", [], True)
    case("full_like.default", ints(3, low=0, dtype=torch.uint8), -9)
    case("full.default", [2], 1, BF16)
    case("zeros.default", [2, 3])
    case("ones.default", [2], torch.int64)
    case("full_like.default", x, 2)
    case("zeros_like.default", x)
    case("ones_like.default", x, torch.bool)
    case("ones_like.default", randn(4, 10)[:, ::2])
    case("new_full.default", x, [2, 2], 3)
    case("new_zeros.default", x, [4])
    case("new_ones.default", x, [4], torch.int32)
    case("scalar_tensor.default", 2.5)
    case("scalar_tensor.default", 2, torch.int64)
    case("fill.Scalar", x, 3)
    case("fill.Tensor", x, torch.tensor(4.0))
    case("arange.default", 7)
    case("arange.default", 3.5)
    case("arange.default", 7, F32)
    case("arange.default", 3.1, torch.int64)
    case("arange.start", 2, 9)
    case("arange.start_step", 2, 9, 3)
    case("arange.start_step", 9, 2, -3)
    case("arange.start_step", 0, 1, 0.1)
    for dtype in (None, *FLOATS):
        for steps in (0, 1, 2, 7, 10):
            case("linspace.default", -1.3, 2.7, steps, dtype)
            case("logspace.default", -1.3, 2.7, steps, 2.0, dtype)
        case("linspace.default", 3, -0.1, 300, dtype)
    for dtype in (torch.int64, torch.int32, torch.int16, torch.int8):
        case("linspace.default", -100, 100.7, 37, dtype)
        case("linspace.default", 1.7, True, 1, dtype)
    case("linspace.default", 5, 250, 19, torch.uint8)
    for start, end, dtype in (
        (0, 300, torch.uint8),
        (0, 127.5, torch.int8),
        (0, 7e4, F16),
        (0, 1, torch.bool),
        (0, math.nan, torch.int64),
        (0, 1e300, F32),
    ):
        case("linspace.default", start, end, 5, dtype)
        case("logspace.default", start, end, 5, 10.0, dtype)
    case("linspace.default", 0, 1, -1)
    case("logspace.default", 0.5, 3, 6)
    case("logspace.default", 0, 3, 6, 10.0, torch.int32)
    case("eye.default", 3)
    case("eye.m", 2, 4)
    for k in (0, 1, -2):
        case("tril.default", randn(2, 4, 5), k)
        case("triu.default", randn(4, 4).t(), k)


def reduction_cases() -> None:
    for x in layouts():
        for dims in ([0], [-1], [], [0, 1]):
            if len(dims) > max(x.dim(), 1):
                continue
            for keep in (False, True):
                case("sum.dim_IntList", x, dims, keep)
                case("mean.dim", x, dims, keep)
                if x.numel():
                    case("amax.default", x, dims, keep)
                    case("amin.default", x, dims, keep)
                    case("var.correction", x, dims or None, 1, keep)
                    case("logsumexp.default", x, dims or [0], keep)
                    case("linalg_vector_norm.default", x, 2, dims or None, keep)
        for op in ("sum", "mean", "any", "all", "prod"):
            case(f"{op}.default", x)
        case("any.dim", x, 0)
        case("all.dim", x, -1, True)
        case("cumsum.default", x, 0)
        if x.numel():
            case("max.default", x)
            case("argmax.default", x)
            case("argmin.default", x, None, True)
            case("argmax.default", x, 0, True)
            case("max.dim", x, -1)
            case("min.dim", x, 0, True)
            case("std_mean.correction", x, None, 0, False)
            case("var_mean.correction", x, [0], 0, True)
    for dtype in (*FLOATS, torch.int64, torch.int32, torch.bool, torch.uint8):
        x = ints(6, 7, low=0, high=5).to(dtype)
        case("sum.default", x)
        case("sum.dim_IntList", x, [1])
        case("amax.default", x, [0])
        case("argmax.default", x, 1)
        case("any.default", x)
        case("all.dim", x, 0)
        case("cumsum.default", x, 1)
        if dtype.is_floating_point:
            y = randn(6, 7, dtype=dtype)
            case("mean.dim", y, [1])
            case("mean.default", y)
            case("std.correction", y, [1])
            case("sum.dim_IntList", y, [1], False, F32)
            for p in (1, 0, 3, math.inf, -math.inf):
                case("linalg_vector_norm.default", y, p, [1])
            case("norm.ScalarOpt_dim", y, 2, [0], True)
            case("logsumexp.default", y, [1])
    case("sum.dim_IntList", randn(6, 7), None, True)
    for name in ("max", "min", "any", "all", "sum"):
        case(f"{name}.default", torch.tensor(5, dtype=torch.uint8))
    case("sum.default", randn(6, 7), BF16)
    case("mean.dim", ints(4, 5), [1], False, F32)
    case("any.dims", randn(4, 5) > 1, [0, 1])
    case("prod.dim_int", randn(4, 5), 1)
    nans = torch.tensor([[1.0, math.nan, 3.0], [2.0, 2.0, 1.0]])
    for op in ("amax.default", "argmax.default", "max.dim"):
        case(op, nans, [1] if op.startswith("amax") else 1)


def normalization_cases() -> None:
    for dtype in FLOATS:
        x = randn(5, 33, dtype=dtype)
        for dim in (-1, 0):
            case("_softmax.default", x, dim, False)
            case("_safe_softmax.default", x, dim)
            case("_safe_softmax.default", x.masked_fill(x < 0.5, -math.inf), dim)
            case("_log_softmax.default", x, dim, False)
        w, b = randn(33, dtype=dtype), randn(33, dtype=dtype)
        case("native_layer_norm.default", x, [33], w, b, 1e-5)
        case("native_layer_norm.default", x, [33], None, None, 1e-5)
        case(
            "native_group_norm.default",
            randn(2, 6, 4, 5, dtype=dtype),
            None,
            None,
            2,
            6,
            20,
            3,
            1e-5,
        )
        g, h = randn(6, dtype=dtype), randn(6, dtype=dtype)
        case("native_group_norm.default", randn(2, 6, 4, 5, dtype=dtype), g, h, 2, 6, 20, 3, 1e-5)
    case("native_layer_norm.default", randn(5, 33, dtype=BF16), [33], randn(33), randn(33), 1e-5)
    for x in (randn(2, 6, 4, 5), randn(2, 6, 4, 5).to(memory_format=torch.channels_last)):
        for parameters in ((randn(6), randn(6)), (randn(6), None), (None, randn(6))):
            case("native_group_norm.default", x.bfloat16(), *parameters, 2, 6, 20, 3, 1e-5)
    case(
        "native_layer_norm.default", randn(4, 5, 6).transpose(0, 1), [4, 6], randn(4, 6), None, 1e-5
    )
    case("_softmax.default", randn(4, 6).t(), 0, False)
    case("_softmax.default", randn(2, 3, 4, 5).to(memory_format=torch.channels_last), 1, False)
    for x in (
        randn(2, 6, 4, 5),
        randn(3, 6),
        randn(2, 6, 4, 5).to(memory_format=torch.channels_last),
    ):
        mean, var, w, b = randn(6), torch.rand(6) + 0.1, randn(6), randn(6)
        case("native_batch_norm.default", x, w, b, mean, var, False, 0.1, 1e-5)
        case("native_batch_norm.default", x, None, None, mean, var, False, 0.1, 1e-5)
        case("_native_batch_norm_legit_no_training.default", x, w, b, mean, var, 0.1, 1e-5)
    half = randn(2, 6, 4, 5, dtype=BF16)
    case(
        "native_batch_norm.default",
        half,
        randn(6),
        randn(6),
        randn(6),
        torch.rand(6) + 0.1,
        False,
        0.1,
        1e-5,
    )

    for x in (randn(2, 6, 4, 5), randn(3, 6)):
        case("native_batch_norm.default", x, randn(6), randn(6), None, None, True, 0.1, 1e-5)
        case("native_batch_norm.default", x, None, None, None, None, True, 0.1, 1e-5)
    for dtype in (torch.float32, BF16):
        w, b, mean, var = (torch.rand(6, dtype=dtype) + 0.1 for _ in range(4))
        x = randn(2, 6, 4, 5, dtype=dtype)
        for t in (x, x.to(memory_format=torch.channels_last), x.mT.contiguous().mT, x[:, :, 0]):
            for training in (True, False):
                update = ("_native_batch_norm_legit_functional.default", t, w, b, mean, var)
                case(*update, training, 0.1, 1e-5)
            case("_batch_norm_with_update_functional.default", t, w, b, mean, var, 0.1, 1e-5)
            case("_native_batch_norm_legit.no_stats", t, w, b, True, 0.1, 1e-5)


def refused_cases() -> None:
    case("gelu.default", randn(3), "neither")
    case("softshrink.default", randn(3), -0.5)


def indexing_cases() -> None:
    image = randn(2, 3, 4, 5)
    case("upsample_nearest2d.default", image, [8, 10], 2.0, 2.0)
    case("upsample_nearest2d.default", image, [8, 20])
    case("upsample_nearest2d.default", image, [7, 9])
    case("upsample_nearest2d.default", image, [12, 10], 3.0, 2.0)
    case("upsample_nearest2d.default", image, [4, 10], 1.2, 2.2)
    for size, scale in (([5], 1.2), ([10], 2.2), ([10], 2.0), ([7], 1.5)):
        case("upsample_nearest1d.default", image[0], size, scale)
    case("upsample_nearest3d.default", image[None], [3, 8, 5], 1.2, 2.2, None)
    table, x = randn(10, 4), randn(3, 4, 5, 2)
    case("embedding.default", table, ints(2, 3, low=0, high=10), 0)
    case("embedding.default", table.to(BF16), ints(3, low=0, high=10, dtype=torch.int32))
    case("gather.default", x, 1, ints(3, 2, 5, 2, low=0, high=4))
    case("index_select.default", x, 2, ints(7, low=0, high=5))
    i, j = ints(2, 3, low=-3, high=3), ints(3, low=-4, high=4)
    case("index.Tensor", x, [i])
    case("index.Tensor", x, [i, j])
    case("index.Tensor", x, [None, j])
    case("index.Tensor", x, [None, j, ints(2, 1, low=0, high=5)])
    case("index.Tensor", x, [i, None, ints(3, low=0, high=5)])
    case("index.Tensor", x.permute(3, 2, 1, 0), [None, ints(4, low=0, high=5)])
    case("index.Tensor", x.permute(3, 2, 1, 0), [None, None, None, i])
    case("index.Tensor", table.t(), [ints(4, low=0, high=4)])
    case("index.Tensor", table, [ints(3, 2, low=0, high=10).t()])
    case("index.Tensor", table, [torch.arange(3).unsqueeze(1), torch.arange(4).unsqueeze(0)])
    for dim in (0, -1):
        case("cat.default", [randn(2, 3), randn(2, 3)], dim)
        case("stack.default", [randn(2, 3), randn(2, 3)], dim)
    case("cat.default", [randn(2, 3), randn(5, 3), randn(1, 3)], 0)
    case("cat.default", [randn(3, 2).t(), ints(2, 3)], 0)
    case("cat.default", [randn(0), randn(2, 3)], 0)
    case("cat.default", [randn(2, 3, 4, 5), randn(2, 1, 4, 5)], 1)
    channels_last = randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    case("cat.default", [channels_last, channels_last], 1)
    case("cat.default", [randn(2, 3, dtype=BF16), randn(2, 1)], 1)
    case("stack.default", [randn(2, 3), ints(2, 3)], 1)
    case("constant_pad_nd.default", randn(3, 4), [1, 2])
    case("constant_pad_nd.default", randn(3, 4), [1, 2, 0, 3], 2.5)
    case("constant_pad_nd.default", randn(2, 3, 4, 5), [1, 1, 1, 1])
    case("constant_pad_nd.default", ints(5), [0, 2], 7)
    case("constant_pad_nd.default", randn(4, 3).t(), [1, 0])
    case("constant_pad_nd.default", randn(1, 9), [-1, -2])
    case("constant_pad_nd.default", randn(3, 9), [-1, -2])
    case("constant_pad_nd.default", randn(2, 1, 9), [-1, 0, 0, 0])


def extern_cases() -> None:
    a, b = randn(4, 5), randn(5, 6)
    case("mm.default", a, b)
    case("mm.default", b.t(), a.t())
    case("addmm.default", randn(6), a, b)
    case("addmm.default", randn(4, 6), a, b)
    case("bmm.default", randn(2, 4, 5), randn(2, 5, 6))
    case("baddbmm.default", randn(2, 4, 6), randn(2, 4, 5), randn(2, 5, 6))
    case("mv.default", a, randn(5))
    for dtype in (F32, F64):
        for m, n in ((5, 3), (3, 5), (4, 4), (5, 1), (1, 1)):
            for driver in (None, "gels", "gelsy"):
                for batch in ((), (2,), (2, 3)):
                    a = randn(*batch, m, n, dtype=dtype)
                    case("linalg_lstsq.default", a, randn(*batch, m, 2, dtype=dtype), None, driver)
                    if batch:
                        right = randn(*batch, m, dtype=dtype)
                        case("linalg_lstsq.default", a, right, None, driver)
            for batch in ((), (2,), (2, 3)):
                case("geqrf.default", randn(*batch, m, n, dtype=dtype))
        x, points = randn(3, 5, dtype=dtype), randn(7, 2, dtype=dtype)
        edges = torch.linspace(-1, 1, 5, dtype=dtype)
        for ends, weight, weights in ((None, None, None), ([-1.0, 1.0], x.abs(), points[:, 0])):
            of_points = ([3, 2], ends and ends * 2, weights, ends is not None)
            case("histogram.bin_ct", x, 4, ends, weight, ends is not None)
            case("histogram.bins_tensor", x, edges, weight)
            case("_histogramdd_bin_edges.default", points, *of_points)
            case("_histogramdd_from_bin_cts.default", points, *of_points)
            case("_histogramdd_from_bin_tensors.default", points, [edges, edges[1:]], weights)
        case("histogram.bin_ct", x)
        case("histogram.bin_ct", x, 0)
        case("histogram.bin_ct", x, 4, [1.0, -1.0])
        case("histogram.bin_ct", x.to(torch.int64), 4)
        case("histogram.bins_tensor", x, edges.to(F64 if dtype == F32 else F32))
        case("_histogramdd_from_bin_cts.default", points, [3, 2, 4])
        case("_histogramdd_from_bin_cts.default", points, [3, 2], None, points)
    case("dot.default", randn(5), randn(5))
    for name in ("tril_indices.default", "triu_indices.default"):
        for rows, columns in ((4, 4), (3, 7), (6, 2), (1, 1)):
            for offset in (0, 1, -1, 3, -5, 9):
                case(name, rows, columns, offset)
        case(name, 4, 5, 1, torch.int32)
    for window in ("bartlett", "blackman", "hamming", "hann"):
        case(f"{window}_window.default", 7)
        case(f"{window}_window.periodic", 1, False, torch.float64)
    for rows in (1, 2, 7):
        case("_pdist_forward.default", torch.linspace(-1, 1, 3 * rows).view(rows, 3), 2.0)
    case("affine_grid_generator.default", torch.ones(2, 2, 3), [2, 3, 4, 5], False)
    case("affine_grid_generator.default", torch.ones(2, 3, 4), [2, 3, 4, 5, 6], True)
    conv = [[2, 2], [3, 3], [1, 1], False, [0, 0], 1]
    case("convolution.default", randn(1, 3, 28, 28), randn(8, 3, 7, 7), None, *conv)
    case(
        "convolution.default",
        randn(2, 3, 9, 8),
        randn(8, 3, 3, 3),
        randn(8),
        [1, 1],
        [0, 1],
        [2, 1],
        False,
        [0, 0],
        1,
    )
    case(
        "convolution.default",
        randn(2, 8, 9, 8),
        randn(8, 4, 3, 3),
        None,
        [1, 1],
        [1, 1],
        [1, 1],
        False,
        [0, 0],
        2,
    )
    case(
        "convolution.default",
        randn(2, 8, 9, 8),
        randn(16, 8, 1, 1),
        None,
        [1],
        [0],
        [1],
        False,
        [0],
        1,
    )
    pool = randn(2, 3, 9, 8)
    case("max_pool2d_with_indices.default", pool, [3, 3], [2, 2], [1, 1])
    case("max_pool2d_with_indices.default", pool, [2], [2], [0], [1], True)
    case("avg_pool2d.default", pool, [3, 3])
    case("avg_pool2d.default", pool, [2, 2], [2, 2], [0, 0], True)
    case("_adaptive_avg_pool2d.default", pool, [1, 2])
    q = randn(2, 3, 7, 8)
    case("_scaled_dot_product_flash_attention_for_cpu.default", q, q, q)
    t = randn(2, 7, 3, 8).transpose(1, 2)
    case("_scaled_dot_product_flash_attention_for_cpu.default", t, t, t)
    wide = randn(1, 7, 24).view(1, 7, 3, 8).transpose(1, 2)
    case("_scaled_dot_product_flash_attention_for_cpu.default", wide, wide, wide)
    case("_scaled_dot_product_flash_attention_for_cpu.default", t, q, q)


def bounded_cases() -> None:
    for eps in (0.1, 0.5, 0.6):
        case("logit.default", torch.tensor([float("nan"), -1.0, 2.0, *torch.rand(30)]), eps)


def batch_norm_cases():
    for x in (
        randn(2, 6, 4, 5),
        randn(3, 6),
        randn(2, 6, 4, 5).to(memory_format=torch.channels_last),
    ):
        mean, var, w, b = randn(6), torch.rand(6) + 0.1, randn(6), randn(6)
        case("_batch_norm_no_update.default", x, w, b, mean, var, 0.1, 1e-5)


def all_cases() -> list[tuple[str, list]]:
    import op_cases_gradients
    import op_cases_places
    import op_cases_special

    CASES.clear()
    for family in (
        fake_quantize_cases,
        unary_cases,
        binary_cases,
        blend_cases,
        view_cases,
        creation_cases,
        reduction_cases,
        normalization_cases,
        indexing_cases,
        extern_cases,
        refused_cases,
        *op_cases_special.FAMILIES,
        *op_cases_places.FAMILIES,
        *op_cases_gradients.FAMILIES,
        # Last: test_odd_layouts draws layouts in the order of all cases.
        bounded_cases,
        batch_norm_cases,
    ):
        torch.manual_seed(0)  # a new family changes no other's numbers
        family()
    return list(CASES)
