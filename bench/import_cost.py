"""What `import oxyfuel` costs behind `import torch`.

usage: import_cost.py [--rounds N] [--modules]
Each round is a fresh process. Prints the least of N: milliseconds of wall time, and megabytes of
memory that is resident behind it and was not before.
  --modules  the modules that the import brings, one a line with its own microseconds (least of N)
The package's bytecode files are written first, as an installer does.
"""

import argparse
import collections
import compileall
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import time
import torch

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * PAGE

import resource
PAGE = resource.getpagesize()
before, start = resident(), time.perf_counter()
import oxyfuel
print((time.perf_counter() - start) * 1e3, (resident() - before) / 1e6)
"""


def run(*arguments):
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=True)
    return done.stdout, done.stderr


def least_figures(rounds):
    """(milliseconds, megabytes)."""
    rows = [tuple(map(float, run("-c", PROGRAM)[0].split())) for _ in range(rounds)]
    return tuple(map(min, zip(*rows)))


def modules(rounds):
    """Microseconds of its own of each module that comes behind torch, in order."""
    least = collections.defaultdict(lambda: float("inf"))
    for _ in range(rounds):
        lines = run("-X", "importtime", "-c", "import torch, oxyfuel")[1].splitlines()
        rows = [line.removeprefix("import time:").split("|") for line in lines]
        rows = [(name.strip(), own.strip()) for own, _, name in (r for r in rows if len(r) == 3)]
        names = [name for name, _ in rows]
        for name, own in rows[names.index("torch") + 1 :]:
            least[name] = min(least[name], int(own))
    return least


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--modules", action="store_true")
    args = parser.parse_args()
    folder = Path(importlib.util.find_spec("oxyfuel").origin).parent
    compileall.compile_dir(os.fspath(folder), quiet=1)
    milliseconds, megabytes = least_figures(args.rounds)
    print(f"import oxyfuel: {milliseconds:.1f} ms, {megabytes:.1f} MB")
    if args.modules:
        for name, own in modules(args.rounds).items():
            print(f"{own:>7}  {name}")


if __name__ == "__main__":
    main()
