"""What the tests of all folders share: time that goes with the number of tests, or with how deep
under pytest a test is called, is spent once."""

import gc
import os
import sys
from types import SimpleNamespace

import pytest

# Which way a small graph goes is no matter of the machine, but where that is what is tested.
os.environ.setdefault("OXYFUEL_MEASURED_WAYS", "off")


def pytest_collection_finish():
    """A full collection of garbage need not go through what has been collected here: it is never
    garbage."""
    gc.collect()
    gc.freeze()
    if "torch" in sys.modules:
        seed_without_stacks(sys.modules["torch"])


def seed_without_stacks(torch):
    """`torch.manual_seed` keeps a printed stack for each kind of accelerator, for what it says if
    one is there later and cannot be seeded: 3 ms a call under pytest."""
    for accelerator in (torch.cuda, torch.mtia, torch.xpu):
        accelerator.traceback = SimpleNamespace(format_stack=list)


@pytest.fixture
def nothing_said_of_sizes():
    """As in a program that leaves `capture_dynamic_output_shape_ops` and `capture_scalar_outputs`
    alone. A patch of one that has ended leaves it said."""
    from torch._dynamo import config
    from torch.utils._config_module import _UNSET_SENTINEL

    for name in ("capture_dynamic_output_shape_ops", "capture_scalar_outputs"):
        config._config[name].user_override.set(_UNSET_SENTINEL)
