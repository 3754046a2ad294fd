"""One case in one process: eager, Inductor and Oxyfuel compiled, then timed in turn; prints one
JSON object.

usage: one.py CASE [--threads N] [--freezing] [--autotune] [--realtime] [--budget SECONDS]
       one.py CASE --memory MODE    MODE: eager | inductor | oxyfuel, prints the peak of that mode
                                    alone
--freezing: both compilers take the parameters as constants; --autotune: both in mode max-autotune;
--realtime: the timing runs with real-time priority, for a machine that others use.
Times are milliseconds: the median over rounds in which each mode is called once after the other.
`backend_s` is the time in the compiler behind torch's capture for the first call, with empty
caches.
"""

import argparse
import contextlib
import json
import os
import resource
import time

import torch

import cases

COPIES = 15
MODES = ("eager", "inductor", "oxyfuel")


def compiled(fn, mode, how):
    """`how`: the command line's options."""
    if mode == "eager":
        return fn
    if mode == "inductor":
        torch._inductor.config.freezing = how.freezing
        return torch.compile(fn, mode="max-autotune" if how.autotune else None)
    import oxyfuel

    return oxyfuel.compile(fn, options={"freezing": how.freezing, "autotune": how.autotune})


def backend_seconds():
    from torch._dynamo.utils import compilation_time_metrics as metrics

    return sum(sum(v) for k, v in metrics.items() if k.endswith("call_user_compiler"))


def oxyfuel_facts(name):
    """A call that ran in eager spoils the row."""
    import oxyfuel

    stats = oxyfuel.stats()
    breaks = 0 if name in cases.BREAKS else stats["graph_breaks"]
    if stats["fallbacks"] or stats["unsupported"] or breaks:
        raise RuntimeError(f"Oxyfuel ran in eager: {stats}")
    return {
        "oxyfuel_backend_s": stats["compile_seconds"],
        "kernels": stats["kernels"],
        "extern_calls": stats["extern_calls"],
        "moved_bytes": stats["moved_bytes"],
    }


def copy_bandwidth():
    import oxyfuel

    return median([oxyfuel._C.copy_once() for _ in range(COPIES)])


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


@contextlib.contextmanager
def realtime(wanted):
    """All threads of this process before all others of the machine."""
    if not wanted:
        yield
        return
    threads = [int(t) for t in os.listdir("/proc/self/task")]
    for t in threads:
        os.sched_setscheduler(t, os.SCHED_FIFO, os.sched_param(10))
    yield
    for t in threads:
        os.sched_setscheduler(t, os.SCHED_OTHER, os.sched_param(0))


def rounds(calls, budget):
    """Seconds by mode, one call of each after the other."""
    times = {mode: [] for mode in calls}
    end = time.perf_counter() + budget
    while time.perf_counter() < end or len(times["eager"]) < 10:
        for mode, call in calls.items():
            times[mode].append(timed(call))
    return times


def run(name, how):
    fn, args, kwargs = cases.make(name)
    row = {"case": name}
    calls, results = {}, {}
    for mode in MODES:
        torch._dynamo.reset()
        f = compiled(fn, mode, how)
        calls[mode] = lambda f=f: f(*args, **kwargs)
        before = backend_seconds() if mode != "eager" else 0
        row[f"{mode}_first_s"] = timed(lambda m=mode: results.update({m: calls[m]()}))
        if mode != "eager":
            row[f"{mode}_backend_s"] = backend_seconds() - before
        if mode == "oxyfuel":
            row.update(oxyfuel_facts(name))
        for _ in range(3):
            calls[mode]()
    with realtime(how.realtime):
        times = rounds(calls, how.budget)
        row["copy_bandwidth"] = copy_bandwidth()
    reference = cases.tensor_of(results["eager"]).float()
    for mode in MODES:
        row[f"{mode}_ms"] = median(times[mode]) * 1e3
        row[f"{mode}_error"] = float(
            (cases.tensor_of(results[mode]).float() - reference).abs().max()
        )
    return row


def memory(name, mode, how):
    fn, args, kwargs = cases.make(name)
    fn(*args, **kwargs)
    before = resident_mb()
    f = compiled(fn, mode, how)
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
    parser.add_argument("--threads", type=int, default=2)
    for flag in ("--freezing", "--autotune", "--realtime"):
        parser.add_argument(flag, action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    with torch.no_grad():
        row = (
            memory(options.case, options.memory, options)
            if options.memory
            else run(options.case, options)
        )
    print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
