"""Every entry of torch's operator database, one form of each recorded with all sizes symbolic: at
other sizes that its facts allow, the recording gives what eager gives.

`python tests/e2e/opdb_symbolic.py --limit 0` takes every form.
"""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from opdb_cases import ENTRIES, dtypes_of, full_name  # noqa: E402
from opdb_check import Setup  # noqa: E402
from opdb_symbolic import NOT_SYMBOLIC, check_entry  # noqa: E402

FLOAT32 = [op for op in ENTRIES if "float32" in dtypes_of(op)]


@pytest.mark.parametrize("op", FLOAT32, ids=full_name)
def test_one_recording_serves_other_sizes(op):
    outcomes = list(check_entry(op, Setup(kernels=False, way="fx", limit=1)))
    assert not [o.text for o in outcomes if o.status == "failed"]
    numbers = [o.text for o in outcomes if o.status in ("pinned", "not recorded")]
    assert not numbers or full_name(op) in NOT_SYMBOLIC


def test_known_entries_exist():
    assert NOT_SYMBOLIC.keys() <= {full_name(op) for op in FLOAT32}
