"""The golden text tests under pytest, one test a file."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from run_text_tests import HERE, check, find_tests


@pytest.mark.parametrize("path", find_tests(), ids=lambda p: str(p.relative_to(HERE)))
def test_text(path):
    check(path)
