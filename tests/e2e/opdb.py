"""Torch's operator database through Oxyfuel, against eager: a table of what passed, by dtype and
layout.

usage: python tests/e2e/opdb.py [--all] [--extern] [--fx] [--dtype NAME]... [--layout NAME]...
[--limit N] [--jobs N]
                                [--quiet] [--reasons] [--write FILE] [NAME ...]

Without flags: the first sample of each entry and dtype, as given. --all: every float32 sample, and
every dtype and layout with the first samples. NAME: only these entries.
"""

from __future__ import annotations

import argparse
import collections
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection, wait
from pathlib import Path

import torch
from opdb_cases import DTYPES, ENTRIES, LAYOUTS, dtypes_of, full_name
from opdb_check import Outcome, Setup, check_entry
from torch.testing._internal.opinfo.core import OpInfo

Counts = collections.Counter
Check = Callable[[OpInfo, Setup], Iterator[Outcome]]
HEADING = """# Torch's operator database against eager

Written by `./dev opdb`. Passed: value, dtype, shape, strides, mutated inputs or exception as in
eager. Eager: the call was not compiled, for a reason in `tests/e2e/opdb_known.py`, and gave eager's
result.

"""
SYMBOLIC = "## Symbolic sizes"  # what opdb_symbolic.py writes behind the table
GRADIENTS = "## Gradients"  # what tests/training/opdb_gradients.py writes behind that
SHOWN = 3  # failures that are printed of an entry and row


def setups(a: argparse.Namespace) -> list[Setup]:
    """The rows of the table that the flags ask for."""
    way, kernels = "fx" if a.fx else "capture", not a.extern
    if not a.all:
        return [
            Setup(dtype, layout, kernels, way, a.limit)
            for dtype in a.dtype or DTYPES
            for layout in a.layout or ["as given"]
        ]
    plain = [Setup(kernels=k, way=w, limit=None) for k, w in
             ((True, "capture"), (False, "capture"), (False, "fx"))]  # fmt: skip
    return plain + [
        Setup(dtype, layout, limit=4 if dtype == "float32" else 1)
        for dtype in DTYPES
        for layout in LAYOUTS
        if (dtype, layout) != ("float32", "as given")
    ]


# ---- processes: a crash costs one entry ----


def work(connection: Connection, tasks: list[tuple[int, Setup]], check: Check) -> None:
    """Checks entries; sends the outcomes of each."""
    torch.set_num_threads(1)
    for task, (entry, setup) in enumerate(tasks):
        try:
            outcomes = list(check(ENTRIES[entry], setup))
        except Exception as e:
            name = full_name(ENTRIES[entry])
            outcomes = [Outcome("failed", f"{name}: {type(e).__name__}: {e}")]
        connection.send((task, outcomes))
    connection.close()


class Worker:
    """A process that works on a list of tasks, replaced when it dies."""

    def __init__(self, tasks: list[tuple[int, Setup]], check: Check) -> None:
        self.tasks = tasks
        self._check = check
        self.start()

    def start(self) -> None:
        """Starts on the tasks that are left."""
        context = multiprocessing.get_context("spawn")
        self.connection, other = context.Pipe(duplex=False)
        self._process = context.Process(target=work, args=(other, self.tasks, self._check))
        self._process.start()
        other.close()
        self._done = 0

    def receive(self) -> tuple[Setup, list[Outcome]] | None:
        """The outcomes of a task; None when there are no more."""
        try:
            task, outcomes = self.connection.recv()
        except EOFError:
            return self._bury()
        self._done = task + 1
        return self.tasks[task][1], outcomes

    def _bury(self) -> tuple[Setup, list[Outcome]] | None:
        self._process.join()
        if self._done == len(self.tasks):
            return None
        entry, setup = self.tasks[self._done]
        self.tasks = self.tasks[self._done + 1 :]
        code = self._process.exitcode
        self.start()
        return setup, [Outcome("failed", f"{full_name(ENTRIES[entry])}: the process died ({code})")]


def outcomes(
    tasks: list[tuple[int, Setup]], jobs: int, check: Check = check_entry
) -> Iterator[tuple[Setup, list[Outcome]]]:
    """What comes of all tasks, as it comes."""
    workers = {w.connection: w for w in (Worker(tasks[i::jobs], check) for i in range(jobs))}
    while workers:
        for connection in wait(list(workers)):
            worker = workers.pop(connection)
            received = worker.receive()
            if received is not None:
                workers[worker.connection] = worker
                yield received


# ---- the table ----


def table(rows: dict[Setup, Counts]) -> str:
    """The counts as a table of Markdown."""
    lines = ["| dtype, layout | passed | failed | eager |", "| --- | ---: | ---: | ---: |"]
    total: Counts = Counts()
    for setup, counts in rows.items():
        total += counts
        lines.append(row(setup.title(), counts))
    return "\n".join([*lines, row("all", total)]) + "\n"


def row(title: str, counts: Counts) -> str:
    """A line of the table."""
    return (
        f"| {title} | " + " | ".join(str(counts[s]) for s in ("passed", "failed", "eager")) + " |"
    )


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="entries; without one: all")
    parser.add_argument("--all", action="store_true", help="every sample, dtype and layout")
    parser.add_argument("--extern", action="store_true", help="all ops as extern calls")
    parser.add_argument("--fx", action="store_true", help="from torch.fx graphs")
    parser.add_argument("--dtype", action="append", choices=DTYPES)
    parser.add_argument("--layout", action="append", choices=LAYOUTS)
    parser.add_argument("--limit", type=lambda n: int(n) or None, default=1, help="samples; 0: all")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes")
    parser.add_argument("--quiet", action="store_true", help="failures are counted, not printed")
    parser.add_argument("--reasons", action="store_true", help="print what ran in eager, and why")
    parser.add_argument("--write", metavar="FILE", help="put the table into this file")
    return parser.parse_args()


def report(setup: Setup, found: list[Outcome], a: argparse.Namespace) -> None:
    """Prints an entry's failures, and what ran in eager where that is asked for."""
    failed = [o for o in found if o.status == "failed"]
    eager = [o for o in found if o.status == "eager"]
    for o in [*([] if a.quiet else failed[:SHOWN]), *(eager[:SHOWN] if a.reasons else [])]:
        print(f"{setup.title()}: {o.status}: " + " ".join(o.text.split())[:400], flush=True)


def main() -> int:
    """Checks what the command line asks for; prints failures and the table."""
    a = arguments()
    tasks = [
        (i, setup)
        for setup in setups(a)
        for i, op in enumerate(ENTRIES)
        if setup.dtype in dtypes_of(op)
        and (not a.names or full_name(op) in a.names or op.name in a.names)
    ]
    start = time.monotonic()
    rows: dict[Setup, Counts] = {setup: Counts() for _, setup in tasks}
    left = collections.Counter(setup for _, setup in tasks)
    for setup, found in outcomes(tasks, max(1, min(a.jobs, len(tasks)))):
        rows[setup].update(o.status for o in found)
        report(setup, found, a)
        left[setup] -= 1
        if left[setup] == 0:  # a run takes hours: what there is stands in the file
            print(row(setup.title(), rows[setup]), flush=True)
            if a.write:
                page = Path(a.write)
                behind = page.read_text().partition(SYMBOLIC)[1:] if page.exists() else ()
                done = {s: rows[s] for s in rows if not left[s]}
                page.write_text(HEADING + table(done) + "".join(behind))
    print(table(rows), end="")
    print(f"{time.monotonic() - start:.0f} seconds")
    return 1 if any(counts["failed"] for counts in rows.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
