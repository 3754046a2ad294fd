"""Fixtures of the end-to-end tests."""

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


@pytest.fixture
def strict_without_grad(monkeypatch):
    """The same for tests that run TorchDynamo too; failures of Oxyfuel's own are errors."""
    monkeypatch.setenv("OXYFUEL_STRICT", "1")
    torch._dynamo.reset()
    oxyfuel.reset()
    torch.manual_seed(0)
    with torch.no_grad():
        yield
