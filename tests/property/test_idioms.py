"""Random programs of idioms (idioms.py) against plain Python, with and without forced breaks: what
they give, raise and change is the same, and where nobody asks for a break there is none.

More of them: `python tests/property/test_idioms.py FIRST LAST`.
"""

import gc
import os
import sys

import pytest
from against_python import differing
from idioms import make_source
from test_python_programs import place_of

import oxyfuel

SEEDS = range(60)
BLOCK = 10


def problems(seed: int) -> list[str]:
    source, before = make_source(seed), oxyfuel.stats()["graph_breaks"]
    found = differing(source)
    # A function with a cache breaks behind a change of globals.
    may_break = "fib(" in source[source.index("def main(") :]
    if not found and not may_break and oxyfuel.stats()["graph_breaks"] > before:
        found = ["a graph break"]
    place = place_of(seed)
    return found or (differing(source, place) if place else [])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("first", range(0, len(SEEDS), BLOCK))
def test_idioms(first, monkeypatch):
    monkeypatch.setenv("OXYFUEL_STRICT", "1")
    gc.freeze()
    try:
        for seed in SEEDS[first : first + BLOCK]:
            found = problems(seed)
            assert not found, f"seed {seed}: {found}"
    finally:
        gc.unfreeze()
        oxyfuel.reset()


if __name__ == "__main__":
    os.environ["OXYFUEL_STRICT"] = "1"
    for seed in range(int(sys.argv[1]), int(sys.argv[2])):
        if found := problems(seed):
            print(f"seed {seed}: {found[0]}", flush=True)
