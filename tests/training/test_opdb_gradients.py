"""Gradients of every entry of torch's operator database: two samples in float32, one in float64
whose inputs are no leaves, and under bfloat16 autocast what autocast knows.

`opdb_gradients.py` checks every sample.
"""

import pytest
from gradient_cases import (
    DIFFERENTIABLE,
    GradientSetup,
    check_entry,
    has_gradients,
    runs_in_eager,
)
from gradient_known import EAGER_GRADIENTS, GAPS, NOISY, UNDEFINED_GRADIENTS
from opdb_cases import ENTRIES, full_name
from opdb_known import names

AUTOCAST = names("""
    matmul mm bmm addmm baddbmm mv linalg.multi_dot nn.functional.linear nn.functional.bilinear
    nn.functional.conv1d nn.functional.conv2d nn.functional.conv_transpose2d
    nn.functional.scaled_dot_product_attention nn.functional.layer_norm nn.functional.group_norm
    nn.functional.batch_norm nn.functional.rms_norm nn.functional.gelu nn.functional.silu
    nn.functional.mse_loss nn.functional.cross_entropy
    nn.functional.binary_cross_entropy_with_logits nn.functional.embedding softmax
    log_softmax cat stack cumsum einsum nn.functional.prelu
    nn.functional.avg_pool2d nn.functional.max_pool2d exp sum norm nn.functional.dropout
    nn.functional.smooth_l1_loss linalg.inv index_put __getitem__ cdist
""")


def failures(op, *setups):
    return [
        f"{setup.title()}: {outcome.text}"
        for setup in setups
        if has_gradients(op, setup.dtype)
        for outcome in check_entry(op, setup)
        if outcome.status == "failed"
    ]


@pytest.mark.parametrize("op", DIFFERENTIABLE, ids=full_name)
def test_gradients(op):
    found = failures(op, GradientSetup(), GradientSetup("float64", limit=1, leaves=False))
    if full_name(op) in GAPS:
        assert found, "right: it leaves the table of gaps"
    else:
        assert not found


@pytest.mark.parametrize("op", [op for op in DIFFERENTIABLE if op.name in AUTOCAST], ids=full_name)
def test_autocast(op):
    assert not failures(op, GradientSetup(limit=1, autocast=True))


def test_known_entries_exist():
    known = set(EAGER_GRADIENTS) | set(GAPS) | set(NOISY) | UNDEFINED_GRADIENTS
    assert known <= {full_name(op) for op in ENTRIES}


@pytest.mark.parametrize("name", EAGER_GRADIENTS)
def test_what_runs_in_eager_does(name):
    op = next(op for op in ENTRIES if full_name(op) == name)
    assert runs_in_eager(name)
    outcomes = [o.status for o in check_entry(op, GradientSetup(limit=None))]
    assert "eager" in outcomes, "compiled: it leaves the table"
