"""except* in captured code: plain Python's result, in one graph where the group is made in it."""

import pathlib
import sys

import pytest
from exception_group_programs import BREAKS, PROGRAMS

import oxyfuel

sys.path.append(str(pathlib.Path(__file__).parent.parent / "property"))
from against_python import differing

pytestmark = [pytest.mark.usefixtures("strict"), pytest.mark.filterwarnings("ignore")]


@pytest.mark.parametrize("name", PROGRAMS)
def test_plain_pythons_result(name):
    assert not differing(PROGRAMS[name])
    breaks = oxyfuel.stats()["graph_breaks"]
    assert breaks > 0 if name in BREAKS else breaks == 0


@pytest.mark.parametrize("name", PROGRAMS)
def test_with_a_forced_break(name):
    place = 1
    while place < 1500:
        assert not differing(PROGRAMS[name], place), f"break at {place}"
        if oxyfuel.stats()["graph_breaks"] == 0:
            break
        place += 1 + place // 12
