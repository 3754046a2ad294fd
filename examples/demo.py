"""The main job on real input: the benchmark's models and the documents' examples, eager against
compiled.

Run by `./dev demo`. Prints a row for each case as it is done and leaves a trace folder of one small
function.
"""

import os
import pathlib
import sys
import time

import torch

import oxyfuel

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "bench"))
import cases  # noqa: E402

HEADER = (
    "case",
    "eager ms",
    "compiled ms",
    "speed-up",
    "first call ms",
    "graphs",
    "breaks",
    "kernels",
    "extern",
    "max diff",
)
WIDTHS = (12, 9, 11, 8, 13, 6, 6, 8, 7, 9)


def row(*cells):
    print(
        "  ".join(
            str(c).rjust(w) if i else str(c).ljust(w) for i, (c, w) in enumerate(zip(cells, WIDTHS))
        ),
        flush=True,
    )


def progress(text):
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


def median_ms(calls, budget=1.5):
    """Medians of interleaved calls, in milliseconds."""
    for call in calls:
        call()
    times = [[] for _ in calls]
    end = time.perf_counter() + budget
    while time.perf_counter() < end or len(times[0]) < 5:
        for call, kept in zip(calls, times):
            start = time.perf_counter()
            call()
            kept.append(time.perf_counter() - start)
    return [sorted(kept)[len(kept) // 2] * 1e3 for kept in times]


def measure(name):
    progress(f"{name}: building")
    fn, args, kwargs = cases.make(name)
    expected = cases.tensor_of(fn(*args, **kwargs))
    oxyfuel.reset()
    compiled = oxyfuel.compile(fn)
    progress(f"{name}: first call")
    start = time.perf_counter()
    result = cases.tensor_of(compiled(*args, **kwargs))
    first = time.perf_counter() - start
    progress(f"{name}: timing")
    eager_ms, compiled_ms = median_ms(
        [lambda: fn(*args, **kwargs), lambda: compiled(*args, **kwargs)]
    )
    stats = oxyfuel.stats()
    difference = float((result.float() - expected.float()).abs().max())
    progress("")
    row(
        name,
        f"{eager_ms:.3f}",
        f"{compiled_ms:.3f}",
        f"{eager_ms / compiled_ms:.2f}x",
        f"{first * 1e3:.1f}",
        stats["graphs"],
        stats["graph_breaks"],
        stats["kernels"],
        stats["extern_calls"],
        f"{difference:.1e}",
    )
    if stats["fallbacks"]:
        print(f"  {name}: {stats['fallbacks']} calls fell back to eager")
    return stats["fallbacks"] == 0 and difference < 1e-2


def trace(folder):
    """Compiles one small function with every stage written to `folder`."""
    x = torch.randn(4096, 1024)
    compiled = oxyfuel.compile(cases.softmax, options={"trace": folder})
    compiled(x)


def main():
    folder = os.environ.get("OXYFUEL_TRACE", "oxyfuel_trace")
    threads = torch.get_num_threads()
    print(
        f"Oxyfuel {oxyfuel.__version__} on torch {torch.__version__}, {threads} threads, "
        "inference, float32\n"
    )
    row(*HEADER)
    with torch.no_grad():
        good = [measure(name) for name in sys.argv[1:] or cases.DEMO]
        trace(folder)
    print("\n'first call' is all of it: capture, compilation, the call itself.")
    print(f"Every stage of one softmax, from Torch IR to kernel, is in {folder}/.")
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
