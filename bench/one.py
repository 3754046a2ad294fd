"""One case in one process: eager, Inductor and Oxyfuel compiled, then timed in turn; prints one JSON object.

usage: one.py CASE [--memory MODE]    MODE: eager | inductor | oxyfuel, prints the peak of that mode alone
Times are milliseconds: the median over rounds in which each mode is called once after the other. `backend_s` is the
time in the compiler behind torch's capture for the first call, with empty caches.
"""

import argparse
import json
import os
import resource
import time

import torch

import cases

MODES = ("eager", "inductor", "oxyfuel")


def compiled(fn, mode):
    if mode == "eager":
        return fn
    if mode == "inductor":
        return torch.compile(fn)
    import oxyfuel

    return oxyfuel.compile(fn)


def backend_seconds():
    from torch._dynamo.utils import compilation_time_metrics as metrics

    return sum(sum(v) for k, v in metrics.items() if k.endswith("call_user_compiler"))


def oxyfuel_facts():
    """A call that ran in eager spoils the row."""
    import oxyfuel

    stats = oxyfuel.stats()
    if stats["fallbacks"] or stats["unsupported"] or stats["graph_breaks"]:
        raise RuntimeError(f"Oxyfuel ran in eager: {stats}")
    return {
        "oxyfuel_backend_s": stats["compile_seconds"],
        "kernels": stats["kernels"],
        "extern_calls": stats["extern_calls"],
    }


def resident_mb():
    with open("/proc/self/status") as status:
        for line in status:
            if line.startswith("VmRSS"):
                return int(line.split()[1]) / 1024


def timed(call):
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def median(values):
    return sorted(values)[len(values) // 2]


def run(name, budget):
    fn, args, kwargs = cases.make(name)
    row = {"case": name}
    calls, results = {}, {}
    for mode in MODES:
        torch._dynamo.reset()
        f = compiled(fn, mode)
        calls[mode] = lambda f=f: f(*args, **kwargs)
        before = backend_seconds() if mode != "eager" else 0
        row[f"{mode}_first_s"] = timed(lambda m=mode: results.update({m: calls[m]()}))
        if mode != "eager":
            row[f"{mode}_backend_s"] = backend_seconds() - before
        if mode == "oxyfuel":
            row.update(oxyfuel_facts())
        for _ in range(3):
            calls[mode]()
    times = {mode: [] for mode in MODES}
    end = time.perf_counter() + budget
    while time.perf_counter() < end or len(times["eager"]) < 10:
        for mode in MODES:
            times[mode].append(timed(calls[mode]))
    reference = cases.tensor_of(results["eager"]).float()
    for mode in MODES:
        row[f"{mode}_ms"] = median(times[mode]) * 1e3
        row[f"{mode}_error"] = float(
            (cases.tensor_of(results[mode]).float() - reference).abs().max()
        )
    return row


def memory(name, mode):
    fn, args, kwargs = cases.make(name)
    fn(*args, **kwargs)
    before = resident_mb()
    f = compiled(fn, mode)
    for _ in range(20):
        f(*args, **kwargs)
    row = {"case": name, "mode": mode, "before_mb": before, "after_mb": resident_mb()}
    row["peak_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    if mode == "oxyfuel":
        import oxyfuel

        row["pool_mb"] = oxyfuel.stats().get("pool_bytes", 0) / 2**20
    return row


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("case", choices=cases.CASES)
    parser.add_argument("--memory", choices=MODES)
    parser.add_argument("--budget", type=float, default=6.0, help="seconds of steady-state timing")
    options = parser.parse_args()
    torch.set_num_threads(int(os.environ.get("THREADS", "2")))
    with torch.no_grad():
        row = (
            memory(options.case, options.memory)
            if options.memory
            else run(options.case, options.budget)
        )
    print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
