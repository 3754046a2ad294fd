"""What every test has in common."""

import os

# What is asked of plans must not depend on what was faster in some process before;
# test_measured_ways.py has the setting.
os.environ.setdefault("OXYFUEL_MEASURED_WAYS", "0")
