"""The oracle itself: what it must not see (names, order of inputs) and what it must see (each
seeded difference)."""

import copy
import dataclasses
import functools
import operator

import oracle
import pytest
import torch
from corpus import ENTRIES
from graph_form import normalise
from snapshot import outcome, outcome_differences
from torch import fx

FULL = [e for e in ENTRIES if not oracle.may_break(e)]
SOME = FULL[::12]


# One capture serves all changes: each is made on a copy.
captured = functools.cache(oracle.dynamo_graphs)


def graph(entry):
    graphs = captured(entry)
    if not graphs:
        pytest.skip("nothing to capture")
    return graphs[0]


def renamed(gm):
    """The same graph with its inputs in opposite order, other names and two unused nodes."""
    new, table = fx.Graph(), {}
    inputs = [n for n in gm.graph.nodes if n.op == "placeholder"]
    new.placeholder("unused")
    for i, node in enumerate(reversed(inputs)):
        table[node] = new.placeholder(f"other_{i}")
    for i, node in enumerate(gm.graph.nodes):
        if node.op == "placeholder":
            continue
        copied = table[node] = new.node_copy(node, table.__getitem__)
        copied.name = "output" if node.op == "output" else f"renamed_{i}"
        if node.op == "call_function" and node.target is torch.split:
            new.call_function(operator.getitem, (copied, 0))
    return fx.GraphModule(gm, new)


@pytest.mark.parametrize("entry", SOME, ids=lambda e: e.id)
def test_names_do_not_count(entry):
    gm = graph(entry)
    assert normalise(renamed(gm)) == normalise(gm)
    assert not oracle.graph_differences(entry, [gm], [renamed(gm)])


@pytest.mark.parametrize("entry", SOME, ids=lambda e: e.id)
def test_a_second_capture_is_equal(entry):
    assert not oracle.graph_differences(entry, [graph(entry)], oracle.dynamo_graphs(entry))


def other_target(node):
    if node.op != "call_function" or node.target not in (operator.add, operator.mul):
        return False
    node.target = operator.sub
    return True


def other_constant(node):
    numbers = [i for i, a in enumerate(node.args) if type(a) in (int, float)]
    if node.op == "output" or not numbers:
        return False
    node.update_arg(numbers[0], node.args[numbers[0]] + 1)
    return True


def swapped_operands(node):
    if len(node.args) != 2 or node.args[0] == node.args[1] or node.op == "output":
        return False
    node.args = (node.args[1], node.args[0])
    return not {a.op for a in node.args if isinstance(a, fx.Node)} <= {"placeholder"}


def type_of_constant(node):
    places = [i for i, a in enumerate(node.args) if type(a) is int]
    if not places:
        return False
    node.update_arg(places[0], float(node.args[places[0]]))
    return True


def extra_call(node):
    if node.op != "call_function":
        return False
    with node.graph.inserting_after(node):
        node.graph.call_function(torch.sin, (node,))
    return True


def missing_output(node):
    if node.op != "output" or len(set(node.args[0])) < 2:
        return False
    node.args = (node.args[0][:1],)
    return not all(n.op == "placeholder" for n in node.args[0])


CHANGES = [
    other_target,
    other_constant,
    swapped_operands,
    type_of_constant,
    extra_call,
    missing_output,
]


@pytest.mark.parametrize("change", CHANGES, ids=lambda c: c.__name__)
def test_seeded_differences_are_seen(change):
    seen = 0
    for entry in FULL[::4]:
        gm = captured(entry)
        if not gm:
            continue
        changed = copy.deepcopy(gm[0])
        if any(change(node) for node in list(changed.graph.nodes)):
            assert oracle.graph_differences(entry, gm[:1], [changed]), f"{entry.id}\n{gm[0].graph}"
            seen += 1
    assert seen >= 3


def written_state(x, items):
    x.add_(1)
    items.append(x)
    return items


@pytest.mark.parametrize(
    "wrong",
    [
        lambda x, items: items,
        lambda x, items: [*items, x.add_(1)],
        lambda x, items: written_state(x, items) and list(items),
        lambda x, items: written_state(x, items).append(x.clone()),
        lambda x, items: items.append(x + 1) or items,
        lambda x, items: (written_state(x, items), print("more"))[0],
        lambda x, items: written_state(x, items)[7],
        lambda x, items: written_state(x.double(), items),
    ],
)
def test_wrong_outcomes_are_seen(wrong):
    def after(run):
        torch.manual_seed(0)
        return outcome(run, written_state, (torch.randn(3), []), {})

    assert outcome_differences(after(written_state), after(wrong))
    assert not outcome_differences(after(written_state), after(written_state))


def test_a_graph_break_where_none_is_meant_is_an_error():
    entry = next(e for e in ENTRIES if e.id == "breaks-printed")
    with pytest.raises(torch._dynamo.exc.Unsupported):
        oracle.dynamo_graphs(dataclasses.replace(entry, breaks=False))
