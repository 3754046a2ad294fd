"""What a mask selects: computed everywhere, in loops without the list of places, with eager's
results and gradients."""

import random

import pytest
import torch
import torch.nn.functional as F

import oxyfuel

pytestmark = [
    pytest.mark.usefixtures("fresh", "nothing_said_of_sizes"),
    pytest.mark.filterwarnings("ignore"),
]

STEPS = [
    lambda v, w: v * 2 + w,
    lambda v, w: (v - v.mean()) * w,
    lambda v, w: torch.where(v > w, v, w * 0.5),
    lambda v, w: v.sigmoid() * w.tanh(),
    lambda v, w: v.clamp(-1, 1) - torch.zeros_like(w),
    lambda v, w: v / (1 + w.abs()),
    lambda v, w: torch.full_like(v, 0.5) * w + v.sum(0) * 0.1,
    lambda v, w: (v.double() + 1).to(v.dtype) * w,
]

ENDS = [
    lambda x, y, m, v: v.sum(),
    lambda x, y, m, v: v.mean() * 2,
    lambda x, y, m, v: F.mse_loss(v, y[m]),
    lambda x, y, m, v: F.smooth_l1_loss(v, y[m], reduction="sum"),
    lambda x, y, m, v: F.huber_loss(v, y[m]),
    lambda x, y, m, v: F.binary_cross_entropy_with_logits(v, (y[m] > 0).to(v.dtype)),
    lambda x, y, m, v: F.l1_loss(v, y[m]) / m.sum(),
    lambda x, y, m, v: put(x * 1.0, m, v),
    lambda x, y, m, v: put(y.clone(), m, v) + x,
    lambda x, y, m, v: put(torch.zeros_like(x), m, v.sqrt()).nan_to_num() * y,
    lambda x, y, m, v: put(x.t().contiguous().t() * 1.0, m, v),
    lambda x, y, m, v: x.index_put((m,), v, accumulate=True),
    lambda x, y, m, v: (v.sum(0), v.shape[0], (v > 0).any(), (v > -9).all()),
    lambda x, y, m, v: (v, v.sum()),  # the selection itself is a result
    lambda x, y, m, v: v.sort(0).values.sum(),  # something else is done with it
]


def put(x, m, v):
    x[m] = v
    return x


def tensors(r, dtype, shape, layout):
    def one():
        t = torch.randn(shape).to(dtype)
        if layout == "transposed":
            return t.transpose(0, 1).contiguous().transpose(0, 1)
        return torch.cat([t, t])[: len(t)] if layout == "part" else t

    return one(), one()


def run(f, x, y, m, gradient):
    x = x.clone().requires_grad_(gradient)
    out = f(x, y, m)
    first = out[0] if isinstance(out, tuple) else out
    if gradient and first.requires_grad:
        first.sum().backward()
    return out, x.grad


def tolerance(dtype):
    return {torch.float32: (2e-5, 2e-5), torch.float64: (1e-12, 1e-12)}.get(dtype, (2e-2, 5e-2))


@pytest.mark.parametrize("seed", range(60))
def test_drawn_programs(seed):
    r = random.Random(seed)
    torch.manual_seed(seed)
    dtype = r.choice([torch.float32, torch.float32, torch.float64, torch.bfloat16])
    shape = r.choice([(6, 7), (40, 33), (9, 3), (64, 64)])
    of_rows = shape[1] <= 3 and r.random() < 0.7
    steps, end = [r.choice(STEPS) for _ in range(r.randrange(3))], r.choice(ENDS)
    x, y = tensors(r, dtype, shape, r.choice(["plain", "transposed", "part"]))

    def f(x, y, m):
        v = x[m] if r_index else x.masked_select(m)
        for step in steps:
            v = step(v, y[m])
        return end(x, y, m, v)

    r_index = of_rows or r.random() < 0.7
    gradient = dtype != torch.bfloat16 and r.random() < 0.6
    compiled = oxyfuel.compile(f)
    rtol, atol = tolerance(dtype)
    for share in (0.3, 0.9, 0.0, 1.0, 0.02):
        m = torch.rand(shape[:1] if of_rows else shape) < share
        got, expected = run(compiled, x, y, m, gradient), run(f, x, y, m, gradient)
        torch.testing.assert_close(got, expected, rtol=rtol, atol=atol, equal_nan=True)


def test_one_kernel_and_no_places():
    def f(x, y):
        m = y > 0
        x = x.clone()
        x[m] = x[m] * 2 + y[m]
        return x

    compiled = oxyfuel.compile(f)
    x, y = torch.randn(2, 50, 60)
    torch.testing.assert_close(compiled(x, y), f(x, y), rtol=0, atol=0)
    stats = oxyfuel.stats()
    assert (stats["kernels"], stats["extern_calls"], stats["graph_breaks"]) == (1, 0, 0)


def test_what_is_left_out_does_not_raise():
    def f(x, y):
        m = y != 0
        out = torch.zeros_like(x)
        out[m] = x[m] // y[m]
        return out, x[m] % y[m]

    x, y = torch.randint(-9, 9, (2, 30, 20))
    got = oxyfuel.compile(f)(x, y)
    torch.testing.assert_close(got, f(x, y), rtol=0, atol=0)


def test_what_is_left_out_has_no_gradient():
    def f(x):
        return x[x > 0].log().sum() + x[x > 0].sqrt().mean()

    x = torch.randn(40, 30)
    x[0] = 0
    got = run(lambda x, y, m: oxyfuel.compile(f)(x), x, None, None, True)
    torch.testing.assert_close(got, run(lambda x, y, m: f(x), x, None, None, True))


def test_integers_and_truths():
    def f(x, m):
        v = x[m]
        return v.sum(), (v > 2).any(), (v * 2).prod(), x.masked_select(m).eq(1).sum()

    for dtype in (torch.int64, torch.int32, torch.uint8, torch.bool):
        x, m = torch.randint(0, 4, (5, 6)).to(dtype), torch.rand(5, 6) > 0.5
        torch.testing.assert_close(oxyfuel.compile(f)(x, m), f(x, m), rtol=0, atol=0)


def test_dimensions_around_the_mask():
    def f(x, m, n):
        x = x.clone()
        x[:, m] = x[:, m].exp() + 1
        a = x[:, m].sum()
        return x, a, x[n].sum(0), x[n].mean()

    x = torch.randn(2, 9, 2)
    args = x, torch.rand(9) > 0.5, torch.rand(2) > 0.5
    torch.testing.assert_close(oxyfuel.compile(f)(*args), f(*args))


def test_an_input_written_in_front_of_the_backward():
    def f(x, w, m):
        return (x[m] * w[m]).sum()

    x, m = torch.randn(20, 20), torch.rand(20, 20) > 0.5
    results = []
    for function in (f, oxyfuel.compile(f)):
        w, data = x.clone().requires_grad_(), x.clone()
        out = function(data, w, m)
        data.zero_()  # eager has kept what was selected
        out.backward()
        results.append(w.grad)
    torch.testing.assert_close(results[1], results[0])


def test_masks_that_are_broadcast():
    def f(x, m, c):
        return x.masked_select(m).sum(), x.masked_select(c).mean(), x.masked_scatter(m, x * 2)

    x, m, c = torch.randn(5, 5), torch.rand(5) > 0.5, torch.rand(5, 1) > 0.5
    torch.testing.assert_close(oxyfuel.compile(f)(x, m, c), f(x, m, c))


def test_two_lists_of_the_same_places():
    def f(x, m):
        a, b = m.nonzero(), m.nonzero()
        return x[a[:, 0], a[:, 1]].sum() + x[b[:, 1], b[:, 0]].sum()

    x, m = torch.randn(5, 5), torch.rand(5, 5) > 0.5
    torch.testing.assert_close(oxyfuel.compile(f)(x, m), f(x, m))
