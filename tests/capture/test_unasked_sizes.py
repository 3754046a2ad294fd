"""Sizes that depend on data, in a program that has set nothing: symbols where that serves, else a
graph break."""

import pytest
import torch
from test_unbacked import same

import oxyfuel

pytestmark = pytest.mark.usefixtures("strict_without_grad", "nothing_said_of_sizes")


SELECTING = {
    "rows": lambda x: x[x[:, 0] > 0] * 2,
    "put": lambda x: torch.zeros_like(x).index_put((x > 0,), x[x > 0]),
    "sum": lambda x: x[x > 0].sum() + x.nonzero().shape[0],
    "unique": lambda x: x.unique() + 1,
    "gemm": lambda x: x[x[:, 0] > 0] @ x[x[:, 0] > 0].t(),
    "cat": lambda x: torch.cat([x[x > 0], x[x <= 0]]),
}


@pytest.mark.parametrize("name", SELECTING)
def test_sizes_of_data_without_a_setting(name):
    compiled, fn = oxyfuel.compile(SELECTING[name]), SELECTING[name]
    for _ in range(5):
        x = torch.randn(6, 4)
        same(compiled(x), fn(x))
    stats = oxyfuel.stats()
    assert (stats["graphs"], stats["graph_breaks"], stats["recompiles"]) == (1, 0, 0)


def decide(x):
    rows = x[x[:, 0] > 0]
    if len(rows) == 0:
        return x.sum()
    return rows.sum(0) / len(rows)


def rounds(x):
    return [row * 2 for row in x[x[:, 0] > 0]]


def formatted(x):
    return x * 2, f"{x[x > 0].shape[0]} are positive"


def listed(x):
    return x[x > 0].tolist(), x + 1


@pytest.mark.parametrize("fn", [decide, rounds, formatted, listed])
def test_where_they_do_not_serve_there_is_a_break(fn):
    """As with the setting off: the graphs around the break know how many there are."""
    compiled = oxyfuel.compile(fn)
    for seed in range(6):
        torch.manual_seed(seed)
        x = torch.randn(6, 4) * (seed != 3)
        same(compiled(x), fn(x))
    assert oxyfuel.stats()["fallbacks"] == 0
    found = oxyfuel.stats()["graph_breaks"]
    oxyfuel.reset()
    torch._dynamo.config.capture_dynamic_output_shape_ops = False
    compiled = oxyfuel.compile(fn)
    for seed in range(6):
        torch.manual_seed(seed)
        compiled(torch.randn(6, 4) * (seed != 3))
    assert found <= oxyfuel.stats()["graph_breaks"]


def test_checks_that_often_do_not_hold_end_it():
    def fn(x):
        return x[x > 0].squeeze(0).sum() + x.sum()

    compiled = oxyfuel.compile(fn)
    x = torch.tensor([1.0, -1.0, -2.0])
    for y in [torch.ones(3)] + [x] * 6:
        same(compiled(y), fn(y))
    stats = oxyfuel.stats()
    assert 0 < stats["unmet_checks"] <= 4 and stats["graph_breaks"] > 0


def test_a_break_beside_a_view_that_has_gradients():
    """What is left of a frame is no tensor alone."""

    def fn(x, n):
        y = (x.new_zeros(n, 8) @ x).view(n, 2, 4)
        assert list(y.size()) == [n, 2, 4]
        return y * 2

    x = torch.randn(8, 8, requires_grad=True)
    for n in (torch.tensor(3), torch.tensor(5)):
        with torch.enable_grad():
            grads = [torch.autograd.grad(f(x, n).sum(), x)[0] for f in (oxyfuel.compile(fn), fn)]
        assert torch.equal(*grads)
