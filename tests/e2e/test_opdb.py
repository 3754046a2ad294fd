"""Every entry of torch's operator database, one sample: with kernels in float32, one other floating
dtype and one of integers; in float32 also with all ops as extern calls, through Oxyfuel's own
capture and through torch.fx.

`./dev opdb` checks every sample, dtype and layout.
"""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from opdb_cases import DTYPES, ENTRIES, WAYS, dtypes_of, full_name  # noqa: E402
from opdb_check import Setup, failures_of  # noqa: E402
from opdb_known import CAPTURE_EAGER, CLOSENESS, EAGER, LAYOUT_EAGER  # noqa: E402

FLOAT32 = [op for op in ENTRIES if "float32" in dtypes_of(op)]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("op", FLOAT32, ids=full_name)
def test_extern(op, way):
    assert not failures_of(op, Setup(kernels=False, way=way))


def chosen_dtypes(position):
    """float32, and of the other floating dtypes and the integers one each, by the entry's position
    in the database."""
    dtypes = dtypes_of(ENTRIES[position])
    floating = [d for d in dtypes if DTYPES[d].is_floating_point and d != "float32"]
    integers = [d for d in dtypes if not (DTYPES[d].is_floating_point or DTYPES[d].is_complex)]
    chosen = [group[position % len(group)] for group in (floating, integers) if group]
    return [d for d in dtypes if d == "float32" or d in chosen]


@pytest.mark.parametrize("position", range(len(ENTRIES)), ids=[full_name(op) for op in ENTRIES])
def test_kernels(position):
    op = ENTRIES[position]
    assert not [f for dtype in chosen_dtypes(position) for f in failures_of(op, Setup(dtype))]


def test_known_entries_exist():
    names = {full_name(op) for op in ENTRIES}
    assert set(EAGER) | set(CAPTURE_EAGER) | set(LAYOUT_EAGER) | set(CLOSENESS) <= names
