"""Fixtures of the tests of training, which take samples and comparisons from their neighbours."""

import sys
from pathlib import Path

import pytest
import torch

import oxyfuel

TESTS = Path(__file__).parents[1]
sys.path[1:1] = [str(TESTS / folder) for folder in ("e2e", "modules", "models", "property")]


@pytest.fixture(autouse=True)
def strict(monkeypatch):
    """Nothing is left from other tests, or for them; failures of Oxyfuel's own are errors."""
    monkeypatch.setenv("OXYFUEL_STRICT", "1")
    oxyfuel.reset()
    torch.manual_seed(0)
    yield
    oxyfuel.reset()
