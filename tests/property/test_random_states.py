"""Random programs whose world changes between their calls (states.py) do compiled what they do in
eager: results, exceptions, what they leave of the world, who is whom, and what shares memory.

OXYFUEL_WORLDS=5000 runs so many, OXYFUEL_FIRST_PROGRAM says with which seed to begin.
`python tests/property/test_random_states.py FIRST LAST` prints what differs, cut down.
"""

import os
import sys
import time

import pytest
import torch
from against_world import differing, report
from states import make_program

import oxyfuel

FIRST = int(os.environ.get("OXYFUEL_FIRST_PROGRAM", "0"))
COUNT = int(os.environ.get("OXYFUEL_WORLDS", "1000"))
GROUPS = 5
SECONDS = 3 if "OXYFUEL_WORLDS" not in os.environ else 1e9  # for a group


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("group", range(GROUPS))
def test_worlds_change_as_in_eager(group, monkeypatch):
    monkeypatch.setenv("OXYFUEL_STRICT", "1")
    start = time.time()
    for seed in range(FIRST + group, FIRST + COUNT, GROUPS):
        if found := differing(make_program(seed)):
            pytest.fail(f"seed {seed}: {found}\n{report(make_program(seed))}", pytrace=False)
        if time.time() - start > SECONDS:
            break
    oxyfuel.reset()


if __name__ == "__main__":
    os.environ["OXYFUEL_STRICT"] = "1"
    torch.set_num_threads(1)
    first, last = int(sys.argv[1]), int(sys.argv[2])
    wrong = 0
    for seed in range(first, last):
        if found := differing(make_program(seed)):
            wrong += 1
            print(f"seed {seed}: {found}", flush=True)
            print(report(make_program(seed)), flush=True)
    print(f"{last - first} programs, {wrong} differ")
