"""The options and fixtures of the tests of capture."""

import pytest
import torch

import oxyfuel


def pytest_addoption(parser):
    parser.addoption(
        "--every-break", action="store_true", help="break in front of every instruction, not some"
    )


@pytest.fixture
def strict(monkeypatch):
    """Nothing is left from other tests, or for them; failures of Oxyfuel's own are errors."""
    monkeypatch.setenv("OXYFUEL_STRICT", "1")
    oxyfuel.reset()
    yield
    oxyfuel.reset()


@pytest.fixture
def strict_without_grad(strict):
    with torch.no_grad():
        yield
