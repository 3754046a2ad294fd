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
    assert len(found.guard_costs) == len(found.out_guards)
    assert all(0 < ns < 1e6 for ns in found.guard_costs)
    costs = found.guards_by_cost()
    assert costs[0][0] == max(found.guard_costs) and costs[0][1] in str(found)
    assert 0 < found.compile_seconds < found.first_call_seconds
    text = str(found)
    assert "graphs: 2, breaks: 1, ops: 7" in text and f"line {line}, in toy" in text


def test_the_page():
    def cut_twice(x, items):
        for item in items:
            x = x * item
            oxyfuel.graph_break()
        return x < 3

    found = oxyfuel.explain(cut_twice)(torch.ones(3), [1.5, 2.5])
    assert all(reason.seconds > 0 for reason in found.break_reasons)
    assert sum(r.seconds for r in found.break_reasons) < found.first_call_seconds
    assert found.guard_nanoseconds > 0
    text = found.to_html()
    assert text.startswith("<!doctype html>") and text.count("<h3>") == found.graph_break_count
    assert "oxyfuel.graph_break()" in text and "^^^^" in text and "x &lt; 3" in text
    assert "L[&#x27;x&#x27;]" in text and "graph 1:" in text
    dearest = max(found.break_reasons, key=lambda r: r.seconds)
    first = f"{dearest.seconds * 1e3:.1f} ms of the first call"
    assert text.index(first) == min(text.index(h) for h in [first, " ms of the first call"])


def test_guards_of_a_decorated_closure_are_timed():
    linear, scale = torch.nn.Linear(3, 3), 2

    @torch.no_grad()
    def f(x, *rest, factor=1):
        return linear(x) * scale * factor + sum(rest)

    found = oxyfuel.explain(f)(torch.ones(2, 3), 4, factor=5)
    assert found.guard_nanoseconds > 0
    module = oxyfuel.explain(linear)(torch.ones(2, 3))
    assert module.guard_nanoseconds is None or module.guard_nanoseconds > 0


def test_recompiles_are_told_with_both_values():
    def scaled(x, n):
        return x * n

    def run(x):
        x = scaled(x, 2)
        oxyfuel.graph_break()
        for n in (3, 4):
            print(end="")
            x = scaled(x, n)
        return x

    found = oxyfuel.explain(run)(torch.ones(3))
    assert any("is 4, was 3" in text for text in found.recompiles)
    assert "is 4, was 3" in found.to_html()


def test_a_module_and_an_error():
    model = torch.nn.Linear(3, 3)
    with torch.no_grad():
        found = oxyfuel.explain(model)(torch.ones(2, 3))
        assert (found.graph_count, found.graph_break_count) == (1, 0)
        with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
            oxyfuel.explain(model)(torch.ones(2, 4))


def test_symbolic_sizes_among_arguments():
    """As texts: the graph is for reading."""
    found = oxyfuel.explain(lambda x: x.view(-1, x.shape[0]) * 2, dynamic=True)(torch.ones(6, 4))
    assert "view" in str(found)
    assert "s0" in str(found.graphs[0].graph)
