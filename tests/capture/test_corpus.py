"""Every entry of the corpus: compiled, it does what it does in eager; captured, it is the graph
TorchDynamo captures."""

import functools
from pathlib import Path

import oracle
import pytest
import torch
import torch._dynamo
from corpus import ENTRIES, FAMILIES

import oxyfuel

# Why a graph of `oxyfuel.compile` differs from TorchDynamo's, by the entry's id: differences that
# are meant to stay.
MEANT_DIFFERENCES = (
    dict.fromkeys(
        (
            "arithmetic-dtype_change",
            "arithmetic-unary",
            "functional-dropout_off",
            "layers-dropout_evaluation",
            "layers-encoder_layer",
        ),
        "a call that returns its argument is that argument",
    )
    | dict.fromkeys(
        ("comprehensions-in_call", "views-iterated", "views-rows_unpacked"),
        "the rows of a tensor are those of unbind: autograd refuses writes to them",
    )
    | dict.fromkeys(
        ("breaks-break_in_loop", "breaks-in_try"),
        "TorchDynamo leaves a frame with such a break to eager",
    )
    | {
        **dict.fromkeys(
            (
                "contexts-autocast_off_inside",
                "contexts-autocast_around_nothing",
                "breaks-inside_autocast",
                "breaks-inside_nested_contexts",
            ),
            "a graph switches modes where its next call needs it, not where a context begins or "
            "ends",
        ),
        "breaks-while_on_data": "a number that is only counted needs no second graph",
        "functional-one_hot": "one_hot checks its values, and TorchDynamo leaves the check out",
        "layers-rms_norm": "what torch.nn.functional has is one call",
    }
)
# What the front end does not do yet: lines of "values" or "graphs" and an entry's id.
GAPS = {
    tuple(line.split())
    for line in Path(__file__).with_name("front_end_gaps.txt").read_text().splitlines()
    if not line.startswith("#")
}

# Where TorchDynamo itself does not give eager's result.
DYNAMO_FAULTS = {
    "exceptions-shape_error": "an error under fake tensors has a class and a text of its own",
    "attributes_written-class_attribute": "a class attribute that was written is read as it was",
    "generators-kind_of_object": "a generator is of another class",
    "iterators-of_the_user_s": "an iterator of the user's is taken from in another order",
    **dict.fromkeys(
        (
            "generators-left_early",
            "generators-left_by_return",
            "generators-dropped_with_its_holder",
            "generators-overwritten",
            "generators-sent",
            "generators-thrown",
            "generators-thrown_and_not_caught",
            "generators-returned_value",
            "generators-unpacked",
            "generators-two_at_a_time",
        ),
        "generators are not closed where Python closes them, or run too far",
    ),
}
if torch.__version__.startswith("2.14."):
    DYNAMO_FAULTS["generators-thrown_through_yield_from"] = "an exception's argument is its text"

every_entry = pytest.mark.parametrize("entry", ENTRIES, ids=lambda e: e.id)

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    monkeypatch.setenv("OXYFUEL_STRICT", "1")
    torch._dynamo.reset()
    oxyfuel.reset()


@every_entry
def test_values_through_dynamo(entry):
    if entry.id in DYNAMO_FAULTS:
        pytest.skip(DYNAMO_FAULTS[entry.id])
    compiler = functools.partial(torch.compile, backend="oxyfuel", dynamic=False)
    found = oracle.value_differences(entry, compiler)
    assert not found, "\n".join(found)


@every_entry
def test_values(entry):
    found = oracle.value_differences(entry, oxyfuel.compile)
    expect_none("values", entry, "\n".join(found))


@every_entry
def test_graphs(entry):
    if entry.beyond_dynamo:
        pytest.skip("TorchDynamo captures no full graph")
    try:
        ours = oracle.collected(entry, lambda f, backend: oxyfuel.compile(f, backend=backend))
    except oxyfuel.InternalError as e:
        return expect_none("graphs", entry, str(e))
    found = oracle.graph_differences(entry, oracle.dynamo_graphs(entry), ours)
    expect_none("graphs", entry, found)


def expect_none(what, entry, found):
    """A difference that is listed is there, and no other is."""
    meant = MEANT_DIFFERENCES.get(entry.id) if what == "graphs" else None
    if meant or (what, entry.id) in GAPS:
        assert found, f"{what} of {entry.id} differ no longer: strike it from the list"
        pytest.xfail(meant or found)
    assert not found, found


def test_what_is_listed_is_in_the_corpus():
    assert {*MEANT_DIFFERENCES, *(entry for _, entry in GAPS)} <= {
        e.id for e in ENTRIES if not e.beyond_dynamo
    }
    assert DYNAMO_FAULTS.keys() <= {e.id for e in ENTRIES}


def test_the_corpus_is_whole():
    ids = [e.id for e in ENTRIES]
    assert len(ids) == len(set(ids)) >= 220
    assert all(family.entries for family in FAMILIES)


@every_entry
def test_entries_are_fresh_and_equal(entry):
    """Eager against eager: two makings give equal calls that share nothing."""
    assert not oracle.value_differences(entry, lambda function: function)
