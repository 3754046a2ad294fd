"""The benchmark: every case in a fresh process with empty caches; prints a Markdown table and keeps
the JSON lines.

usage: run.py [--out FILE] [--budget SECONDS] [--threads N] [--freezing] [--autotune] [--realtime]
[--memory] [CASE ...]
"""

import argparse
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile

import cases

FLAGS = ("--freezing", "--autotune", "--realtime")
HERE = pathlib.Path(__file__).parent
MEMORY_CASES = ("bert", "resnet50")
CACHE_BYTES = 32 << 20
MODELS = ("mlp", "bert", "gpt2", "llama", "decode", "resnet50", "vit")


def one(*arguments):
    with tempfile.TemporaryDirectory() as cache:
        env = dict(
            os.environ,
            TORCHINDUCTOR_CACHE_DIR=f"{cache}/inductor",
            OXYFUEL_CACHE_DIR=f"{cache}/oxyfuel",
        )
        done = subprocess.run(
            [sys.executable, str(HERE / "one.py"), *arguments],
            env=env,
            capture_output=True,
            text=True,
        )
    if done.returncode:
        print(done.stderr[-2000:], file=sys.stderr)
        return None
    return json.loads(done.stdout.strip().splitlines()[-1])


def bandwidth_fraction(row):
    """Of the speed of a copy, for what no library's op does and the cache does not hold."""
    if row["extern_calls"] or row["case"] in MODELS or row["moved_bytes"] < CACHE_BYTES:
        return ""
    reached = row["moved_bytes"] / (row["oxyfuel_ms"] / 1e3)
    return f"{reached / row['copy_bandwidth']:.2f}"


def line(row):
    best = min(row["eager_ms"], row["inductor_ms"])
    return (
        f"| {row['case']} | {row['eager_ms']:.3f} | {row['inductor_ms']:.3f} | "
        f"{row['oxyfuel_ms']:.3f} "
        f"| {row['oxyfuel_ms'] / row['inductor_ms']:.2f} | {row['oxyfuel_ms'] / best:.2f} "
        f"| {row['inductor_backend_s']:.2f} | {row['oxyfuel_backend_s']:.3f} "
        f"| {row['inductor_backend_s'] / row['oxyfuel_backend_s']:.0f} | "
        f"{row['oxyfuel_error']:.1e} "
        f"| {bandwidth_fraction(row)} |"
    )


def geometric_mean(values):
    return math.exp(sum(math.log(v) for v in values) / len(values))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", default="bench_results.jsonl")
    parser.add_argument(
        "--memory", action="store_true", help="memory added after 20 calls instead of times"
    )
    parser.add_argument("--budget", default="6", help="seconds of timing a case")
    parser.add_argument("--threads", default="2")
    for flag in FLAGS:
        parser.add_argument(flag, action="store_true", help="see one.py")
    parser.add_argument("cases", nargs="*", default=None)
    options = parser.parse_args()
    if options.memory:
        for name in options.cases or MEMORY_CASES:
            added = {}
            for mode in ("eager", "inductor", "oxyfuel"):
                row = one(name, "--memory", mode)
                added[mode] = row["after_mb"] - row["before_mb"]
                pool = row.get("pool_mb", 0)
            print(
                f"| {name} | "
                + " | ".join(f"{m} {v:.0f} MB" for m, v in added.items())
                + f" | pool {pool:.0f} MB |"
            )
        return
    print(
        "| case | eager ms | Inductor ms | Oxyfuel ms | / Inductor | / best | Inductor compiler s "
        "| ours s | times faster | max diff | of copy bandwidth |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    rows = []
    flags = [flag for flag in FLAGS if getattr(options, flag[2:])]
    with open(options.out, "a") as out:
        for name in options.cases or cases.CASES:
            row = one(name, "--budget", options.budget, "--threads", options.threads, *flags)
            if row is None:
                print(f"| {name} | failed |")
                continue
            rows.append(row)
            out.write(json.dumps(row) + "\n")
            out.flush()
            print(line(row), flush=True)
    ratios = [
        r["oxyfuel_ms"] / min(r["eager_ms"], r["inductor_ms"]) for r in rows if r["case"] in MODELS
    ]
    if ratios:
        print(
            "\nmodels, geometric mean against the better of eager and Inductor: "
            f"{geometric_mean(ratios):.3f}"
        )


if __name__ == "__main__":
    main()
