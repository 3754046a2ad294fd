"""Random Python programs (python_programs.py) against plain Python, with and without forced breaks.

More of them than CI runs: `python tests/property/test_python_programs.py FIRST LAST` compares the
programs of these seeds, shrinks the first that differ, and ends with a line of counts. A program
whose data grow without measure (2 seconds or 2 GB in plain Python) is counted and left out.
"""

import gc
import os
import random
import resource
import sys

import pytest
from against_python import differing, reduced, run_plainly
from python_programs import make_source

import oxyfuel

SEEDS = range(240)
BLOCK = 20


def place_of(seed: int) -> int:
    """The instruction at which every capture of the program breaks; 0 for none, as for one program
    in three."""
    return random.Random(seed).choice((0, 0, 0, 5, 15, 30, 60, 100, 160))


@pytest.fixture(scope="module", autouse=True)
def quick_collections():
    """Each program ends with one, of what it has made alone."""
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("first", range(0, len(SEEDS), BLOCK))
def test_programs_do_what_plain_python_does(first, monkeypatch):
    monkeypatch.setenv("OXYFUEL_STRICT", "1")
    for seed in SEEDS[first : first + BLOCK]:
        found = differing(make_source(seed), place_of(seed))
        assert not found, f"seed {seed}, break at {place_of(seed)}: {found}"
    oxyfuel.reset()


def grows_without_measure(source: str) -> bool:
    """Asked of a process of its own, since no operation written in C can be stopped."""
    child = os.fork()
    if child == 0:
        resource.setrlimit(resource.RLIMIT_CPU, (2, 2))
        with open("/proc/self/statm") as f:
            used = int(f.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + (2 << 30), used + (2 << 30)))
        grows = True
        try:
            grows = "'MemoryError'" in repr(run_plainly(source))
        finally:
            os._exit(grows)
    return os.waitpid(child, 0)[1] != 0


def main(first: int, last: int, shown: int = 5) -> None:
    gc.freeze()
    wrong = left_out = 0
    for seed in range(first, last):
        place, source = place_of(seed), make_source(seed)
        if grows_without_measure(source):
            left_out += 1
            continue
        found = differing(source, place)
        if not found:
            continue
        wrong += 1
        print(f"seed {seed}, break at {place}: {found[0]}", flush=True)
        if wrong <= shown:
            kind = found[0][:14]
            same = lambda text: (
                differing(text, place)[:1] and differing(text, place)[0][:14] == kind
            )
            print(reduced(source, same), flush=True)
    print(f"{last - first - left_out} programs, {wrong} differ; {left_out} were left out")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
