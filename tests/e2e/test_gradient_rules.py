"""The ops that autograd's formulas call in a backward, compiled, against eager: no extern calls,
in the layouts, dtypes and with the sizes that vary which a training step has."""

from __future__ import annotations

import pytest
import torch
from op_cases_gradients import OF_OPERAND
from test_loop_rules import FLOATS, check, layouts

import oxyfuel

aten = torch.ops.aten


def tolerance_of(dtype: torch.dtype) -> float:
    return {torch.float64: 1e-12, torch.float32: 1e-5}.get(dtype, 1e-2)


@pytest.mark.parametrize("name", OF_OPERAND)
@pytest.mark.parametrize("dtype", FLOATS)
def test_activations(name, dtype):
    op = getattr(aten, name).default
    # Eager refuses a negative slope of a result.
    forms = [form for form in OF_OPERAND[name] if form != [-0.5, True]]

    def every_form(grad, x):
        if name == "gelu_backward":
            return tuple(op(grad, x, approximate=form[0]) for form in forms)
        return tuple(op(grad, x, *form) for form in forms)

    for x in layouts(torch.rand(6, 33).to(dtype)):
        # ATen has half precision in several functions at an error of their own.
        check(every_form, torch.randn(6, 33).to(dtype), x, tolerance=tolerance_of(dtype))


@pytest.mark.parametrize("dtype", FLOATS)
def test_activations_of_more(dtype):
    for x in layouts(torch.randn(6, 34).to(dtype)):
        grad = torch.randn(6, 34).to(dtype)
        for result in (False, True):
            elu = lambda g, x, r=result: aten.elu_backward(g, 0.7, 1.3, 0.9, r, x)
            check(elu, grad, x, tolerance=tolerance_of(dtype))
        sigmoid = lambda g, x: aten.log_sigmoid_backward(g, x, x.abs().neg().exp())
        check(sigmoid, grad, x, tolerance=tolerance_of(dtype))
        check(aten.glu_backward, grad[:, :17], x, 1, tolerance=tolerance_of(dtype))
        prelu = lambda g, x, w: aten._prelu_kernel_backward(g, x, w)
        check(prelu, grad, x, torch.rand(1, 34).to(dtype), tolerance=tolerance_of(dtype))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_softmax(dtype, dim):
    for x in layouts(torch.randn(5, 6, 40).to(dtype)):
        grad = torch.randn(5, 6, 40).to(dtype)
        for op, y in (
            (aten._softmax_backward_data, x.softmax(dim)),
            (aten._log_softmax_backward_data, x.log_softmax(dim)),
        ):
            run = lambda g, y, o=op: o(g, y, dim, y.dtype)
            check(run, grad, y, tolerance=tolerance_of(dtype))


@pytest.mark.parametrize("affine", [True, False])
def test_layer_norm(affine):
    weight, bias = (torch.randn(40), torch.randn(40)) if affine else (None, None)

    def step(x, grad, w, b):
        y, mean, rstd = aten.native_layer_norm(x, [40], w, b, 1e-5)
        mask = [True, w is not None, b is not None]
        grads = aten.native_layer_norm_backward(grad, x, [40], mean, rstd, w, b, mask)
        return (y, mean, rstd, *(g for g in grads if g is not None))

    for x in layouts(torch.randn(5, 6, 40)):
        check(step, x, torch.randn(5, 6, 40), weight, bias, tolerance=1e-5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_layer_norm_sums_in_f32(dtype):
    """Eager sums the rows of a gradient in half precision: ours is nearer to the truth."""
    torch.manual_seed(0)
    x, grad = torch.randn(2, 300, 40).to(dtype)
    weight, bias = torch.randn(2, 40).to(dtype)
    _, mean, rstd = aten.native_layer_norm(x, [40], weight, bias, 1e-5)
    mask = [False, True, True]

    def backward(grad, x, mean, rstd, weight, bias):
        return aten.native_layer_norm_backward(grad, x, [40], mean, rstd, weight, bias, mask)

    args = (grad, x, mean, rstd, weight, bias)
    with torch.no_grad():
        got = oxyfuel.compile(backward, options={"strict": True})(*args)
    exact = backward(*(t.double() for t in args))
    for a, b in zip(got[1:], exact[1:]):
        eps = torch.finfo(dtype).eps
        torch.testing.assert_close(a.double(), b, rtol=eps, atol=eps)
    assert oxyfuel.stats()["extern_calls"] == 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_group_norm(dtype):
    def step(x, grad, w, b):
        n, c, rest = x.shape[0], x.shape[1], x[0, 0].numel()
        y, mean, rstd = aten.native_group_norm(x, w, b, n, c, rest, 2, 1e-5)
        mask = [True, True, True]
        grads = aten.native_group_norm_backward(grad, x, mean, rstd, w, n, c, rest, 2, mask)
        return (y, mean, rstd, *grads)

    x, grad = torch.randn(2, 3, 6, 5, 7).to(dtype)
    weight, bias = torch.randn(2, 6).to(dtype)
    check(step, x, grad, weight, bias, tolerance=tolerance_of(dtype))


@pytest.mark.parametrize(
    "dtype, stats",
    [
        (torch.float32, torch.float32),
        (torch.float64, torch.float64),
        (torch.bfloat16, torch.float32),
    ],
)
@pytest.mark.parametrize("shape", [(30, 8), (5, 8, 9), (4, 8, 5, 6), (3, 8, 2, 3, 4)])
def test_batch_norm_in_training(dtype, stats, shape):
    """Forward with new running statistics, then backward."""

    def step(x, grad, w, b, mean, var):
        y, save_mean, save_invstd = aten.native_batch_norm(x, w, b, mean, var, True, 0.1, 1e-5)
        rest = (save_mean, save_invstd, True, 1e-5, [True, True, True])
        grads = aten.native_batch_norm_backward(grad, x, w, mean, var, *rest)
        return (y, save_mean, save_invstd, *grads)

    grad = torch.randn(shape).to(dtype)
    params = torch.randn(2, shape[1]).to(stats)
    for x in layouts(torch.randn(shape).to(dtype)):
        ours, eager = (
            [torch.zeros(shape[1]).to(stats), torch.ones(shape[1]).to(stats)] for _ in range(2)
        )
        oxyfuel.reset()
        compiled = oxyfuel.compile(step, options={"strict": True})
        with torch.no_grad():
            for _ in range(2):
                got, expected = compiled(x, grad, *params, *ours), step(x, grad, *params, *eager)
                loose = tolerance_of(dtype)
                for a, b in zip((*got, *ours), (*expected, *eager)):
                    assert a.dtype == b.dtype and a.stride() == b.stride()
                    torch.testing.assert_close(a, b, rtol=loose, atol=loose)
        assert oxyfuel.stats()["extern_calls"] == 0


def test_batch_norm_evaluation():
    def backward(grad, x, w, mean, var):
        mask = [True, True, True]
        return aten.native_batch_norm_backward(grad, x, w, mean, var, None, None, False, 1e-5, mask)

    weight, mean, var = torch.rand(3, 8) + 0.5
    for x in layouts(torch.randn(4, 8, 5, 6)):
        check(backward, torch.randn(4, 8, 5, 6), x, weight, mean, var, tolerance=1e-5)


@pytest.mark.parametrize("reduction", [0, 1, 2])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_losses(dtype, reduction):
    loose = tolerance_of(dtype)
    for x in layouts(torch.randn(7, 19).to(dtype)):
        y = torch.rand(7, 19).to(dtype)
        grad = torch.randn([7, 19] if reduction == 0 else []).to(dtype)
        check(
            lambda g, a, b: aten.mse_loss_backward(g, a, b, reduction), grad, x, y, tolerance=loose
        )
        check(
            lambda g, a, b: aten.smooth_l1_loss_backward(g, a, b, reduction, 0.5),
            grad,
            x,
            y,
            tolerance=loose,
        )
        check(
            lambda g, a, b: aten.huber_loss_backward(g, a, b, reduction, 0.5),
            grad,
            x,
            y,
            tolerance=loose,
        )
        check(
            lambda g, a, b: aten.soft_margin_loss_backward(g, a, b, reduction),
            grad,
            x,
            y.sub(0.5).sign(),
            tolerance=loose,
        )
        check(
            lambda g, a, b: aten.binary_cross_entropy_backward(g, a, b, None, reduction),
            grad,
            x.sigmoid(),
            y,
            tolerance=loose,
        )


@pytest.mark.parametrize("reduction", [0, 1, 2])
@pytest.mark.parametrize("weighted", [False, True])
def test_cross_entropy(reduction, weighted):
    """Loss and gradient: nll_loss_backward, then log_softmax's."""
    weight = torch.rand(19) if weighted else None

    def step(x, target, grad, w):
        logs = x.log_softmax(1)
        image = x.dim() == 4
        forward = aten.nll_loss2d_forward if image else aten.nll_loss_forward
        backward = aten.nll_loss2d_backward if image else aten.nll_loss_backward
        loss, total = forward(logs, target, w, reduction, -100)
        dlogs = backward(grad, logs, target, w, reduction, -100, total)
        return loss, aten._log_softmax_backward_data(dlogs, logs, 1, x.dtype)

    target = torch.tensor([1, 4, -100, 0, 18, 3, 3])
    for x in layouts(torch.randn(7, 19)):
        grad = torch.randn(7 if reduction == 0 else [])
        check(step, x, target, grad, weight, tolerance=1e-5)
    image, target = torch.randn(2, 19, 5, 6), torch.randint(0, 19, (2, 5, 6))
    grad = torch.randn([2, 5, 6] if reduction == 0 else [])
    check(step, image, target, grad, weight, tolerance=1e-5)


def test_cross_entropy_out_of_range():
    logs, total, grad = torch.randn(7, 19).log_softmax(1), torch.tensor(7.0), torch.tensor(1.0)
    f = lambda g, x, t, w: aten.nll_loss_backward(g, x, t, None, 1, -100, w)
    compiled = oxyfuel.compile(f, options={"strict": True})
    with torch.no_grad():
        compiled(grad, logs, torch.arange(7), total)
        for wrong in (19, -1, 1 << 40):
            target = torch.arange(7).index_fill(0, torch.tensor([5]), wrong)
            with pytest.raises((IndexError, RuntimeError), match="out of bounds"):
                compiled(grad, logs, target, total)


def norms(x, grad, w, b):
    """A backward with sizes from its operands."""
    c = x.shape[-1]
    y, mean, rstd = aten.native_layer_norm(x, [c], w, b, 1e-5)
    dy = aten.gelu_backward(grad, y)
    dx, dw, db = aten.native_layer_norm_backward(dy, x, [c], mean, rstd, w, b, [True] * 3)
    s = x.softmax(-1)
    return dx + aten._softmax_backward_data(grad, s, -1, s.dtype), dw, db


def losses(x, grad, w, b):
    y = (x * w + b).flatten(0, 1)
    logs = y.log_softmax(1)
    target = logs.argmax(1)
    loss, total = aten.nll_loss_forward(logs, target, None, 1, -100)
    dlogs = aten.nll_loss_backward(loss, logs, target, None, 1, -100, total)
    dy = aten._log_softmax_backward_data(dlogs, logs, 1, logs.dtype)
    return dy, aten.mse_loss_backward(loss, x, grad, 1)


def batch_norm(x, grad, w, b):
    x, grad = x.transpose(1, 2), grad.transpose(1, 2)
    y, mean, invstd = aten.native_batch_norm(x, w, b, None, None, True, 0.1, 1e-5)
    rest = (mean, invstd, True, 1e-5, [True] * 3)
    return (y, *aten.native_batch_norm_backward(grad, x, w, None, None, *rest))


def pools(x, grad, w, b):
    """Images of sizes that vary: one dimension of channels in front."""
    y, places = aten.max_pool2d_with_indices(x, [3, 3], [2, 2], [1, 1])
    rest = ([3, 3], [2, 2], [1, 1], [1, 1], False, places)
    dx = aten.max_pool2d_with_indices_backward(y * 2, x, *rest)
    mean = aten._adaptive_avg_pool2d_backward(grad.mean((1, 2), keepdim=True), grad)
    left = aten.select_backward(x[:, 1], x.shape, 1, 1)
    return dx, mean, left + aten.slice_backward(x[:, 1:], x.shape, 1, 1, 1 << 40, 1)


@pytest.mark.parametrize("f", [norms, losses, batch_norm, pools])
def test_sizes_that_vary(f):
    """One compilation for every batch and length; only pooling itself is an extern call there."""
    oxyfuel.reset()
    compiled = oxyfuel.compile(f, dynamic=True, options={"strict": True})
    w, b = torch.randn(2, 24)
    with torch.no_grad():
        for n, length in ((3, 5), (4, 7), (2, 9), (8, 33), (5, 4)):
            x, grad = torch.randn(2, n, length, 24)
            for got, expected in zip(compiled(x, grad, w, b), f(x, grad, w, b)):
                assert got.stride() == expected.stride()
                torch.testing.assert_close(got, expected, rtol=2e-5, atol=2e-5)
    stats = oxyfuel.stats()
    assert stats["extern_calls"] == (f is pools)
    assert stats["recompiles"] == 0 and stats["graph_breaks"] == 0


def test_views():
    """Gradients of what overlaps are added in one loop."""

    def f(a, b, c, d):
        whole = aten.select_backward(a, [6, 7, 8], 1, 2)
        whole = whole + aten.slice_backward(b, [6, 7, 8], 1, 3, 1 << 40, 2)
        whole = whole + aten.diagonal_backward(c, [6, 7, 8], 1, 0, 1)
        return whole + aten.unfold_backward(d, [6, 7, 8], 2, 4, 2)

    x = torch.randn(6, 7, 8)
    args = (x.select(1, 2), x[:, 3::2], x.diagonal(1, 0, 1), x.unfold(2, 4, 2))
    for a in layouts(args[0]):
        check(f, a, *args[1:])


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("mode", ["reflect", "replicate"])
def test_padding(mode, dtype):
    op = aten.reflection_pad2d_backward if mode == "reflect" else aten.replication_pad2d_backward
    for x in layouts(torch.randn(2, 4, 9, 12).to(dtype)):
        grad = torch.randn(2, 4, 13, 15).to(dtype)
        check(lambda g, x: op(g, x, [1, 2, 3, 1]), grad, x, tolerance=0)


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_convolution(dims):
    """An extern call whose results' layouts are predicted."""
    x, w = torch.randn(2, 8, 9, 10, 11)[(..., *[0] * (3 - dims))], torch.randn(6, 8, *[3] * dims)
    rest = ([1], [1], [1], False, [0], 1)
    y = aten.convolution(x, w, None, *rest)
    back = lambda g, x, w: aten.convolution_backward(g, x, w, [6], *rest, [True] * 3)
    for a in layouts(x):
        for b in layouts(w):
            check(back, torch.randn_like(y), a, b, loops=False, tolerance=1e-5)


def test_attention():
    """The same of attention."""
    q, k = torch.randn(2, 3, 7, 8), torch.randn(2, 3, 5, 8)
    y, sums = aten._scaled_dot_product_flash_attention_for_cpu(q, k, k)
    op = aten._scaled_dot_product_flash_attention_for_cpu_backward
    for a in layouts(q):
        for b in layouts(k):
            check(
                lambda *t: op(*t, 0.0, False),
                torch.randn_like(y),
                a,
                b,
                k,
                y,
                sums,
                loops=False,
                tolerance=1e-5,
            )


@pytest.mark.parametrize("kernel, padding", [(2, 0), (3, 1)])
@pytest.mark.parametrize("dtype", FLOATS)
def test_pooling(dtype, kernel, padding):
    """To the bit: eager's order, rounded where it rounds. Planes whose windows are in no simple
    order may be calls."""
    windows = ([kernel] * 2, [2, 2], [padding] * 2)

    def maximum(grad, x):
        y, places = aten.max_pool2d_with_indices(x, *windows)
        rest = (*windows, [1, 1], False, places)
        return y, aten.max_pool2d_with_indices_backward(grad, x, *rest)

    def average(grad, x):
        return aten.avg_pool2d_backward(grad, x, *windows, False, False, None)

    for x in layouts(torch.randn(2, 4, 18, 24).to(dtype)):
        grad = torch.randn(2, 4, 9, 12).to(dtype)
        last = x.is_contiguous(memory_format=torch.channels_last)
        wide = dtype in (torch.float32, torch.float64)
        check(maximum, grad, x, tolerance=0, loops=last or wide or kernel == 2)
        check(average, grad, x, tolerance=0, loops=last or kernel == 2)


@pytest.mark.parametrize("dtype", FLOATS)
def test_adaptive_pooling(dtype):
    for x in layouts(torch.randn(2, 4, 18, 24).to(dtype)):
        last = x.is_contiguous(memory_format=torch.channels_last)
        for size in ((1, 1), (9, 6), (5, 7)):
            loops = last or size != (5, 7)
            grad = torch.randn(2, 4, *size).to(dtype)
            check(aten._adaptive_avg_pool2d_backward, grad, x, tolerance=0, loops=loops)
            places = aten.adaptive_max_pool2d(x, size)[1]
            check(aten.adaptive_max_pool2d_backward, grad, x, places, tolerance=0, loops=loops)


@pytest.mark.parametrize("dtype", FLOATS)
def test_upsampling(dtype):
    for grad in layouts(torch.randn(2, 4, 12, 18).to(dtype)):
        nearest = lambda g: aten.upsample_nearest2d_backward(g, [12, 18], [2, 4, 4, 9])
        check(nearest, grad, tolerance=1e-6)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("exact", [False, True])
def test_upsampling_to_any_size(dtype, exact):
    """Each place is repeated as often as its neighbours, more or less often, or not at all."""
    name = "_upsample_nearest_exact" if exact else "upsample_nearest"
    for image in ([2, 20, 4, 9], [2, 20, 7, 4, 9]):
        dims = len(image) - 2
        op = getattr(aten, f"{name}{dims}d_backward")
        for size in ([12, 18], [3, 4], [9, 23], [4, 9], [11, 9]):
            to = [*([5] * (dims - 2)), *size]
            for grad in layouts(torch.randn(2, 20, *to).to(dtype)):
                last = not grad.is_contiguous() and grad.stride(1) == 1
                even = all(t % f == 0 for f, t in zip(image[2:], to, strict=True))
                call = lambda g, op=op, to=to, image=image: op(g, to, image)
                check(call, grad, tolerance=tolerance_of(dtype), loops=last or even)
    growth = lambda g: aten.upsample_nearest2d_backward(g, [5, 11], [2, 20, 4, 9], 1.3, 1.25)
    grad = torch.randn(2, 20, 5, 11).to(dtype).contiguous(memory_format=torch.channels_last)
    check(growth, grad, tolerance=1e-6, loops=False)
