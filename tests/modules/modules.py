"""torch's module_db through oxyfuel.compile, against eager and against TorchDynamo's recorded cuts.

usage: python tests/modules/modules.py [--record] [--limit N] [--backend NAME] [--jobs N] [--write
FILE] [NAME ...]

Without NAME: all modules. --record runs TorchDynamo and writes its graphs and breaks to dynamo.txt;
every other run reads them there.
"""

from __future__ import annotations

import argparse
import functools
import logging
import multiprocessing
import os
import re
import sys
import time
import warnings
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "models"))  # what compares

import models  # noqa: E402
import module_cases  # noqa: E402

RECORDED = Path(__file__).with_name("dynamo.txt")
HEADING = """# The modules of torch.nn against eager and TorchDynamo

Written by `./dev modules`. Every sample of torch's module_db
(`torch.testing._internal.common_modules`) in evaluation and in training mode under `no_grad`, two
calls of each: the values, dtypes and strides of the result, the arguments, parameters, buffers,
classes, hooks and random numbers left behind are compared with eager. "One graph" counts the
samples whose first call is one graph without a break, beside those of
`torch.compile(backend="eager")` as recorded in `tests/modules/dynamo.txt`; the last column says
what is wrong with a sample: it differs, runs in eager, or breaks more often than TorchDynamo does
where that makes a graph at all.

"""

Key = tuple[str, str]  # module and mode
Counts = dict[int, tuple[int, int]]  # graphs and breaks by sample


def counts_of(runs: list[str]) -> Counts:
    """What `runs_text` has written."""
    out = {}
    for run in runs:
        first, last, graphs, breaks = re.fullmatch(r"(\d+)-?(\d*):(\d+)/(\d+)", run).groups()
        for i in range(int(first), int(last or first) + 1):
            out[i] = (int(graphs), int(breaks))
    return out


@functools.cache
def recorded() -> dict[Key, Counts]:
    """TorchDynamo's graphs and breaks.

    A line is `NAME MODE 0-4:1/0 6:2/1`: five samples in one graph without a break, then one in two
    with one.
    """
    lines = RECORDED.read_text().splitlines() if RECORDED.exists() else []
    rows = [line.split() for line in lines if not line.startswith("#")]
    return {(name, mode): counts_of(runs) for name, mode, *runs in rows}


def torch_at_hand() -> str:
    """The minor version of the running torch."""
    import torch

    return ".".join(torch.__version__.split(".")[:2])


@functools.cache
def recorded_torch() -> str:
    """The minor version of the torch whose TorchDynamo is recorded."""
    first = RECORDED.read_text().partition("\n")[0] if RECORDED.exists() else ""
    found = re.search(r"torch (\d+\.\d+)'s", first)
    return found[1] if found else ""


def without_record(key: Key, index: int) -> str:
    """Why there is nothing of TorchDynamo's to compare a sample with: the torch of the record does
    not have it. Empty where there is something, or should be."""
    if torch_at_hand() == recorded_torch() or index in recorded().get(key, {}):
        return ""
    return f"not in torch {recorded_torch()}, whose TorchDynamo is recorded"


def verdict(key: Key, index: int, found: Any) -> str:
    """What is wrong with a sample; empty where nothing is."""
    if not isinstance(found, str) and without_record(key, index):
        return found.difference
    return models.verdict(found, recorded().get(key, {}).get(index))


def runs_text(counts: Counts) -> str:
    """Samples with their counts, equal neighbours together."""
    out = []
    for i, pair in sorted(counts.items()):
        if out and out[-1][1] == i - 1 and out[-1][2] == pair:
            out[-1][1] = i
        else:
            out.append([i, i, pair])
    return " ".join(
        f"{first}-{last}:{g}/{b}" if last > first else f"{first}:{g}/{b}"
        for first, last, (g, b) in out
    )


def write_recorded(found: dict[Key, Counts]) -> None:
    """Keeps what was found, and what was recorded of the others with the same torch."""
    kept = recorded() if torch_at_hand() == recorded_torch() else {}
    rows = sorted({**kept, **found}.items())
    lines = [f"{name} {mode} {runs_text(counts)}\n" for (name, mode), counts in rows]
    RECORDED.write_text(
        "# graphs/breaks of torch.compile(backend='eager') for each sample of "
        f"torch {torch_at_hand()}'s module_db; by ./dev modules --record\n" + "".join(lines)
    )


def work(task: tuple[str, str, int, str]) -> tuple[Key, dict[int, Any]]:
    """A module's samples in a process of the pool: what came of each, or the text of an
    exception."""
    import torch
    from model_check import check, dynamo_counts

    name, mode, limit, what = task
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    found = {}
    for case in module_cases.cases(name, mode, limit):
        try:
            result = tuple(dynamo_counts(case)) if what == "dynamo" else check(case, backend=what)
        except Exception as e:
            result = f"{type(e).__name__}: " + " ".join(str(e).split())[:300]
        found[case.index] = result
    return (name, mode), found


def wrong(key: Key, found: dict[int, Any]) -> list[str]:
    """What is wrong with a module's samples."""
    said = {i: verdict(key, i, f) for i, f in found.items()}
    return [f"sample {i}: {text}" for i, text in said.items() if text]


def table(rows: dict[Key, dict[int, Any]]) -> str:
    """The table of all modules, and its sums."""
    theirs = recorded()
    lines = [
        "| module | mode | samples | one graph | TorchDynamo's | |",
        "| --- | --- | ---: | ---: | ---: | --- |",
    ]
    sums = [0, 0, 0, 0]
    for key, found in sorted(rows.items()):
        known = theirs.get(key, {})
        bad = wrong(key, found)
        ours = sum(not isinstance(f, str) and f.counted == (1, 0) for f in found.values())
        numbers = (len(found), ours, sum(known.get(i) == (1, 0) for i in found))
        sums = [a + b for a, b in zip(sums, (*numbers, len(found) - len(bad)))]
        unknown = list(filter(None, (without_record(key, i) for i in found)))
        if unknown:
            bad.insert(0, f"{len(unknown)} samples are {unknown[0]}")
        said = "; ".join(bad[:2] + ["..."] * (len(bad) > 2)).replace("|", "/")
        lines.append("| " + " | ".join(map(str, (*key, *numbers, said))) + " |")
    return "\n".join(lines) + (
        f"\n\n{sums[0]} samples: {sums[1]} in one graph (TorchDynamo: {sums[2]}), "
        f"{sums[3]} right with no more breaks than TorchDynamo.\n"
    )


def main() -> int:
    """Checks or records what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="nn.GRU")
    parser.add_argument("--record", action="store_true", help="run TorchDynamo, write its counts")
    parser.add_argument("--limit", type=int, default=0, help="samples of a module and mode; 0: all")
    parser.add_argument("--backend", default="native", help="of oxyfuel.compile")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes")
    parser.add_argument("--write", metavar="FILE", help="put the table into this file")
    a = parser.parse_args()
    if a.record and a.names and torch_at_hand() != recorded_torch():
        parser.error(f"the record is of torch {recorded_torch()}: another one's is made whole")
    os.environ.setdefault("OXYFUEL_STRICT", "1")

    names = a.names or list(module_cases.INFOS)
    limit, what = (0, "dynamo") if a.record else (a.limit, a.backend)
    tasks = [(name, mode, limit, what) for name in names for mode in module_cases.MODES]
    tasks.sort(key=lambda t: -module_cases.count(t[0], t[1]))
    start = time.monotonic()
    found: dict[Key, dict[int, Any]] = {}
    with multiprocessing.get_context("spawn").Pool(a.jobs, maxtasksperchild=20) as pool:
        for key, results in pool.imap_unordered(work, tasks):
            found[key] = results
            errors = [f"sample {i}: {f}" for i, f in results.items() if isinstance(f, str)]
            bad = errors if a.record else wrong(key, results)
            print(
                *key,
                f"{len(results)} samples,",
                f"{len(bad)} wrong" if bad else "right",
                flush=True,
            )
            print("".join(f"    {line}\n" for line in bad), end="", flush=True)
    print(f"{time.monotonic() - start:.0f} seconds")
    if a.record:
        write_recorded(
            {k: {i: c for i, c in f.items() if isinstance(c, tuple)} for k, f in found.items()}
        )
        return 0
    text = table(found)
    print(text[text.rindex("\n\n") + 2 :], end="")
    if a.write:
        Path(a.write).write_text(HEADING + text)
    return 1 if any(wrong(key, results) for key, results in found.items()) else 0


if __name__ == "__main__":
    sys.exit(main())
