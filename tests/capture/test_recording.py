"""What a capture records underneath is what the replay of its Torch IR records."""

import contextlib
import io

import oracle
import pytest
import torch
from corpus import ENTRIES

import oxyfuel
from oxyfuel import _C, api


@pytest.fixture
def compared(monkeypatch):
    """Both recordings of every graph captured while the test runs: (of the capture or None, of the
    replay or None)."""
    oxyfuel.reset()
    pairs = []
    compile_graph = api.Compiler.compile

    def compile(self, graph, example_inputs, *more):
        taken = graph.captured_recording(example_inputs)
        try:
            replayed = _C.record(graph, example_inputs)
        except Exception:
            replayed = None
        pairs.append((taken, replayed))
        return compile_graph(self, graph, example_inputs, *more)

    monkeypatch.setattr(api.Compiler, "compile", compile)
    return pairs


def description(recording):
    """Without the numbers of values: a capture meets inputs later."""
    outputs = [(kind, *layout) for kind, _, *layout in recording.outputs()]
    mutated = [position for position, _ in recording.mutations()]
    return recording.text(), outputs, mutated, recording.visible_outputs


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("entry", ENTRIES, ids=lambda e: e.id)
def test_both_recordings_are_equal(entry, compared):
    function, args, kwargs = entry.make()
    run = oxyfuel.compile(function)
    # A graph that is replayed has no numbers and sizes of data.
    settings = torch._dynamo.config.patch(
        capture_scalar_outputs=False, capture_dynamic_output_shape_ops=False
    )
    with settings, torch.no_grad(), contextlib.redirect_stdout(io.StringIO()):
        with (
            contextlib.suppress(Exception) if oracle.may_break(entry) else contextlib.nullcontext()
        ):
            run(*args, **kwargs)
    for taken, replayed in compared:
        assert (taken is None) == (replayed is None)
        if taken is not None:
            taken.verify()
            assert description(taken) == description(replayed)


def test_a_recording_is_taken_once_and_only_for_its_inputs(monkeypatch):
    graphs = []

    def compile(self, graph, example_inputs, *more):
        graphs.append((graph, example_inputs))
        return lambda *inputs: graph.replay(inputs)

    monkeypatch.setattr(api.Compiler, "compile", compile)
    with torch.no_grad():
        for n in (1, 2, 3):
            oxyfuel.compile(lambda x, n=n: x + n)(torch.ones(2))
        (first, inputs), (second, _), (third, other_inputs) = graphs
        assert first.captured_recording(inputs) is not None
        assert first.captured_recording(inputs) is None
        assert second.captured_recording((torch.ones(2),)) is None
    assert third.captured_recording(other_inputs) is None  # gradients were off


def test_a_call_that_raised_is_left_to_the_replay(compared):
    def f(x):
        try:
            y = x.reshape("five")
        except TypeError:
            y = x * 2
        return y + 1

    with torch.no_grad():
        assert torch.equal(oxyfuel.compile(f)(torch.ones(4)), torch.full((4,), 3.0))
    assert compared[0][0] is None and compared[0][1] is not None
