"""torch.compile's modes through both entries."""

import pytest
import torch

import oxyfuel

MODES = (
    "default",
    "reduce-overhead",
    "max-autotune",
    "max-autotune-no-cudagraphs",
    "lite",
)


def layer(x, w, state):
    state.add_(1)
    return torch.relu(x @ w) + state


def inputs():
    torch.manual_seed(0)
    return torch.randn(5, 64), torch.randn(64, 32), torch.zeros(32)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("entry", ["oxyfuel", "torch"])
def test_every_mode_gives_eagers_result(mode, entry):
    if entry == "oxyfuel":
        f = oxyfuel.compile(layer, mode=mode)
    else:
        torch._dynamo.reset()
        f = torch.compile(layer, backend="oxyfuel", mode=mode)
    ours, eagers = inputs(), inputs()
    with torch.no_grad():
        for _ in range(2):
            torch.testing.assert_close(f(*ours), layer(*eagers))
    torch.testing.assert_close(ours, eagers)


def test_autotuning_prints_what_it_tried_and_keeps_one(capfd):
    f = oxyfuel.compile(layer, mode="max-autotune")
    with torch.no_grad():
        f(*inputs())
        table = capfd.readouterr().err
        f(*inputs())
    assert "gemm_backend=auto" in table and "gemm_backend=aten" in table
    assert table.count("(kept)") == 2
    assert not capfd.readouterr().err


def test_autotuning_with_a_pass_of_the_users():
    def double(gm):
        output = gm.graph.output_node()
        with gm.graph.inserting_before(output):
            doubled = [
                gm.graph.call_function(torch.ops.aten.mul.Tensor, (r, 2)) for r in output.args[0]
            ]
        output.args = (tuple(doubled),)

    name = oxyfuel.register_pass(double)
    try:
        with torch.no_grad():
            x = torch.randn(5, 64)
            got = oxyfuel.compile(lambda x: torch.relu(x), mode="max-autotune")(x)
    finally:
        oxyfuel.unregister_pass(name)
    # Each way is planned from what was recorded, not from what the pass made of it before.
    torch.testing.assert_close(got, 2 * torch.relu(x))


def test_lite_makes_no_kernels():
    oxyfuel.reset()
    with torch.no_grad():
        oxyfuel.compile(layer, mode="lite")(*inputs())
    assert oxyfuel.stats()["kernels"] == 0
    assert oxyfuel.stats()["extern_calls"] > 0


def test_wrong_modes():
    with pytest.raises(ValueError, match="unknown mode 'fast'.*max-autotune"):
        oxyfuel.compile(layer, mode="fast")
    with pytest.raises(ValueError, match="together"):
        oxyfuel.compile(layer, mode="lite", options={"kernels": True})
