"""Writes docs/ops.md from the op table: what has a loop rule, a decomposition, or is called as it
is.

The dtypes are those of the calls in tests/e2e/op_cases.py. A test compares the page with the table.

usage: python tools/ops_page.py [OXY_OPS]
"""

from __future__ import annotations

import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "ops.md"
sys.path.insert(0, str(ROOT / "tests" / "e2e"))

from op_cases import all_cases  # noqa: E402

# In the order of the page's columns.
DTYPES = {
    torch.float32: "f32",
    torch.float64: "f64",
    torch.bfloat16: "bf16",
    torch.float16: "f16",
    torch.int64: "i64",
    torch.int32: "i32",
    torch.int16: "i16",
    torch.int8: "i8",
    torch.uint8: "u8",
    torch.bool: "b8",
}

HEAD = """# Ops

Written by `tools/ops_page.py` from the op table (`src/ops`), of which it has {count} rows. How a
row comes about: `docs/add_an_op.md`.

- *loop*: one element of the result as scalar operations; fuses with its neighbours. *reduction*:
  the same with a fold.
- *decomposition*: written in terms of other rows of the table. What it declines (it says which
  dtypes and argument forms it takes) runs as an extern call; so does a loop rule.
- *extern*: called through torch's dispatcher.
- *shape*: the result's type comes from our own rule while recording, not from torch's meta kernel.
- *tested with*: dtypes of the first tensor in the calls of `tests/e2e/op_cases.py`. Every op of
  torch's operator database is tested besides (`./dev opdb`).

| op | lowered by | shape | traits | tested with |
| --- | --- | --- | --- | --- |
"""

TAIL = """
Every other op of ATen is an extern call, with the shape of torch's meta kernel and no traits.
"""


def tested_dtypes() -> dict[str, set[str]]:
    """Of each op, the dtypes of the first tensor of its test calls."""
    found: dict[str, set[str]] = defaultdict(set)
    for name, args in all_cases():
        flat = (x for a in args for x in (a if isinstance(a, (list, tuple)) else [a]))
        first = next((x for x in flat if isinstance(x, torch.Tensor)), None)
        if first is not None and first.dtype in DTYPES:
            found[name].add(DTYPES[first.dtype])
    return found


def lowered_by(rules: set[str]) -> str:
    """The column of a row's rules."""
    kinds = [("element", "loop"), ("reduction", "reduction"), ("decomposition", "decomposition")]
    return ", ".join(text for rule, text in kinds if rule in rules) or "extern"


def page(tool: str | Path) -> str:
    """The page for the table that `tool`, an oxy-ops, prints."""
    table = subprocess.run([tool], capture_output=True, text=True, check=True).stdout
    rows = [line.split("\t") for line in table.splitlines()]
    tested = tested_dtypes()
    lines = []
    for name, _schema, traits, rules in rows:
        kinds = set(rules.split(","))
        dtypes = " ".join(d for d in DTYPES.values() if d in tested[name])
        shape = "yes" if "shape" in kinds else ""
        shown = "" if traits == "pure" else traits.replace(",", ", ")
        lines.append(f"| `{name}` | {lowered_by(kinds)} | {shape} | {shown} | {dtypes} |\n")
    return HEAD.format(count=len(rows)) + "".join(lines) + TAIL


if __name__ == "__main__":
    PAGE.write_text(page(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build/Release/oxy-ops"))
