"""Two linear layers with weights of a narrower dtype: eager, TorchInductor and ours, in one process
and in turn; microseconds.

usage: narrow_weights.py [--threads N] [--rounds N] [CASE...]

The cases compute what torchao's `quantize_` makes of nn.Linear(1024, 4096), a GELU and
nn.Linear(4096, 1024). A row a case, dtype and number of rows.
"""

import argparse
import time

import torch
import torch.nn.functional as F

import oxyfuel

SIZES = [(4096, 1024), (1024, 4096)]
GROUP = 32


def by_row(x, w, scales):
    """int8, a scale a row (Int8WeightOnlyConfig)"""
    return torch.mm(x, w.t().to(x.dtype)) * scales


def by_group(x, w, scales, zeros):
    """int8 or int4 in bytes, a scale and a zero point a group (IntxWeightOnlyConfig)"""
    groups = w.view(*zeros.shape[:2], GROUP).to(x.dtype)
    return F.linear(x, ((groups - zeros.to(x.dtype)) * scales).view(w.shape))


def dynamic(x, w, scales):
    """int8 activations too (Int8DynamicActivationInt8WeightConfig)"""
    of_rows = (x.abs().amax(1, keepdim=True).float() / 127).clamp(min=1e-9)
    narrow = (x / of_rows).round().clamp(-128, 127).to(torch.int8)
    return ((torch._int_mm(narrow, w.t()) * of_rows) * scales).to(x.dtype)


def float8(x, w, scales):
    """float8_e4m3fn, a scale a row (Float8WeightOnlyConfig)"""
    return F.linear(x, w.to(x.dtype) * scales[:, None])


def weights(case, n, k, dtype):
    scales = (torch.rand(n) / 100).to(dtype)
    if case is float8:
        return torch.randn(n, k).to(torch.float8_e4m3fn), scales
    if case is not by_group:
        return torch.randint(-128, 128, (n, k), dtype=torch.int8), scales
    w = torch.randint(-8, 8, (n, k), dtype=torch.int8)
    shape = (n, k // GROUP, 1)
    zeros = torch.randint(-8, 8, shape, dtype=torch.int8)
    return w, (torch.rand(shape) / 100).to(dtype), zeros


CASES = {f.__name__: f for f in (by_row, by_group, dynamic, float8)}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", default=list(CASES))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=15)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    print("case | dtype | rows | eager | Inductor | ours | / better")
    for name in args.cases:
        for dtype in (torch.float32, torch.bfloat16):
            for rows in (1, 4, 32):
                measure(name, dtype, rows, args.rounds)


@torch.no_grad()
def measure(name, dtype, rows, rounds):
    case = CASES[name]
    first, second = (weights(case, *size, dtype) for size in SIZES)

    def f(x, first, second):
        return case(F.gelu(case(x, *first)), *second)

    torch._dynamo.reset()
    x = torch.randn(rows, 1024).to(dtype)
    ways = [f, torch.compile(f), oxyfuel.compile(f)]
    least = [float("inf")] * len(ways)
    for round in range(rounds + 1):
        for i, way in enumerate(ways):
            begin = time.perf_counter()
            way(x, first, second)
            took = time.perf_counter() - begin
            if round > 0:
                least[i] = min(least[i], took)
    eager, inductor, ours = (1e6 * t for t in least)
    print(
        f"{name} | {str(dtype)[6:]} | {rows} | {eager:.0f} | {inductor:.0f} | {ours:.0f} | "
        f"{ours / min(eager, inductor):.2f}",
        flush=True,
    )


if __name__ == "__main__":
    main()
