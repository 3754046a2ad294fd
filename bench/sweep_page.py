"""A page (docs/sweep.md) from the rows of a sweep."""

from __future__ import annotations

import collections
import math
import pathlib
from typing import Any

Row = dict[str, Any]
DTYPES = ("f32", "f64", "f16", "bf16", "i64", "i32", "u8", "bool")
COUNTED_US = 50  # eager's time from which on a row counts
BOUNDS = (0.1, 0.25, 0.5, 0.75, 0.95, 1.05, 1.5, 2, math.inf)
WORST = 10
HEADING = """# The sweep: what nobody chose, against eager

Written by `./dev sweep --write {page}` of the rows in `build/sweep.jsonl`. A row is a name:
`./dev sweep NAME` runs it again. `ops` and `modules` are torch's op_db and module_db, `drawn`
programs that a seed draws, `models` small models (bench/sweep_models.py); `/step` behind a name is
forward and backward. Times are the least of many calls, eager's and ours in turn in one process.

A sample of torch's database is tiny. It is enlarged by one rule: dimensions of one length are one
dimension, all of them grow until the call's tensors fill half of the second-level cache (`l2`),
half of the last level (`l3`, of at most 32 MB) or four times that (`memory`); where eager refuses,
fewer of them. What eager refuses in every way is in the last table.

"""


def geometric_mean(ratios: list[float]) -> float:
    """Of numbers above 0."""
    return math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else math.nan


def kind(row: Row) -> str:
    """Family, kind of a drawn program, and dtype."""
    family, *rest = row["name"].removesuffix("/step").split("/")
    dtype = next((p for p in rest if p in DTYPES), "")
    step = " step" if row["name"].endswith("/step") else ""
    return f"{family + ('/' + rest[0] if family == 'drawn' else '')} {dtype}{step}"


def reason(row: Row) -> str:
    """Why a row is slower than eager, as far as how it ran tells."""
    if not row["one_graph"]:
        return "runs in eager: " + ", ".join(row.get("broken", {}))
    if row["eager_us"] < COUNTED_US:
        return "what a call costs"
    if not row["kernels"]:
        return "ATen's op by itself: what a call costs, or noise"
    if row["extern_calls"]:
        return "a kernel around ATen's op"
    return "a kernel of ours"


def distribution(rows: list[Row]) -> list[str]:
    """Rows by kind: how many, the mean, how many are in each range."""
    below = [f"< {b}" if b < math.inf else "more" for b in BOUNDS]
    lines = [
        "| kind | rows | mean | counted | at most 1.05 | " + " | ".join(below) + " |",
        "| --- " + "| ---: " * (len(BOUNDS) + 4) + "|",
    ]
    by_kind = collections.defaultdict(list)
    for row in rows:
        by_kind[kind(row)].append(row)
    for name, some in [*sorted(by_kind.items()), ("all", rows)]:
        counts = [0] * len(BOUNDS)
        for row in some:
            counts[next(i for i, b in enumerate(BOUNDS) if row["ratio"] < b)] += 1
        long = [r for r in some if r["eager_us"] > COUNTED_US]
        good = sum(r["ratio"] <= 1.05 for r in long)
        part = f"{good / len(long):.1%}" if long else ""
        mean = geometric_mean([r["ratio"] for r in some])
        lines.append(
            f"| {name} | {len(some)} | {mean:.2f} | {len(long)} | {part} | "
            + " | ".join(map(str, counts)) + " |"
        )  # fmt: skip
    return lines


def slower(rows: list[Row]) -> list[str]:
    """Every row above 1.05 that counts, with its reason; the others by number."""
    lines = ["| row | shapes | eager us | ours us | ratio | reason |", "| --- " * 6 + "|"]
    for row in sorted(rows, key=lambda r: -r["ratio"]):
        if row["ratio"] > 1.05 and row["eager_us"] > COUNTED_US:
            lines.append(
                f"| {row['name']} | {row['shapes'][:60]} | {row['eager_us']:.0f} | "
                f"{row['ours_us']:.0f} | {row['ratio']:.2f} | {reason(row)} |"
            )
    return lines


def part_of_limit(row: Row, limits: Row) -> float:
    """Of the copy bandwidth or the rate of products, whichever is nearer."""
    seconds = row["ours_us"] * 1e-6
    moved = row["bytes"] / seconds / limits["copy_bandwidth"]
    return max(moved, row["flops"] / seconds / limits["flops"])


def worst_kernels(rows: list[Row], limits: Row) -> list[str]:
    """The kernels that are farthest from what the machine can do."""
    own = [
        r for r in rows
        if r["kernels"] and not r["extern_calls"] and r["ours_us"] > COUNTED_US
        and not r["name"].startswith("models") and not r["name"].endswith("/step")
    ]  # fmt: skip
    own.sort(key=lambda r: part_of_limit(r, limits))
    lines = ["| row | shapes | ours us | part of the limit | ratio |", "| --- " * 5 + "|"]
    for r in own[:WORST]:
        lines.append(
            f"| {r['name']} | {r['shapes'][:60]} | {r['ours_us']:.0f} | "
            f"{part_of_limit(r, limits):.3f} | {r['ratio']:.2f} |"
        )
    return lines


def left_out(rows: list[Row]) -> list[str]:
    """Why rows have no time, and which."""
    by_reason = collections.defaultdict(set)
    for row in rows:
        if "skipped" in row or "failed" in row:
            family = row["name"].split("/")
            why = row.get("skipped") or "failed: " + row["failed"]
            why = why if "eager takes" not in why or "ways" in why else "eager takes too long"
            by_reason[why[:90].replace("|", "/")].add(family[1] if len(family) > 1 else "")
    lines = ["| why | of what |", "| --- | --- |"]
    for why, names in sorted(by_reason.items(), key=lambda item: -len(item[1])):
        lines.append(f"| {why} | {len(names)}: {', '.join(sorted(names)[:8])} |")
    return lines


def write(path: pathlib.Path, found: list[Row], limits: Row) -> None:
    """The page."""
    rows = [r for r in found if "ratio" in r]
    others = [r for r in rows if r["difference"]]
    wrong = [f"- {r['name']} ({r['shapes'][:60]}): {r['difference']}" for r in others]
    short = sum(r["ratio"] > 1.05 and r["eager_us"] <= COUNTED_US for r in rows)
    broken = sum(not r["one_graph"] for r in rows)
    sections = [
        f"Machine: {limits['machine']}; {limits['threads']} thread(s); a copy moves "
        f"{limits['copy_bandwidth'] / 1e9:.1f} GB/s, products reach {limits['flops'] / 1e9:.0f} "
        "GFLOP/s.",
        "\n## Distribution of ours over eager\n",
        f"Counted are rows that take eager more than {COUNTED_US} us. {broken} rows are not one "
        "graph.\n",
        *distribution(rows),
        "\n## Slower than eager\n",
        f"{short} rows that take eager less than {COUNTED_US} us are slower as well.\n",
        *slower(rows),
        "\n## Kernels farthest from the machine's limit\n",
        *worst_kernels(rows, limits),
        "\n## Other results than eager's\n",
        *(wrong or ["None."]),
        "\n## Without a time\n",
        *left_out(found),
    ]
    path.write_text(HEADING.format(page=path) + "\n".join(sections) + "\n")
