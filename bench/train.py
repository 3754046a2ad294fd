"""Training steps: eager, Inductor and Oxyfuel; prints a Markdown table and keeps the JSON lines.

usage: train.py [--out FILE] [--budget SECONDS] [--threads N] [--no-inductor] [--no-memory]
                [--realtime] [CASE ...]

A case has a fresh process with empty caches, in which the three are stepped in turn. `first` is the
first step from end to end, in seconds: capture, compilation of forward and backward, the step
itself. `step` is the median of steps in turn, in milliseconds: forward, loss, backward. `peak` is
how far the process grew during a step, in a process for each of the three: resident memory at its
highest less that before the step, idle memory given back first.
"""

import argparse
import ctypes
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile
import warnings

import torch

import one
import train_cases

MODES = one.MODES
CACHES = {"TORCHINDUCTOR_CACHE_DIR": "inductor", "OXYFUEL_CACHE_DIR": "oxyfuel"}


# ---- in the process of a case ----


def compiled(function, mode):
    if mode == "eager":
        return function
    if mode == "inductor":
        return torch.compile(function)
    import oxyfuel

    return oxyfuel.compile(function)


def oxyfuel_ran():
    """A step that ran in eager spoils the row."""
    import oxyfuel

    stats = oxyfuel.stats()
    return not any(stats[k] for k in ("fallbacks", "unsupported", "grad_fallbacks", "graph_breaks"))


def steps_of(name, modes):
    """A step by mode, of models of the same weights each."""
    out = {}
    for mode in modes:
        torch.manual_seed(0)
        case = train_cases.CASES[name]()
        function = compiled(case.function, mode)
        out[mode] = lambda case=case, function=function: case.step(function)
    return out


def times(name, modes, how):
    """The row of a case."""
    row, losses = {"case": name}, {}
    calls = steps_of(name, modes)
    for mode, step in calls.items():
        torch.manual_seed(1)
        row[f"{mode}_first_s"] = one.timed(lambda m=mode: losses.update({m: float(calls[m]())}))
        for _ in range(3):
            step()
    if "oxyfuel" in modes:
        row["compiled"] = oxyfuel_ran()
    with one.realtime(how.realtime):
        found = one.rounds(calls, how.budget)
    for mode in modes:
        row[f"{mode}_ms"] = one.median(found[mode]) * 1e3
        row[f"{mode}_loss"] = losses[mode]
    return row


def status_kb(field):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith(field))


def peak(name, mode):
    """Megabytes by which a step makes the process larger."""
    (step,) = steps_of(name, [mode]).values()
    for _ in range(3):
        step()
    if mode == "oxyfuel":
        from oxyfuel import _C

        _C.trim_pool()
    ctypes.CDLL(None).malloc_trim(0)
    with open("/proc/self/clear_refs", "w") as refs:
        refs.write("5")  # the highest mark begins anew
    before = status_kb("VmRSS")
    step()
    return {"peak_mb": (status_kb("VmHWM") - before) / 1024}


# ---- the table ----


def in_a_process(*arguments):
    """What a process of a case prints."""
    with tempfile.TemporaryDirectory() as folder:
        caches = {name: f"{folder}/{part}" for name, part in CACHES.items()}
        done = subprocess.run(
            [sys.executable, str(pathlib.Path(__file__)), *arguments],
            env={**os.environ, **caches},
            capture_output=True,
            text=True,
        )
    if done.returncode:
        print(done.stderr[-2000:], file=sys.stderr)
        return None
    return json.loads(done.stdout.strip().splitlines()[-1])


def geometric_mean(values):
    return math.exp(sum(map(math.log, values)) / len(values))


def ratio(row):
    """Ours over the better of the others."""
    others = [row[f"{m}_ms"] for m in MODES if m != "oxyfuel" and f"{m}_ms" in row]
    return row["oxyfuel_ms"] / min(others)


def line(row):
    def cells(key, form):
        return [form.format(row[f"{m}_{key}"]) if f"{m}_{key}" in row else "" for m in MODES]

    notes = "" if row["compiled"] else "not one compiled graph"
    parts = [row["case"], *cells("ms", "{:.3f}"), f"{ratio(row):.2f}", *cells("first_s", "{:.2f}"),
             *cells("peak_mb", "{:.1f}"), notes]  # fmt: skip
    return "| " + " | ".join(parts) + " |"


HEADING = (
    "| case | eager ms | Inductor ms | ours | / better | first: eager s | Inductor | ours "
    "| peak: eager MB | Inductor | ours | |\n" + "| --- " * 12 + "|"
)


def measured(name, options):
    """A case's row, or None."""
    flags = ["--budget", str(options.budget), "--threads", str(options.threads)]
    flags += ["--no-inductor"] * options.no_inductor + ["--realtime"] * options.realtime
    row = in_a_process("--one", "times", *flags, name)
    modes = [m for m in MODES if m != "inductor" or not options.no_inductor]
    for mode in () if row is None or options.no_memory else modes:
        found = in_a_process("--one", mode, *flags, name)
        if found:
            row[f"{mode}_peak_mb"] = found["peak_mb"]
    return row


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("cases", nargs="*", metavar="CASE", help="without one: all")
    parser.add_argument("--out", default="train_results.jsonl")
    parser.add_argument("--budget", type=float, default=6.0, help="seconds of timing a case")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--no-inductor", action="store_true")
    parser.add_argument("--no-memory", action="store_true")
    parser.add_argument("--realtime", action="store_true", help="see one.py")
    parser.add_argument("--one", choices=("times", *MODES), help=argparse.SUPPRESS)
    return parser.parse_args()


def main():
    options = arguments()
    unknown = set(options.cases) - set(train_cases.CASES)
    if unknown:
        sys.exit(f"no such case: {', '.join(sorted(unknown))}")
    if options.one:
        torch.set_num_threads(options.threads)
        warnings.simplefilter("ignore")
        modes = [m for m in MODES if m != "inductor" or not options.no_inductor]
        name = options.cases[0]
        row = times(name, modes, options) if options.one == "times" else peak(name, options.one)
        print(json.dumps(row), flush=True)
        return
    print(HEADING)
    rows = []
    with open(options.out, "a") as out:
        for name in options.cases or train_cases.CASES:
            row = measured(name, options)
            if row is None:
                print(f"| {name} | failed |")
                continue
            rows.append(row)
            out.write(json.dumps(row) + "\n")
            print(line(row), flush=True)
    for what, names in (
        ("all cases", train_cases.CASES),
        ("memory bound", train_cases.MEMORY_BOUND),
    ):
        ratios = [ratio(row) for row in rows if row["case"] in names]
        if ratios:
            print(f"{what}, geometric mean of ours over the better: {geometric_mean(ratios):.3f}")


if __name__ == "__main__":
    main()
