"""What the tests of all folders share: time that goes with the number of tests, or with how deep
under pytest a test is called, is spent once."""

import gc
import os
import sys
from types import SimpleNamespace

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
