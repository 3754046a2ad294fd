"""Every entry of torch's operator database: one sample for each dtype with kernels, and for float32 also with all ops as
extern calls, through Oxyfuel's own capture and through torch.fx.

`./dev opdb` checks every sample, and layouts.
"""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from opdb_cases import ENTRIES, WAYS, dtypes_of, full_name  # noqa: E402
from opdb_check import Setup, failures_of  # noqa: E402
from opdb_known import CAPTURE_EAGER, EAGER, LAYOUT_EAGER, ROUNDINGS  # noqa: E402

FLOAT32 = [op for op in ENTRIES if "float32" in dtypes_of(op)]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("op", FLOAT32, ids=full_name)
def test_extern(op, way):
    assert not failures_of(op, Setup(kernels=False, way=way))


@pytest.mark.parametrize("op", ENTRIES, ids=full_name)
def test_kernels(op):
    assert not [f for dtype in dtypes_of(op) for f in failures_of(op, Setup(dtype))]


def test_known_entries_exist():
    names = {full_name(op) for op in ENTRIES}
    assert set(EAGER) | set(CAPTURE_EAGER) | set(LAYOUT_EAGER) | set(ROUNDINGS) <= names
