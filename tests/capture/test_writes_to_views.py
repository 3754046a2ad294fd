"""Writes that require gradients, to views of what may not: gradients and refusals are eager's, also
where a graph ends between the view and the write."""

import functools

import pytest
import torch

import oxyfuel

pytestmark = pytest.mark.usefixtures("strict")


def outcome(function, w):
    leaf = w.clone().requires_grad_()
    try:
        out = function(leaf)
        if out.requires_grad:
            out.square().sum().backward()
        return out.detach(), out.requires_grad, leaf.grad
    except RuntimeError as e:
        return "View was" if "no_grad mode" in str(e) else "multiple views" in str(e)


def behind_a_break(view, base):
    def function(w):
        y = base(w)
        v = view(y)
        torch._dynamo.graph_break()
        v.add_(w[0])
        return y

    return function


def over_rows(iterate, base):
    def function(w):
        y = base(w)
        for row in iterate(y):
            row.add_(w[0])
        return y

    return function


BASES = {"new": lambda w: torch.zeros(3, 4), "computed": lambda w: w * 2}
WRITTEN = {
    "row": functools.partial(behind_a_break, lambda y: y[0]),
    "part": functools.partial(behind_a_break, lambda y: y[1:, :4]),
    "turned": functools.partial(behind_a_break, lambda y: y.view(4, 3)[:, 0].unsqueeze(1)),
    "unbound": functools.partial(behind_a_break, lambda y: y.unbind()[0]),
    "rows": functools.partial(over_rows, iter),
    "listed": functools.partial(over_rows, list),
    "backwards": functools.partial(over_rows, reversed),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("name", WRITTEN)
def test_gradients_of_what_is_written_to_views(name, base):
    function = WRITTEN[name](BASES[base])
    w = torch.randn(3, 4)
    expected = outcome(function, w)
    compiled = oxyfuel.compile(function)
    for _ in range(2):
        found = outcome(compiled, w)
        if isinstance(expected, tuple):
            torch.testing.assert_close(found, expected)
        else:
            assert found == expected
