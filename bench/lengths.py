"""Calls at many lengths: one compilation with symbolic sizes against one for each length, eager and
Inductor with dynamic=True.

usage: lengths.py [MODEL...] [--no-inductor] [--budget SECONDS] [--threads N]

A row a length: medians of calls in turn, in milliseconds, all in one process. Behind the rows of a
model stand its recompiles over all lengths, its first calls in seconds (the first length, captured
with numbers, then the second, with symbols; Inductor's first), and the geometric means.
"""

import argparse
import math
import time
import warnings

import torch

import cases
import oxyfuel

LENGTHS = (2, 3, 5, 8, 11, 16, 17, 24, 32, 47, 64, 80, 100, 128, 160, 200, 250, 320, 384, 512)
MODELS = {
    "bert": lambda n: (cases.tokens(1, n),),
    "gpt2": lambda n: (cases.tokens(1, n),),
    "llama": lambda n: (cases.tokens(1, n, 8000),),
}


def seconds(call, *args):
    start = time.perf_counter()
    call(*args)
    return time.perf_counter() - start


def in_turn(calls, args, budget):
    """The median milliseconds of each call."""
    times = [[] for _ in calls]
    end = time.perf_counter() + budget
    while time.perf_counter() < end or len(times[0]) < 5:
        for call, kept in zip(calls, times, strict=True):
            kept.append(seconds(call, *args))
    return [sorted(kept)[len(kept) // 2] * 1e3 for kept in times]


def mean(ratios):
    return math.exp(sum(map(math.log, ratios)) / len(ratios))


def measure(name, inductor, budget):
    make = MODELS[name]
    fn = cases.make(name)[0]
    oxyfuel.reset()
    symbolic = oxyfuel.compile(fn)
    firsts = [seconds(symbolic, *make(n)) for n in LENGTHS[5:7]]
    for n in LENGTHS:
        symbolic(*make(n))
    recompiles = oxyfuel.stats()["recompiles"]
    calls = {"eager": fn, "ours": symbolic}
    if inductor:
        calls["Inductor"] = torch.compile(fn, dynamic=True)
        firsts.append(seconds(calls["Inductor"], *make(LENGTHS[5])))
    ratios: dict = {}
    print(f"{name}: length, eager, ours" + (", Inductor" if inductor else "") + ", ours static")
    for n in LENGTHS:
        args = make(n)
        static = oxyfuel.compile(fn, dynamic=False)
        timed = {**calls, "static": static}
        for call in timed.values():
            call(*args)
        ms = dict(zip(timed, in_turn(list(timed.values()), args, budget), strict=True))
        print("  ".join([f"{n:6}", *(f"{v:9.3f}" for v in ms.values())]), flush=True)
        best = min(ms.get("Inductor", math.inf), ms["eager"])
        ratios.setdefault("of static", []).append(ms["ours"] / ms["static"])
        ratios.setdefault("of the better of eager and Inductor", []).append(ms["ours"] / best)
        del static, timed
    print(f"{name}: first calls {', '.join(f'{s:.2f}' for s in firsts)} s, recompiles {recompiles}")
    for what, all_of_them in ratios.items():
        print(f"{name}: {mean(all_of_them):.3f} {what}, at worst {max(all_of_them):.3f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("models", nargs="*", default=list(MODELS))
    parser.add_argument("--no-inductor", action="store_true")
    parser.add_argument("--budget", type=float, default=0.4)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    warnings.simplefilter("ignore")
    with torch.no_grad():
        for name in options.models:
            measure(name, not options.no_inductor, options.budget)


if __name__ == "__main__":
    main()
