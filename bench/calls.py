"""First calls and calls: eager, torch.compile and oxyfuel.compile on one machine in one run; prints
two Markdown tables.

usage: calls.py [--out FILE] [--first | --warm] [CASE ...]

A first call is measured in a process of its own with empty caches, the model made and called once
in eager before. Calls are measured in turn in one process: the least time of many tight loops,
divided by the length of the loop.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time

import torch

import cases

FIRST = ("tiny", "adds1000", "branch", "rounds20", "bert", "llama", "resnet50")
WARM = ("tiny", "toy_break", "deep_tiny", "residual_tiny", "branch", "rounds20")
MODES = ("eager", "inductor", "oxyfuel")


def compiled(fn, mode):
    if mode == "eager":
        return fn
    if mode == "inductor":
        return torch.compile(fn, dynamic=False)
    import oxyfuel

    return oxyfuel.compile(fn)


def timed(call, count=1):
    start = time.perf_counter()
    for _ in range(count):
        call()
    return (time.perf_counter() - start) / count


def facts_of_oxyfuel():
    """A call that ran in eager spoils the row."""
    import oxyfuel

    stats = oxyfuel.stats()
    if stats["fallbacks"] or stats["unsupported"] or stats["grad_fallbacks"]:
        raise RuntimeError(f"Oxyfuel ran in eager: {stats}")
    return {key: stats[key] for key in ("graphs", "graph_breaks", "compile_seconds")}


def first_call(name, mode):
    """Seconds of the first call, and of it for Oxyfuel what is not compiling a graph: capture,
    recording, guards."""
    fn, args, kwargs = cases.make(name)
    fn(*args, **kwargs)
    call = compiled(fn, mode)
    row = {"case": name, "mode": mode, "first_s": timed(lambda: call(*args, **kwargs))}
    row["then_s"] = min(timed(lambda: call(*args, **kwargs)) for _ in range(3))
    if mode == "oxyfuel":
        row.update(facts_of_oxyfuel())
        row["capture_s"] = row["first_s"] - row["compile_seconds"] - row["then_s"]
    return row


def calls(name, budget):
    """Seconds a call of each mode."""
    fn, args, kwargs = cases.make(name)
    runs = {mode: compiled(fn, mode) for mode in MODES}
    loops, best = {}, {}
    for mode, run in runs.items():
        for _ in range(5):
            run(*args, **kwargs)
        once = timed(lambda run=run: run(*args, **kwargs), 20)
        loops[mode] = max(1, int(0.005 / once))
        best[mode] = once
    facts_of_oxyfuel()
    end = time.perf_counter() + budget
    while time.perf_counter() < end:
        for mode, run in runs.items():
            if kwargs:
                spent = timed(lambda run=run: run(*args, **kwargs), loops[mode])
            else:
                spent = tight_loop(run, args, loops[mode])
            best[mode] = min(best[mode], spent)
    return {"case": name, **{f"{mode}_s": best[mode] for mode in MODES}}


def tight_loop(run, args, count):
    """As timed, with nothing but the call in the loop."""
    if len(args) == 1:
        (a,) = args
        start = time.perf_counter()
        for _ in range(count):
            run(a)
    else:
        start = time.perf_counter()
        for _ in range(count):
            run(*args)
    return (time.perf_counter() - start) / count


def in_a_process(*arguments):
    with tempfile.TemporaryDirectory() as cache:
        env = dict(os.environ, TORCHINDUCTOR_CACHE_DIR=cache, OXYFUEL_CACHE_DIR=f"{cache}/oxyfuel")
        done = subprocess.run(
            [sys.executable, __file__, *arguments], env=env, capture_output=True, text=True
        )
    if done.returncode:
        print(done.stderr[-2000:], file=sys.stderr)
        return None
    return json.loads(done.stdout.strip().splitlines()[-1])


def print_first_calls(names, out):
    print("| first call, cold | torch.compile s | Oxyfuel s | of it not compiling | times faster |")
    print("| --- | --- | --- | --- | --- |")
    for name in names:
        theirs, ours = (in_a_process("--one", mode, name) for mode in ("inductor", "oxyfuel"))
        if theirs is None or ours is None:
            print(f"| {name} | failed |")
            continue
        for row in (theirs, ours):
            out.write(json.dumps(row) + "\n")
        print(
            f"| {name} | {theirs['first_s']:.2f} | {ours['first_s']:.3f} | {ours['capture_s']:.3f} "
            f"| {theirs['first_s'] / ours['first_s']:.0f} |",
            flush=True,
        )


def print_calls(names, out):
    print("| call, us | eager | torch.compile | Oxyfuel | / eager | / torch.compile |")
    print("| --- | --- | --- | --- | --- | --- |")
    for name in names:
        row = in_a_process("--one", "calls", name)
        if row is None:
            print(f"| {name} | failed |")
            continue
        out.write(json.dumps(row) + "\n")
        eager, theirs, ours = (row[f"{mode}_s"] * 1e6 for mode in MODES)
        print(
            f"| {name} | {eager:.2f} | {theirs:.2f} | {ours:.2f} | {ours / eager:.2f} | "
            f"{ours / theirs:.2f} |",
            flush=True,
        )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", default="bench_calls.jsonl")
    parser.add_argument("--one", choices=(*MODES, "calls"), help="one measurement in this process")
    parser.add_argument("--budget", type=float, default=6.0, help="seconds of timing calls")
    parser.add_argument("--first", action="store_true", help="first calls alone")
    parser.add_argument("--warm", action="store_true", help="calls alone")
    parser.add_argument("cases", nargs="*", default=None)
    options = parser.parse_args()
    if options.one:
        torch.set_num_threads(int(os.environ.get("THREADS", "2")))
        with torch.no_grad():
            name = options.cases[0]
            row = (
                calls(name, options.budget)
                if options.one == "calls"
                else first_call(name, options.one)
            )
        print(json.dumps(row), flush=True)
        return
    with open(options.out, "a") as out:
        if not options.warm:
            print_first_calls(options.cases or FIRST, out)
        if not options.first and not options.warm:
            print()
        if not options.first:
            print_calls(options.cases or WARM, out)


if __name__ == "__main__":
    main()
