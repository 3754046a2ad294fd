"""Graph breaks: whatever breaks, and wherever, the result, the effects and the exceptions are those of eager."""

import contextlib
import io
import logging
import traceback

import oxyfuel
import pytest
import torch
from families import FAMILIES
from snapshot import outcome

pytestmark = pytest.mark.usefixtures("fresh")


@pytest.fixture
def fresh():
    oxyfuel.reset()
    yield
    oxyfuel.reset()


def test_toy_in_three_pieces(capfd):
    def toy(a, b):
        x = a / (torch.abs(a) + 1)
        if b.sum() < 0:
            b = b * -1
        return x * b

    oxyfuel.set_logs("bytecode")
    try:
        compiled = oxyfuel.compile(toy)
        for sign in (1, -1, 1, -1):
            a, b = torch.randn(10), sign * torch.rand(10)
            assert torch.equal(compiled(a, b), toy(a, b))
    finally:
        oxyfuel.set_logs("")
    stats = oxyfuel.stats()
    assert (stats["graphs"], stats["graph_breaks"], stats["recompiles"]) == (3, 1, 0)
    printed = capfd.readouterr().err
    original, modified = printed.split("MODIFIED BYTECODE")
    assert "ORIGINAL BYTECODE" in original and "POP_JUMP_FORWARD_IF_FALSE" in original
    for word in ("__compiled_fn_1", "__resume_at_102_2", "__resume_at_112_3"):
        assert word in modified and word not in original
