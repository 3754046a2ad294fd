"""Random programs whose kernels run between fences: an access outside of a buffer ends the process.

usage: python tests/property/fences.py [--fence start|end|address]... [--programs N] [--first SEED]

start, end: every buffer of a kernel begins behind, or ends in front of, a page that may not be
touched. address: kernels are compiled with the address sanitizer. Values are compared with eager's
as in test_random_graphs.py.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import warnings
from pathlib import Path

FENCES = ("start", "end", "address")
SANITIZER = "clang++-19 -fsanitize=address -shared-libasan"


def sanitizer_library() -> str | None:
    """What must be loaded first where code with the address sanitizer is loaded later; None without
    one."""
    command = ["clang++-19", "-print-file-name=libclang_rt.asan-x86_64.so"]
    try:
        path = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None
    return path if os.path.isabs(path) else None


def environment(fence: str) -> dict[str, str]:
    """The variables of a process whose kernels have such a fence."""
    if fence != "address":
        return {**os.environ, "OXYFUEL_STRICT": "1", "OXYFUEL_FENCE": fence}
    return {
        **os.environ,
        "OXYFUEL_STRICT": "1",
        "OXYFUEL_FENCE": "heap",
        "OXYFUEL_COMPILER": "external",
        "CXX": SANITIZER,
        "LD_PRELOAD": str(sanitizer_library()),
        "ASAN_OPTIONS": "detect_leaks=0",
    }


def check_programs(first: int, count: int) -> int:
    """Runs the programs in this process; how many differ from eager."""
    from against_eager import check
    from programs import make_program
    from test_random_graphs import OPEN

    import oxyfuel

    warnings.simplefilter("ignore")
    wrong = 0
    for seed in range(first, first + count):
        if seed in OPEN:
            continue
        print(
            f"program {seed}", flush=True
        )  # the last one printed is the one that ended the process
        oxyfuel.reset()
        try:
            check(make_program(seed), inference=seed % 5 == 0)
        except AssertionError as e:
            wrong += 1
            print(f"program {seed}: {e}", flush=True)
    return wrong


def run(fence: str, first: int, count: int) -> subprocess.CompletedProcess[str]:
    """The programs in a process of their own."""
    command = [sys.executable, __file__, "--here", "--first", str(first), "--programs", str(count)]
    return subprocess.run(command, env=environment(fence), capture_output=True, text=True)


def main() -> int:
    """Runs what the command line asks for, a process for 20 programs; says which ones end it."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--fence", action="append", choices=FENCES)
    parser.add_argument("--programs", type=int, default=200)
    parser.add_argument("--first", type=int, default=0, help="seed of the first program")
    parser.add_argument("--here", action="store_true", help="in this process, as it is")
    a = parser.parse_args()
    if a.here:
        return 1 if check_programs(a.first, a.programs) else 0
    failed = 0
    for fence in a.fence or FENCES:
        for first in range(a.first, a.first + a.programs, 20):
            done = run(fence, first, min(20, a.first + a.programs - first))
            if done.returncode:
                failed += 1
                print(f"{fence}: {done.stdout[-1000:]}\n{done.stderr[-4000:]}", flush=True)
        print(f"{fence}: {a.programs} programs", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    sys.exit(main())
