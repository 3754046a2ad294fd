"""Gradients of torch's operator database through Oxyfuel, against eager: a table of what passed.

usage: python tests/training/opdb_gradients.py [--dtype NAME]... [--limit N] [--inner] [--autocast]
                                               [--jobs N] [--reasons] [--write FILE] [NAME ...]

Without flags: every sample in float32 and float64. --inner: the inputs are results of other ops;
--autocast: bfloat16 autocast around the call; NAME: only these entries.
"""

from __future__ import annotations

import argparse
import collections
import os
import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]
sys.path.insert(1, str(TESTS / "e2e"))

from gradient_cases import GradientSetup, check_entry, has_gradients  # noqa: E402
from opdb import GRADIENTS, outcomes, report, table  # noqa: E402
from opdb_cases import ENTRIES, full_name  # noqa: E402

TEXT = """Written by `python tests/training/opdb_gradients.py --write docs/opdb.md`: each sample
as a call and its backward, out of place and in place: results, gradients or None, their dtypes,
values and strides as in eager, or eager's exception. Eager: the call was not compiled, for a reason
in `tests/e2e/opdb_known.py` or `tests/training/gradient_known.py`, and gave eager's result.
"""


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="entries; without one: all")
    parser.add_argument("--dtype", action="append", help="default: float32 and float64")
    parser.add_argument("--limit", type=lambda n: int(n) or None, help="samples; without: all")
    parser.add_argument("--inner", action="store_true", help="inputs are no leaves")
    parser.add_argument("--autocast", action="store_true", help="to bfloat16")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes")
    parser.add_argument("--quiet", action="store_true", help="failures are counted, not printed")
    parser.add_argument("--reasons", action="store_true", help="print what ran in eager, and why")
    parser.add_argument("--write", metavar="FILE", type=Path, help="the table, into this page")
    return parser.parse_args()


def main() -> int:
    """Checks what the command line asks for; prints failures and the table."""
    a = arguments()
    os.environ.setdefault("OXYFUEL_STRICT", "1")
    dtypes = a.dtype or ["float32", "float64"]
    tasks = [
        (i, setup)
        for setup in (GradientSetup(d, a.limit, not a.inner, a.autocast) for d in dtypes)
        for i, op in enumerate(ENTRIES)
        if has_gradients(op, setup.dtype)
        and (not a.names or full_name(op) in a.names or op.name in a.names)
    ]
    rows = {setup: collections.Counter() for _, setup in tasks}
    for setup, found in outcomes(tasks, max(1, min(a.jobs, len(tasks))), check_entry):
        rows[setup].update(o.status for o in found)
        report(setup, found, a)
    print(table(rows), end="")
    if a.write:
        above = a.write.read_text().partition(GRADIENTS)[0].rstrip("\n")
        a.write.write_text(f"{above}\n\n{GRADIENTS}\n\n{TEXT}\n{table(rows)}")
    return 1 if any(counts["failed"] for counts in rows.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
