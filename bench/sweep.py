"""The sweep: everything that torch has a table of, drawn programs and small models, ours against
eager; keeps JSON lines and writes docs/sweep.md.

usage: sweep.py [--share PART] [--budget SECONDS] [--only WORD]... [--inductor PART] [--step]
                [--seed TEXT] [--threads N] [--realtime] [--out FILE] [--write FILE] [--list]
                [ROW ...]

--share: the part of the rows that is drawn (by a hash of the name and the seed: the same ones each
time);
--only: rows whose names have the word (a regular expression); ROW: these rows; --step: forward and
backward. Rows that FILE has are not run again; --write makes a page of all rows in it.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import pathlib
import re
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

HERE = pathlib.Path(__file__).parent
ROW_SECONDS = 90  # of a row, compilation and all; then its process is ended


def drawn(name: str, share: float, salt: str = "") -> bool:
    """Whether a name is in a share of all names."""
    digest = hashlib.sha256((salt + name).encode()).digest()
    return int.from_bytes(digest[:6], "little") < share * (1 << 48)


def all_names() -> Iterator[str]:
    """Every row of every family."""
    import sweep_drawn
    import sweep_models
    import sweep_ops

    for family in (sweep_models, sweep_drawn, sweep_ops):
        yield from family.names()


def wanted(a: argparse.Namespace) -> list[str]:
    """The rows that the command line asks for, in a drawn order."""
    if a.rows:
        return a.rows
    words = [re.compile(word) for word in a.only]
    names = [
        n for n in all_names() if all(w.search(n) for w in words) and drawn(n, a.share, a.seed)
    ]
    names.sort(key=lambda n: hashlib.sha256((a.seed + n).encode()).digest())
    return [n + "/step" for n in names] if a.step else names


class Worker:
    """A process that works on rows, replaced when it dies or does not come back."""

    def __init__(self, a: argparse.Namespace, inductor: bool) -> None:
        self._command = [sys.executable, str(HERE / "sweep_row.py"), "--threads", str(a.threads),
                         "--seconds", str(a.seconds)]  # fmt: skip
        self._command += ["--realtime"] * a.realtime + ["--inductor"] * inductor
        self._threads = str(a.threads)
        self._caches = tempfile.TemporaryDirectory()
        self._process: subprocess.Popen[bytes] | None = None

    def row(self, name: str) -> dict[str, Any]:
        """What comes of a row."""
        if self._process is None:
            caches = {"TORCHINDUCTOR_CACHE_DIR": "inductor", "OXYFUEL_CACHE_DIR": "oxyfuel"}
            env = {k: f"{self._caches.name}/{v}" for k, v in caches.items()}
            env["OMP_NUM_THREADS"] = self._threads
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL, env={**os.environ, **env},
            )  # fmt: skip
        self._process.stdin.write(name.encode() + b"\n")
        self._process.stdin.flush()
        ready, _, _ = select.select([self._process.stdout], [], [], ROW_SECONDS)
        line = self._process.stdout.readline() if ready else b""
        if line:
            return json.loads(line)
        died = self.end()
        return {"name": name, "failed": died if ready else f"no row in {ROW_SECONDS} s"}

    def end(self) -> str:
        """Ends the process; how it died."""
        if self._process is None:
            return ""
        self._process.kill()
        code = self._process.wait()
        self._process = None
        return f"the process died ({code})"


def limits(a: argparse.Namespace) -> dict[str, Any]:
    """What this machine can do: bytes and products a second."""
    import torch

    import one
    import oxyfuel

    torch.set_num_threads(a.threads)
    x = torch.randn(1024, 1024)
    with one.realtime(a.realtime):
        copies = max(oxyfuel._C.copy_once() for _ in range(one.COPIES))
        seconds = min(one.timed(lambda: x @ x) for _ in range(one.COPIES))
    return {"copy_bandwidth": copies, "flops": 2 * 1024**3 / seconds, "threads": a.threads,
            "machine": oxyfuel._C.machine_text()}  # fmt: skip


def kept(path: pathlib.Path) -> dict[str, dict[str, Any]]:
    """The rows of a file by name, the last one of each."""
    lines = path.read_text().splitlines() if path.exists() else []
    rows = [json.loads(line) for line in lines]
    return {row["name"]: row for row in rows}


def line(row: dict[str, Any]) -> str:
    """A row as it is printed."""
    for key in ("skipped", "failed"):
        if key in row:
            return f"{row['name']}: {key}: {row[key]}"
    notes = "" if row["one_graph"] else f" not one graph: {row.get('broken')}"
    wrong = f" WRONG: {row['difference']}" if row["difference"] else ""
    return (
        f"{row['name']}: {row['eager_us']:.1f} {row['ours_us']:.1f} us, {row['ratio']:.2f} "
        f"(kernels {row['kernels']}, extern {row['extern_calls']}){notes}{wrong}"
    )


def main() -> None:
    """Runs what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("rows", nargs="*", metavar="ROW")
    parser.add_argument("--share", type=float, default=1.0)
    parser.add_argument("--budget", type=float, default=600, help="seconds of the whole run")
    parser.add_argument("--seconds", type=float, default=0.2, help="of timing a row")
    parser.add_argument("--only", action="append", default=[], metavar="WORD")
    parser.add_argument("--inductor", type=float, default=0.0, help="its share of the rows")
    parser.add_argument("--step", action="store_true")
    parser.add_argument("--seed", default="", help="draws other rows")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--realtime", action="store_true")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("build/sweep.jsonl"))
    parser.add_argument("--write", type=pathlib.Path)
    parser.add_argument("--list", action="store_true", help="names alone")
    a = parser.parse_args()
    names = wanted(a)
    if a.list:
        print("\n".join(names))
        return
    done = {} if a.rows else kept(a.out)
    workers = {inductor: Worker(a, inductor) for inductor in (False, True)}
    end = time.monotonic() + a.budget
    a.out.parent.mkdir(parents=True, exist_ok=True)
    with a.out.open("a") as out:
        for name in names:
            if name in done:
                continue
            if time.monotonic() > end:
                break
            row = workers[drawn(name, a.inductor, "inductor")].row(name)
            out.write(json.dumps(row) + "\n")
            out.flush()
            print(line(row), flush=True)
    for worker in workers.values():
        worker.end()
    if a.write:
        import sweep_page

        sweep_page.write(a.write, list(kept(a.out).values()), limits(a))


if __name__ == "__main__":
    main()
