import pytest
import torch

import oxyfuel


@pytest.fixture
def fresh():
    """Nothing is left from other tests, or for them, and random numbers begin anew."""
    oxyfuel.reset()
    torch.manual_seed(0)
    yield
    oxyfuel.reset()
