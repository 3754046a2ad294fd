"""Random calls of ordinary functions on odd shapes and layouts: values against eager's, and times.

    python bench/layouts.py --seconds 300 [--seed 0]

Each draw is a function, a shape of 20 thousand to a million elements, a dtype, and a layout for
each of two operands: contiguous, transposed, permuted, sliced, stepped, expanded. One thread,
both sides in turn, the least of many calls. Printed are other values, what takes more than 1.08
of eager's time (of what takes that more than 15 us), and the geometric mean of all. A seed draws
the same calls again, as far as the time goes.
"""

import argparse
import math
import random
import time
import warnings

import torch
import torch.nn.functional as F

import oxyfuel

FUNCTIONS = {
    "exp": lambda x, y: torch.exp(x),
    "gelu": lambda x, y: F.gelu(x),
    "add": lambda x, y: x + y,
    "mul_add": lambda x, y: x * y + x,
    "add, contiguous": lambda x, y: (x + y).contiguous(),
    "sigmoid_mul": lambda x, y: torch.sigmoid(x) * y,
    "where": lambda x, y: torch.where(x > 0, x, y),
    "clamp": lambda x, y: x.clamp(-1, 1),
    "cast to bf16": lambda x, y: x.to(torch.bfloat16),
    "cast to f32": lambda x, y: x.float() + 1,
    "softmax(-1)": lambda x, y: x.softmax(-1),
    "softmax(0)": lambda x, y: x.softmax(0),
    "softmax(1)": lambda x, y: x.softmax(1),
    "log_softmax(-1)": lambda x, y: x.log_softmax(-1),
    "logsumexp(-1)": lambda x, y: x.logsumexp(-1),
    "sum(-1)": lambda x, y: x.sum(-1),
    "sum(0)": lambda x, y: x.sum(0),
    "sum(1)": lambda x, y: x.sum(1),
    "sum of products": lambda x, y: (x * y).sum((0, -1)),
    "mean": lambda x, y: x.mean(),
    "var(-1)": lambda x, y: x.var(-1),
    "var(0)": lambda x, y: x.var(0),
    "prod(-1)": lambda x, y: x.prod(-1),
    "norm(-1)": lambda x, y: x.norm(dim=-1),
    "amax(-1)": lambda x, y: x.amax(-1),
    "max(0)": lambda x, y: x.max(0)[0],
    "argmax(-1)": lambda x, y: x.argmax(-1),
    "argmax(0)": lambda x, y: x.argmax(0),
    "any(-1)": lambda x, y: (x > 2).any(-1),
    "all(0)": lambda x, y: (x > -9).all(0),
    "count": lambda x, y: (x > y).sum(),
    "mse_loss": lambda x, y: F.mse_loss(x, y),
    "layer_norm": lambda x, y: F.layer_norm(x, x.shape[-1:]),
    "rms norm": lambda x, y: x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6),
    "standardise": lambda x, y: (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + 1e-5),
    "centre(0)": lambda x, y: x - x.mean(0, keepdim=True),
    "divide by row": lambda x, y: x / (x.abs().sum(-1, keepdim=True) + 1),
    "row times matrix": lambda x, y: x.sum(-1, keepdim=True) * y,
    "cumsum(-1)": lambda x, y: x.cumsum(-1),
    "cumsum(0)": lambda x, y: x.cumsum(0),
    "sort": lambda x, y: x.sort(-1)[0],
    "topk": lambda x, y: x.topk(2, -1)[0],
    "cat(-1)": lambda x, y: torch.cat([x, y], -1),
    "cat(0)": lambda x, y: torch.cat([x, y], 0),
    "stack": lambda x, y: torch.stack([x, y], -1),
    "flip": lambda x, y: x.flip(-1),
    "roll": lambda x, y: x.roll(3, -1),
    "pad": lambda x, y: F.pad(x, (1, 2)),
    "triu": lambda x, y: x.triu(),
    "diff": lambda x, y: x.diff(dim=-1),
    "repeat_interleave": lambda x, y: x.repeat_interleave(2, -1),
    "mT, contiguous": lambda x, y: x.mT.contiguous(),
    "transpose, contiguous": lambda x, y: x.transpose(0, 1).contiguous(),
    "unfold": lambda x, y: x.unfold(-1, 2, 1).sum(-1),
    "gather": lambda x, y: x.gather(-1, (y * 0).long()),
    "every second": lambda x, y: x[..., torch.arange(0, x.shape[-1], 2)],
    "glu": lambda x, y: F.glu(torch.cat([x, x], -1)),
}
SIZES = (2, 3, 5, 7, 8, 12, 16, 17, 30, 33, 40, 56, 64, 65, 96, 100, 127, 128, 200, 256, 300)
ELEMENTS = (20_000, 60_000, 200_000, 1_000_000)
DTYPES = (
    *[torch.float32] * 4,
    torch.bfloat16,
    torch.float16,
    torch.float64,
    torch.int64,
    torch.int32,
)
DTYPES += (torch.uint8, torch.bool)
SLOWER, SHORTEST = 1.08, 15e-6  # what is printed: of eager's time, seconds of eager's


def draw_shape(r: random.Random) -> list[int]:
    wanted = r.choice(ELEMENTS)
    shape = [r.choice(SIZES) for _ in range(r.choice((2, 3, 3, 4)))]
    while math.prod(shape) > wanted and max(shape) > 2:
        shape[shape.index(max(shape))] = max(2, max(shape) // 2)
    while math.prod(shape) * 2 < wanted:
        shape[r.randrange(len(shape))] *= 2
    return shape


def draw_operand(r: random.Random, shape: list[int], dtype: torch.dtype):
    """A tensor and the name of its layout."""
    t = torch.randn(shape) * 3
    t = (t.abs() if dtype == torch.uint8 else t).to(dtype)
    kind = r.choice(("contiguous", "transposed", "permuted", "sliced", "stepped", "expanded"))
    last = shape[-1]
    if kind == "transposed":
        t = t.mT.contiguous().mT
    elif kind == "permuted":
        order = r.sample(range(t.dim()), t.dim())
        t = t.permute(order).contiguous().permute([order.index(d) for d in range(t.dim())])
        kind = f"permuted {order}"
    elif kind == "sliced":
        whole = t.new_zeros(*shape[:-1], last + 9)
        whole[..., 3 : 3 + last] = t
        t = whole[..., 3 : 3 + last]
    elif kind == "stepped":
        whole = t.new_zeros(*shape[:-1], 2 * last)
        whole[..., ::2] = t
        t = whole[..., ::2]
    elif kind == "expanded":
        t = t[:1].expand_as(t)
    return t, kind


def least(f, seconds: float) -> float:
    f(), f()
    times, end = [], time.perf_counter() + seconds
    while len(times) < 5 or time.perf_counter() < end:
        start = time.perf_counter()
        f()
        times.append(time.perf_counter() - start)
    return min(times)


def compare(got: torch.Tensor, want: torch.Tensor) -> None:
    assert got.numel() < 2 or got.stride() == want.stride(), (got.stride(), want.stride())
    tolerance = 0.05 if want.is_floating_point() else 0
    size = float(want.double().abs().nan_to_num(0, 0, 0).mean())
    torch.testing.assert_close(
        got, want, rtol=tolerance, atol=tolerance * size + tolerance * 1e-4, equal_nan=True
    )


def main() -> None:
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    a.add_argument("--seconds", type=float, default=300)
    a.add_argument("--seed", type=int, default=0)
    given = a.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    r = random.Random(given.seed)
    ratios, end = [], time.perf_counter() + given.seconds
    while time.perf_counter() < end:
        shape, dtype, name = draw_shape(r), r.choice(DTYPES), r.choice(list(FUNCTIONS))
        function = FUNCTIONS[name]
        (x, of_x), (y, of_y) = (draw_operand(r, shape, dtype) for _ in range(2))
        call = f"{name} {shape} {str(dtype)[6:]}, {of_x}, {of_y}"
        try:
            want = function(x, y)
        except (RuntimeError, IndexError):
            continue  # not for this dtype or rank
        oxyfuel.reset()
        compiled = oxyfuel.compile(function)
        try:
            compiled(x, y)
            compare(compiled(x, y), want)
        except Exception as error:
            print("other:", call, str(error)[:200], flush=True)
            continue
        eager, ours = (least(lambda f=f: f(x, y), 0.012) for f in (function, compiled))
        if eager > SHORTEST and ours > SLOWER * eager:  # again, for longer
            eager = min(eager, least(lambda: function(x, y), 0.03))
            ours = min(ours, least(lambda: compiled(x, y), 0.03))
        ratios.append(ours / eager)
        if eager > SHORTEST and ours > SLOWER * eager:
            print(f"{ours / eager:.2f} {call}: {eager * 1e6:.0f} {ours * 1e6:.0f} us", flush=True)
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    slower = sum(ratio > SLOWER for ratio in ratios)
    print(f"{len(ratios)} calls, {mean:.3f} in the geometric mean, {slower} above {SLOWER}")


if __name__ == "__main__":
    main()
