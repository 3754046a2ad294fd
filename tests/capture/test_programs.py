"""Programs of one kind a file: plain Python's result, in one graph where that is possible, with and
without forced breaks."""

import gc
import pathlib
import sys

import class_programs
import exception_group_programs
import library_programs
import pytest

import oxyfuel

sys.path.append(str(pathlib.Path(__file__).parent.parent / "property"))
from against_python import differing

pytestmark = [pytest.mark.usefixtures("strict"), pytest.mark.filterwarnings("ignore")]

# With the places of the forced breaks.
KINDS = {
    class_programs: (3, 12, 30, 60, 110),
    exception_group_programs: (),  # see below
    library_programs: (15, 60, 150),
}


@pytest.fixture(scope="module", autouse=True)
def frozen():
    """Each comparison collects garbage: what other tests have left is none of its business."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.parametrize(
    "kind,name", [pytest.param(k, n, id=f"{k.__name__}-{n}") for k in KINDS for n in k.PROGRAMS]
)
def test_plain_pythons_result(kind, name):
    assert not differing(kind.PROGRAMS[name])
    breaks = oxyfuel.stats()["graph_breaks"]
    assert breaks > 0 if name in kind.BREAKS else breaks == 0


@pytest.mark.parametrize(
    "kind,name,place",
    [
        pytest.param(k, n, p, id=f"{k.__name__}-{n}-{p}")
        for k, places in KINDS.items()
        for n in k.PROGRAMS
        for p in places
    ],
)
def test_with_a_forced_break(kind, name, place):
    assert not differing(kind.PROGRAMS[name], place)


@pytest.mark.parametrize("name", exception_group_programs.PROGRAMS)
def test_groups_with_forced_breaks_to_the_end(name):
    place = 1
    while place < 1500:
        assert not differing(exception_group_programs.PROGRAMS[name], place), f"break at {place}"
        if oxyfuel.stats()["graph_breaks"] == 0:
            break
        place += 1 + place // 12
