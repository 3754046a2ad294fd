"""Random Python programs (python_programs.py) against plain Python, with and without forced breaks.

More of them than CI runs: `python tests/property/test_python_programs.py FIRST LAST` compares the programs of these seeds,
shrinks the first that differ, and ends with a line of counts.
"""

import random
import sys

import pytest
from against_python import differing, reduced
from python_programs import make_source

import oxyfuel

SEEDS = range(240)
BLOCK = 20


def place_of(seed: int) -> int:
    """The instruction at which every capture of the program breaks; 0 for none, as for one program in three."""
    return random.Random(seed).choice((0, 0, 0, 5, 15, 30, 60, 100, 160))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("first", range(0, len(SEEDS), BLOCK))
def test_programs_do_what_plain_python_does(first, monkeypatch):
    monkeypatch.setenv("OXYFUEL_STRICT", "1")
    for seed in SEEDS[first : first + BLOCK]:
        found = differing(make_source(seed), place_of(seed))
        assert not found, f"seed {seed}, break at {place_of(seed)}: {found}"
    oxyfuel.reset()


def main(first: int, last: int, shown: int = 5) -> None:
    wrong = 0
    for seed in range(first, last):
        place, source = place_of(seed), make_source(seed)
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
    print(f"{last - first} programs, {wrong} differ")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
