"""Every entry of torch's operator database, one sample each, through Oxyfuel's own capture and through torch.fx.

`./dev opdb` checks every sample.
"""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import opdb  # noqa: E402


@pytest.mark.parametrize("way", opdb.WAYS)
@pytest.mark.parametrize("op", opdb.ENTRIES, ids=opdb.full_name)
def test_entry(op, way):
    assert not opdb.check_entry(op, every=False, way=way)


def test_eager_entries_exist():
    names = {opdb.full_name(op) for op in opdb.ENTRIES}
    assert set(opdb.EAGER) | set(opdb.CAPTURE_EAGER) <= names
