"""flex_attention by TorchInductor and by ours, one process, in turn; milliseconds.

usage: flex_attention.py [--threads N] [--rounds N] [CASE...]

A row a case, dtype and shape: both times, the quotient, our first call, the largest difference.
"""

import argparse
import time

import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import oxyfuel

SHAPES = [(1, 8, 128, 64), (2, 8, 256, 64), (1, 8, 1024, 64), (1, 8, 4096, 64), (4, 8, 1024, 64)]
SLOPES = torch.rand(8)


def causal(b, h, q, k):
    return q >= k


def window(b, h, q, k):
    return (q >= k) & (q - k < 256)


CASES = {
    "causal": (None, causal),
    "alibi": (lambda s, b, h, q, k: s + SLOPES[h] * (k - q), causal),
    "window": (None, window),
    "softcap": (lambda s, b, h, q, k: 20 * torch.tanh(s / 20), None),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", default=list(CASES))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=7)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    for shape in SHAPES:
        for dtype in (torch.float32, torch.bfloat16):
            for name in args.cases:
                measure(name, dtype, shape, args.rounds)


@torch.no_grad()
def measure(name, dtype, shape, rounds):
    score, mask = CASES[name]
    given = [torch.randn(shape).to(dtype) for _ in range(3)]
    blocks = mask and create_block_mask(mask, None, None, shape[2], shape[2], device="cpu")

    def f(q, k, v):
        return flex_attention(q, k, v, score, blocks)

    torch._dynamo.reset()
    ours, theirs = oxyfuel.compile(f), torch.compile(f)
    begin = time.perf_counter()
    result = ours(*given)
    first = time.perf_counter() - begin
    difference = (result - theirs(*given)).abs().max()
    least = {}
    for _ in range(rounds):
        for compiled in (ours, theirs):
            begin = time.perf_counter()
            compiled(*given)
            took = time.perf_counter() - begin
            least[compiled] = min(took, least.get(compiled, took))
    sizes = "x".join(map(str, shape))
    print(
        f"{name} {str(dtype)[6:]} {sizes}: Inductor {least[theirs] * 1e3:.2f}, "
        f"ours {least[ours] * 1e3:.2f} ({least[ours] / least[theirs]:.2f}); "
        f"first call {first * 1e3:.0f}; difference {difference:.1e}",
        flush=True,
    )


if __name__ == "__main__":
    main()
