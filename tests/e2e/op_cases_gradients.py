"""Calls of the ATen ops that autograd's formulas make in a backward, for op_cases.py."""

from __future__ import annotations

import itertools
import math

import torch
from op_cases import BF16, F16, F32, F64, FLOATS, case, ints, layouts, randn


def pairs(dtype=F32):
    """A gradient and an operand of one shape in the layouts that decide output strides."""
    for x in layouts(dtype):
        yield torch.randn(x.shape).to(dtype), x
        yield (torch.randn(x.shape[::-1]).to(dtype).permute(list(range(x.dim()))[::-1]), x)


# What stands behind (grad, self).
OF_OPERAND = {
    "threshold_backward": [[0], [0.3]],
    "gelu_backward": [["none"], ["tanh"]],
    "silu_backward": [[]],
    "mish_backward": [[]],
    "hardtanh_backward": [[-1, 1], [-0.3, 0.6]],
    "hardswish_backward": [[]],
    "hardsigmoid_backward": [[]],
    "hardshrink_backward": [[0.5], [0.3]],
    "softshrink_backward": [[0.5], [0.3]],
    "leaky_relu_backward": [[0.01, False], [0.2, True], [-0.5, False], [-0.5, True]],
    "softplus_backward": [[1, 20], [2, 0.5]],
    "sigmoid_backward": [[]],
    "tanh_backward": [[]],
    "logit_backward": [[None], [0.3], [0.4], [0.0]],
}


def activation_cases() -> None:
    odd = torch.tensor([math.nan, 0.0, -0.0, 3.0, -3.0, 0.3, -0.3, 1.0, -1.0, 0.6, 0.5, -0.5, 6.0])
    for name, forms in OF_OPERAND.items():
        for form in forms:
            for dtype in FLOATS:
                x = randn(96, dtype=dtype)
                if name == "logit_backward":
                    x = torch.rand(96).to(dtype)
                case(f"{name}.default", torch.randn(96).to(dtype), x, *form)
                # Long enough for vectors, as which ATen computes them.
                values = odd if form != ["none"] else odd[1:]
                many = values.repeat(64).to(dtype)
                case(f"{name}.default", torch.randn(many.shape).to(dtype), many, *form)
        for grad, x in pairs():
            case(f"{name}.default", grad, x, *forms[0])
        case(f"{name}.default", randn(96), randn(96, dtype=BF16), *forms[0])
        case(f"{name}.default", randn(), randn(4, 6), *forms[0])
        case(f"{name}.default", randn(4, 6), randn(4, 1), *forms[0])
        case(f"{name}.default", ints(4), ints(4), *forms[0])
    for dtype in FLOATS:
        x = torch.cat((randn(64), odd.repeat(64))).to(dtype)
        grad = torch.randn(x.shape).to(dtype)
        case("threshold.default", x, 0.3, 0.7)
        for form in ((1.0, 1.0, 1.0), (0.7, 1.3, 0.9)):
            case("elu_backward.default", grad, *form, False, x)
            case("elu_backward.default", grad, *form, True, x)
        case("log_sigmoid_backward.default", grad, x, x.abs().neg().exp())
        case("_prelu_kernel_backward.default", grad, x, randn(1, dtype=dtype))
        for training in (False, True):
            rest = (0.1, 0.3, training, False)
            case("rrelu_with_noise_backward.default", grad, x, x.flip(0), *rest)
        for shape, dim in (((6, 8), -1), ((6, 8), 0), ((2, 4, 6), 1)):
            full = randn(*shape, dtype=dtype)
            half = full.narrow(dim, 0, full.shape[dim] // 2)
            case("glu_backward.default", torch.randn_like(half), full, dim)
    for grad, x in pairs():
        case("elu_backward.default", grad, 1.0, 1.0, 1.0, False, x)
        case("log_sigmoid_backward.default", grad, x, x.abs().neg().exp())
        case("_prelu_kernel_backward.default", grad, x, torch.full([1] * x.dim(), 0.2))
        case("rrelu_with_noise_backward.default", grad, x, x, 0.1, 0.3, True, False)
    case("elu_backward.default", randn(4), -1.0, 1.0, 1.0, True, randn(4))
    case("glu_backward.default", randn(3, 5), randn(3, 9), 1)
    image = randn(2, 4, 3, 5).to(memory_format=torch.channels_last)
    case("glu_backward.default", image[:, :2], image, 1)
    case("_prelu_kernel_backward.default", image, image, randn(1, 4, 1, 1))


def softmax_cases() -> None:
    for dtype in FLOATS:
        for shape, dim in (((5, 33), -1), ((5, 33), 0), ((2, 3, 4), 1), ((2, 3, 4, 5), -1)):
            x, grad = randn(*shape, dtype=dtype), randn(*shape, dtype=dtype)
            for name, y in (("softmax", x.softmax(dim)), ("log_softmax", x.log_softmax(dim))):
                case(f"_{name}_backward_data.default", grad, y, dim, dtype)
    for name in ("_softmax_backward_data", "_log_softmax_backward_data"):
        for grad, x in pairs():
            case(f"{name}.default", grad, x.softmax(-1), -1, F32)
        case(f"{name}.default", randn(3, 4), randn(3, 4), 2, F32)
        for dtype, operand in itertools.permutations(FLOATS, 2):
            case(f"{name}.default", randn(3, 4, dtype=dtype), randn(3, 4, dtype=dtype), 1, operand)


MASKS = ([True, True, True], [True, False, False], [False, True, True], [False, False, True])


def norm_cases() -> None:
    for dtype, stats in ((F32, F32), (F64, F64), (BF16, F32), (F16, F32), (BF16, BF16)):
        for shape, last in (((7, 33), 1), ((2, 5, 12), 2), ((2, 5, 12), 1), ((9,), 1)):
            x, grad = randn(*shape, dtype=dtype), randn(*shape, dtype=dtype)
            normalized = list(shape[-last:])
            weight, bias = randn(*normalized, dtype=stats), randn(*normalized, dtype=stats)
            _, mean, rstd = torch.native_layer_norm(x, normalized, weight, bias, 1e-5)
            # Eager sums the parameters' gradients of fp16 and bf16 in their own precision.
            for mask in MASKS if dtype == stats and dtype != BF16 else MASKS[1:2]:
                rest = (normalized, mean, rstd, weight, bias, mask)
                case("native_layer_norm_backward.default", grad, x, *rest)
            rest = (normalized, mean, rstd, None, None, [True, False, False])
            case("native_layer_norm_backward.default", grad, x, *rest)
            if dtype != BF16:
                rest = (normalized, mean, rstd, None, bias, [True, False, True])
                case("native_layer_norm_backward.default", grad, x, *rest)
    x = randn(6, 4).t()
    _, mean, rstd = torch.native_layer_norm(x, [6], None, None, 1e-5)
    rest = ([6], mean, rstd, None, None, [True, False, False])
    case("native_layer_norm_backward.default", x, x, *rest)


def group_norm_cases() -> None:
    for dtype, stats in ((F32, F32), (F64, F64), (BF16, F32)):
        for shape, groups in (((3, 6, 5), 2), ((2, 8, 3, 4), 4), ((2, 16), 2), ((2, 4, 6, 5), 1)):
            x, grad = torch.randn(2, *shape).to(dtype)
            n, c, rest = shape[0], shape[1], math.prod(shape[2:])
            weight, bias = randn(c, dtype=stats), randn(c, dtype=stats)
            _, mean, rstd = torch.native_group_norm(x, weight, bias, n, c, rest, groups, 1e-5)
            for mask in MASKS:
                sizes = (n, c, rest, groups, mask)
                case("native_group_norm_backward.default", grad, x, mean, rstd, weight, *sizes)
            sizes = (n, c, rest, groups, [True, False, False])
            case("native_group_norm_backward.default", grad, x, mean, rstd, None, *sizes)
    x = randn(2, 8, 3, 4).to(memory_format=torch.channels_last)
    _, mean, rstd = torch.native_group_norm(x, None, None, 2, 8, 12, 4, 1e-5)
    sizes = (2, 8, 12, 4, [True, False, False])
    case("native_group_norm_backward.default", x, x, mean, rstd, None, *sizes)
    case("native_group_norm_backward.default", x.contiguous(), x, mean, rstd, None, *sizes)


def batch_norm_cases() -> None:
    for dtype, stats in ((F32, F32), (F64, F64), (BF16, F32), (F16, F32)):
        for shape in ((9, 4), (3, 4, 5), (2, 4, 3, 5), (2, 3, 2, 3, 4)):
            x, grad = torch.randn(2, *shape).to(dtype)
            c = shape[1]
            weight, bias, mean = randn(c, dtype=stats), randn(c, dtype=stats), randn(c, dtype=stats)
            var = torch.rand(c).to(stats) + 0.5
            args = (x, weight, bias, mean, var)
            case("_native_batch_norm_legit_functional.default", *args, True, 0.1, 1e-5)
            args = (x, None, None, mean, var, True, 0.3, 0.0)
            case("_native_batch_norm_legit_functional.default", *args)
            for train in (True, False):
                for mask in MASKS:
                    tail = (mean, var, mean, var, train, 1e-5, mask)
                    case("native_batch_norm_backward.default", grad, x, weight, *tail)
                tail = (mean, var, mean, var, train, 1e-5, [True, False, True])
                case("native_batch_norm_backward.default", grad, x, None, *tail)
    image = randn(2, 4, 3, 5).to(memory_format=torch.channels_last)
    ones = torch.ones(4)
    for x in (image, randn(2, 4, 6, 5)[:, :, ::2], randn(4, 2, 3, 5).transpose(0, 1)):
        tail = (ones, ones, ones, ones, True, 1e-5, [True, True, True])
        case("native_batch_norm_backward.default", image, x, ones, *tail)
        case("native_batch_norm_backward.default", x, image, ones, *tail)
        args = (x, ones, ones, ones, ones, True, 0.1, 1e-5)
        case("_native_batch_norm_legit_functional.default", *args)


def loss_cases() -> None:
    for dtype in (F32, F64, BF16):
        x, y = randn(6, 9, dtype=dtype), randn(6, 9, dtype=dtype)
        for reduction in (0, 1, 2):
            grad = randn(*([6, 9] if reduction == 0 else []), dtype=dtype)
            case("mse_loss_backward.default", grad, x, y, reduction)
            for bound in (1.0, 0.4):
                case("smooth_l1_loss_backward.default", grad, x, y, reduction, bound)
                case("huber_loss_backward.default", grad, x, y, reduction, bound)
            case("soft_margin_loss_backward.default", grad, x, y.sign(), reduction)
            inside = torch.rand(6, 9).to(dtype)
            inside[0, :3] = torch.tensor([0.0, 1.0, 0.5])
            for weight in (None, torch.rand(9).to(dtype)):
                target = torch.rand(6, 9).to(dtype)
                rest = (inside, target, weight, reduction)
                case("binary_cross_entropy_backward.default", grad, *rest)
    for grad, x in pairs():
        case("mse_loss_backward.default", grad, x, x.flip(0) if x.dim() else x, 0)
        case("huber_loss_backward.default", grad, x, x, 0, 1.0)
        case("soft_margin_loss_backward.default", grad, x, x.sign(), 2)
        inside = x.sigmoid()
        case("binary_cross_entropy_backward.default", grad, inside, inside * 0.5, None, 1)


def library_cases() -> None:
    """What has a shape rule alone: ATen's kernels do the rest."""
    for dtype in (F32, F64):
        for x in (randn(6, 9, dtype=dtype), randn(9, 6, dtype=dtype).t()):
            for reduction in (0, 1, 2):
                grad = randn(*([6] if reduction == 0 else []), dtype=dtype)
                target = ints(6, low=0, high=9)
                rest = (x, target, 1, 1.0, None, reduction)
                case("multi_margin_loss_backward.default", grad, *rest)
                case("multi_margin_loss.default", *rest)
                weight = randn(x.shape[1], dtype=dtype)
                for one in (target[0], target[:1]):
                    case("multi_margin_loss.default", x[0], one, 1, 1.0, weight, reduction)
                    case("multi_margin_loss.default", x[:1], one, 1, 1.0, weight, reduction)
                labels = ints(6, 9, low=-1, high=9)
                for i in ((), (0,)):
                    case("multilabel_margin_loss_forward.default", x[i], labels[i], reduction)
                _, marks = torch.ops.aten.multilabel_margin_loss_forward(x, labels, reduction)
                rest = (x, labels, reduction, marks)
                case("multilabel_margin_loss_backward.default", grad, *rest)
        probabilities = randn(7, 2, 5, dtype=dtype).log_softmax(-1)
        forward = (probabilities, ints(2, 3, low=1, high=5), [7, 6], [3, 2])
        losses, alpha = torch.ops.aten._ctc_loss(*forward)
        case("_ctc_loss_backward.default", randn(2, dtype=dtype), *forward, losses, alpha, 0)
        volume = randn(2, 3, 6, 6, 6, dtype=dtype)
        samples = torch.rand(2, 3, 3, dtype=dtype)
        sizes = ([2, 2, 2], [3, 3, 3])
        pooled, indices = torch.ops.aten.fractional_max_pool3d(volume, *sizes, samples)
        for x in (volume, volume.to(memory_format=torch.channels_last_3d)):
            case("fractional_max_pool3d_backward.default", pooled, x, *sizes, indices)


def nll_cases() -> None:
    for dtype in FLOATS:
        for shape in ((7, 5), (5,), (2, 5, 3, 4)):
            x, other = randn(*shape, dtype=dtype), list(shape)
            other.pop(0 if len(shape) == 1 else 1)
            name = "nll_loss2d_backward" if len(shape) == 4 else "nll_loss_backward"
            target = ints(*other, low=0, high=5)
            if len(shape) > 1:
                target.view(-1)[::3] = -100
            for weight in (None, torch.rand(5).to(dtype)):
                for reduction in (0, 1, 2):
                    grad = randn(*(other if reduction == 0 else []), dtype=dtype)
                    total = torch.tensor(3.25).to(dtype)
                    rest = (weight, reduction, -100, total)
                    case(f"{name}.default", grad, x, target, *rest)
    x, grad, total = randn(7, 5), randn(), torch.tensor(2.0)
    for y in (x.t().contiguous().t(), x[:, :0], x[:0]):
        target = torch.zeros(y.shape[0], dtype=torch.int64)
        case("nll_loss_backward.default", grad, y, target, None, 1, -100, total)
    image = randn(2, 5, 3, 4).to(memory_format=torch.channels_last)
    for y in (image, image.contiguous()):
        target = torch.zeros(2, 3, 4, dtype=torch.int64)
        case("nll_loss2d_backward.default", grad, y, target, None, 1, -100, total)


def view_cases() -> None:
    """Of a view's gradient: its own sizes, those of the operand, the view's arguments."""
    big = 2**40
    for dtype in (*FLOATS, torch.int64, torch.bool):
        x = randn(4, 5, 6, dtype=dtype)
        for dim, index in ((0, 2), (1, -1), (-1, 3)):
            grad = x.select(dim, index)
            case("select_backward.default", grad, [4, 5, 6], dim, index)
        for dim, *bounds in (
            (0, 1, 3, 1),
            (1, 0, big, 2),
            (-1, -4, -1, 1),
            (2, 3, 3, 1),
            (1, 1, 9, 3),
        ):
            start, end, step = bounds
            at = [slice(None)] * 3
            at[dim] = slice(start, end, step)
            case("slice_backward.default", x[tuple(at)], [4, 5, 6], dim, *bounds)
        for offset, first, second in ((0, 0, 1), (1, -1, 0), (-2, 1, 2)):
            grad = x.diagonal(offset, first, second)
            case("diagonal_backward.default", grad, [4, 5, 6], offset, first, second)
        if dtype not in (torch.int64, torch.bool):
            for dim, size, step in ((0, 2, 1), (1, 2, 3), (-1, 5, 2), (1, 5, 1)):
                grad = x.unfold(dim, size, step)
                case("unfold_backward.default", grad, [4, 5, 6], dim, size, step)
    case("select_backward.default", randn(5), [4, 5], 0, 4)
    case("select_backward.default", randn(5, 4).t(), [4, 3, 5], 1, 0)
    case("slice_backward.default", randn(0, 5), [0, 5], 0, 0, big, 1)


def padding_cases() -> None:
    for dtype in FLOATS:
        for dims, sizes, edges in (
            (1, (3, 7), [2, 3]),
            (1, (2, 3, 7), [0, 6]),
            (2, (3, 5, 6), [2, 0, 4, 1]),
            (2, (2, 3, 5, 6), [5, 5, 1, 3]),
            (3, (2, 3, 4, 5, 6), [1, 2, 0, 3, 2, 1]),
            (3, (3, 4, 5, 6), [1, 0, 0, 1, 2, 1]),
        ):
            x = randn(*sizes, dtype=dtype)
            grad = torch.nn.functional.pad(x, edges, mode="reflect")
            case(f"reflection_pad{dims}d_backward.default", grad, x, edges)
            case(f"replication_pad{dims}d_backward.default", grad, x, edges)
    volume = randn(2, 3, 4, 5, 6).to(memory_format=torch.channels_last_3d)
    for grad in (
        randn(2, 3, 6, 7, 8),
        randn(2, 3, 6, 7, 8).to(memory_format=torch.channels_last_3d),
    ):
        case("reflection_pad3d_backward.default", grad, volume, [1] * 6)
        case("replication_pad3d_backward.default", grad, volume, [1] * 6)
    for x in (
        randn(2, 3, 5, 6).to(memory_format=torch.channels_last),
        randn(2, 3, 6, 5).transpose(2, 3),
        randn(3, 2, 5, 6).transpose(0, 1),
    ):
        grad = torch.nn.functional.pad(x, [1, 2, 3, 1], mode="reflect")
        case("reflection_pad2d_backward.default", grad, x, [1, 2, 3, 1])
        case("reflection_pad2d_backward.default", grad.contiguous(), x, [1, 2, 3, 1])
    case("reflection_pad2d_backward.default", randn(2, 3, 9, 9), randn(2, 3, 5, 6), [1, 2, 3, 1])


def extern_cases() -> None:
    """Their shapes: these run as calls."""
    for dtype in (F32, F64, BF16):
        for x, w, rest in (
            ((2, 4, 8, 9), (6, 4, 3, 3), ([1], [0], [1], False, [0], 1)),
            ((2, 8, 8, 9), (8, 2, 3, 3), ([2, 1], [1, 1], [1, 2], False, [0, 0], 4)),
            ((2, 8, 8, 9), (8, 1, 3, 3), ([1], [1], [1], False, [0], 8)),
            ((2, 8, 8, 9), (8, 8, 1, 1), ([1], [0], [1], False, [0], 1)),
            ((1, 8, 32, 32), (16, 8, 3, 3), ([1], [1], [1], False, [0], 1)),
            ((2, 4, 8, 9), (4, 6, 3, 3), ([2, 2], [1, 0], [1, 1], True, [1, 0], 1)),
            ((2, 4, 9), (6, 4, 3), ([1], [0], [1], False, [0], 1)),
            ((2, 4, 5, 6, 7), (6, 4, 3, 3, 3), ([1], [1], [1], False, [0], 1)),
        ):
            x, w = randn(*x, dtype=dtype), randn(*w, dtype=dtype)
            grad = torch.randn_like(torch.ops.aten.convolution(x, w, None, *rest))
            for mask in MASKS:
                case("convolution_backward.default", grad, x, w, [w.shape[0]], *rest, mask)
            if grad.dim() == 4:
                last = grad.to(memory_format=torch.channels_last)
                case("convolution_backward.default", last, x, w, None, *rest, MASKS[0])
    rest = ([1], [0], [1], False, [0], 1)
    x, w = randn(2, 4, 8, 9), randn(6, 4, 3, 3)
    case("convolution_backward.default", randn(2, 6, 5, 7), x, w, [6], *rest, MASKS[0])
    for q in (randn(2, 3, 7, 8), randn(2, 7, 3, 8).transpose(1, 2)):
        for k in (randn(2, 3, 5, 8), randn(2, 5, 3, 8).transpose(1, 2)):
            y, sums = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(q, k, k)
            name = "_scaled_dot_product_flash_attention_for_cpu_backward.default"
            case(name, torch.randn_like(y), q, k, k, y, sums, 0.0, False)


def formats(x):
    """The layouts of images."""
    yield x
    yield x.to(memory_format=torch.channels_last)
    yield x.transpose(2, 3).contiguous().transpose(2, 3)


def pooling_cases() -> None:
    aten = torch.ops.aten
    windows = (
        ([3], [2], [1], [1], False),
        ([3, 3], [1, 1], [1, 0], [1, 1], False),
        ([2], [], [0], [1], True),
        ([2, 3], [3, 2], [1, 1], [1, 1], True),
        ([3], [1], [1], [2], False),
    )
    for dtype in FLOATS:
        for x in (*formats(randn(2, 3, 9, 8, dtype=dtype)), randn(3, 9, 8, dtype=dtype)):
            for kernel, stride, padding, dilation, ceil in windows:
                args = (kernel, stride, padding, dilation, ceil)
                y, places = aten.max_pool2d_with_indices(x, *args)
                grad = torch.randn_like(y)
                case("max_pool2d_with_indices_backward.default", grad, x, *args, places)
                args = (kernel, stride, padding, ceil)
                for with_padding, divisor in ((True, None), (False, None), (True, 5)):
                    args = (kernel, stride, padding, ceil, with_padding, divisor)
                    grad = torch.randn_like(aten.avg_pool2d(x, *args))
                    case("avg_pool2d_backward.default", grad, x, *args)
            for size in ([1, 1], [3, 4], [4, 3], [9, 8], [2, 10]):
                grad = torch.randn_like(aten._adaptive_avg_pool2d(x, size))
                case("_adaptive_avg_pool2d_backward.default", grad, x)
                y, places = aten.adaptive_max_pool2d(x, size)
                case("adaptive_max_pool2d_backward.default", torch.randn_like(y), x, places)
    volume = randn(2, 3, 4, 6, 5)
    for x in (volume, volume.to(memory_format=torch.channels_last_3d), randn(3, 4, 6, 5)):
        args = ([2, 3, 2], [2, 1, 1], [1, 1, 0], [1], False)
        y, places = aten.max_pool3d_with_indices(x, *args)
        case("max_pool3d_with_indices_backward.default", torch.randn_like(y), x, *args, places)
        args = ([2, 3, 2], [2, 1, 1], [1, 1, 0], False, False, None)
        grad = torch.randn_like(aten.avg_pool3d(x, *args))
        case("avg_pool3d_backward.default", grad, x, *args)
        for size in ([1, 1, 1], [2, 3, 2]):
            grad = torch.randn_like(aten._adaptive_avg_pool3d(x, size))
            case("_adaptive_avg_pool3d_backward.default", grad, x)
            y, places = aten.adaptive_max_pool3d(x, size)
            case("adaptive_max_pool3d_backward.default", torch.randn_like(y), x, places)
    case(
        "avg_pool2d_backward.default",
        randn(2, 3, 9, 9),
        x[None, 0],
        [2],
        [2],
        [0],
        False,
        True,
        None,
    )


def upsample_cases() -> None:
    for dtype in FLOATS:
        for name, size, to, scales in (
            ("upsample_nearest1d", [2, 3, 5], [15], [None]),
            ("upsample_nearest1d", [2, 3, 5], [7], [None]),
            ("upsample_nearest2d", [2, 3, 4, 5], [8, 15], [2.0, 3.0]),
            ("upsample_nearest2d", [2, 3, 4, 5], [4, 10], [None, None]),
            ("upsample_nearest3d", [2, 3, 2, 3, 4], [4, 6, 4], [2.0, 2.0, 1.0]),
            ("_upsample_nearest_exact1d", [2, 3, 5], [10], [2.0]),
            ("_upsample_nearest_exact2d", [2, 3, 4, 5], [8, 15], [None, None]),
            ("_upsample_nearest_exact3d", [2, 3, 2, 3, 4], [2, 6, 8], [None, None, None]),
        ):
            grad = randn(*size[:2], *to, dtype=dtype)
            for g in formats(grad) if grad.dim() == 4 else (grad,):
                case(f"{name}_backward.default", g, to, size, *scales)


FAMILIES = (
    pooling_cases,
    upsample_cases,
    extern_cases,
    view_cases,
    padding_cases,
    activation_cases,
    softmax_cases,
    norm_cases,
    group_norm_cases,
    batch_norm_cases,
    loss_cases,
    nll_cases,
    library_cases,
)
