"""Architectures of transformers through oxyfuel.compile, against eager and against TorchDynamo's
recorded cuts.

usage: python tests/models/models.py [--record] [--backend NAME] [--jobs N] [--write FILE] [NAME
...]

Without NAME: all of them. --record runs TorchDynamo and writes its graphs and breaks to dynamo.txt;
every other run reads them there.
"""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import os
import sys
import time
import warnings
from pathlib import Path
from typing import Any

RECORDED = Path(__file__).with_name("dynamo.txt")
HEADING = """# Architectures of transformers against eager and TorchDynamo

Written by `./dev models`. Small configurations with random weights, two calls of each: the values,
dtypes, strides and structure of the result and the state left behind are compared with eager.
Graphs and breaks of the first call, beside those of `torch.compile(backend="eager")` as recorded in
`tests/models/dynamo.txt`.

"""


def recorded() -> dict[str, tuple[int, int]]:
    """TorchDynamo's graphs and breaks by model."""
    lines = RECORDED.read_text().splitlines() if RECORDED.exists() else []
    rows = (line.split() for line in lines if line and not line.startswith("#"))
    return {name: (int(graphs), int(breaks)) for name, graphs, breaks in rows}


def write_recorded(found: dict[str, tuple[int, int]]) -> None:
    """Keeps what was found, and what was recorded of the others."""
    rows = sorted({**recorded(), **found}.items())
    RECORDED.write_text(
        "# graphs and breaks of torch.compile(backend='eager'), torch 2.13, transformers 5.23; by "
        "./dev models --record\n"
        + "".join(f"{name} {graphs} {breaks}\n" for name, (graphs, breaks) in rows)
    )


def work(task: tuple[str, str]) -> tuple[str, Any]:
    """One case in a process of the pool: what came of it, or the text of an exception."""
    import torch
    import transformers
    from model_cases import CASES
    from model_check import check, dynamo_counts

    name, what = task
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    case = next(c for c in CASES if c.name == name)
    try:
        return name, tuple(dynamo_counts(case)) if what == "dynamo" else check(case, backend=what)
    except Exception as e:
        return name, f"{type(e).__name__}: " + " ".join(str(e).split())[:300]


def verdict(found: Any, theirs: tuple[int, int] | None) -> str:
    """What is wrong with a case; empty where nothing is."""
    if isinstance(found, str):
        return found
    if found.difference:
        return found.difference
    if theirs is None:
        return "not recorded"
    graphs, breaks = found.counted
    if theirs[0] and breaks > theirs[1]:  # without a graph it has left all to eager
        return f"{breaks} breaks, TorchDynamo has {theirs[1]}"
    if theirs == (1, 0) and graphs != 1:
        return f"{graphs} graphs, TorchDynamo has one"
    return ""


def table(rows: list[tuple[Any, Any, tuple[int, int] | None]]) -> str:
    """The table of all cases, and its sums."""
    lines = [
        "| family | model | graphs | breaks | TorchDynamo's graphs | breaks | |",
        "| --- | --- | ---: | ---: | ---: | ---: | --- |",
    ]
    for case, found, theirs in rows:
        ours = ("", "") if isinstance(found, str) else found.counted
        cells = (case.family, case.name, *ours, *(theirs or ("", "")), verdict(found, theirs))
        lines.append("| " + " | ".join(str(c).replace("|", "/") for c in cells) + " |")
    good = sum(not verdict(found, theirs) for _, found, theirs in rows)
    right = sum(not isinstance(found, str) and not found.difference for _, found, _ in rows)
    one = sum(not isinstance(found, str) and found.counted == (1, 0) for _, found, _ in rows)
    theirs_one = sum(theirs == (1, 0) for _, _, theirs in rows)
    return "\n".join(lines) + (
        f"\n\n{len(rows)} models: {right} right, {one} in one graph (TorchDynamo: {theirs_one}), "
        f"{good} right with no more breaks than TorchDynamo.\n"
    )


def main() -> int:
    """Checks or records what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--record", action="store_true", help="run TorchDynamo, write its counts")
    parser.add_argument("--backend", default="native", help="of oxyfuel.compile")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes")
    parser.add_argument("--write", metavar="FILE", help="put the table into this file")
    a = parser.parse_args()
    os.environ.setdefault("OXYFUEL_STRICT", "1")
    from model_cases import CASES

    cases = [c for c in CASES if not a.names or c.name in a.names]
    start = time.monotonic()
    found: dict[str, Any] = {}
    context = multiprocessing.get_context("spawn")
    with context.Pool(a.jobs, maxtasksperchild=40) as pool:
        tasks = [(c.name, "dynamo" if a.record else a.backend) for c in cases]
        for name, result in pool.imap_unordered(work, tasks):
            found[name] = result
            text = result if a.record else verdict(result, recorded().get(name))
            print(f"{name}: {text or 'as in eager'}", flush=True)
    print(f"{time.monotonic() - start:.0f} seconds")
    if a.record:
        write_recorded({n: r for n, r in found.items() if isinstance(r, tuple)})
        return 0
    rows = [(c, found[c.name], recorded().get(c.name)) for c in cases]
    text = table(rows)
    print(text, end="")
    if a.write:
        Path(a.write).write_text(HEADING + text)
    return 1 if any(verdict(r, t) for _, r, t in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
