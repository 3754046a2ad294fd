"""The standard library in captured code: plain Python's result, in one graph where that is possible."""

import pathlib
import sys

import pytest
from library_programs import BREAKS, PROGRAMS

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
@pytest.mark.parametrize("place", [15, 60, 150])
def test_with_a_forced_break(name, place):
    assert not differing(PROGRAMS[name], place)
