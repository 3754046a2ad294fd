"""oxyfuel.explain: what it says of a call is what happened."""

import pytest
import torch

import oxyfuel

pytestmark = pytest.mark.usefixtures("strict")


def toy(a, b):
    x = a / (torch.abs(a) + 1)
    if b.sum() < 0:
        b = b * -1
    return x * b


def test_graphs_breaks_ops_and_guards():
    found = oxyfuel.explain(toy)(torch.randn(4), -torch.rand(4))
    assert (found.graph_count, found.graph_break_count) == (2, 1)
    names = [[getattr(t, "__name__", t) for t in ops] for ops in found.ops_per_graph]
    assert names == [["abs", "add", "truediv", "sum", "lt"], ["mul", "mul"]]
    assert found.op_count == 7
    (reason,) = found.break_reasons
    line = toy.__code__.co_firstlineno + 2
    assert reason.user_stack == [(__file__, line, "toy")]
    assert "hint:" in reason.reason
    assert any("L['a']" in guard for guard in found.out_guards)
    assert 0 < found.compile_seconds < found.first_call_seconds
    text = str(found)
    assert "graphs: 2, breaks: 1, ops: 7" in text and f"line {line}, in toy" in text


def test_a_module_and_an_error():
    model = torch.nn.Linear(3, 3)
    with torch.no_grad():
        found = oxyfuel.explain(model)(torch.ones(2, 3))
        assert (found.graph_count, found.graph_break_count) == (1, 0)
        with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
            oxyfuel.explain(model)(torch.ones(2, 4))
