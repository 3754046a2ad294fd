"""Settings of torch._dynamo.config that are not about shapes alone, where a program sets them."""

from __future__ import annotations

import logging

import pytest
import torch
import torch._dynamo.config
import torch.compiler.config

import oxyfuel

config = torch._dynamo.config


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    monkeypatch.setenv("OXYFUEL_STRICT", "1")
    oxyfuel.reset()


def captures(compiled, calls):
    """How many of the calls were captured; each gives what eager gives."""
    for rank in calls:
        x = torch.ones([2] * rank)
        assert torch.equal(compiled(x), x + 1)
    return len(compiled.guards())


@pytest.mark.parametrize("module", [torch._dynamo.config, torch.compiler.config])
@pytest.mark.parametrize("name", ["recompile_limit", "accumulated_recompile_limit"])
def test_limits(module, name):
    with module.patch({name: 3}):
        assert captures(oxyfuel.compile(lambda x: x + 1), range(1, 6)) == 3
    assert captures(oxyfuel.compile(lambda x: x + 1), range(1, 11)) == 8


def test_the_older_name_of_a_limit():
    with config.patch(cache_size_limit=2):
        assert captures(oxyfuel.compile(lambda x: x + 1), range(1, 6)) == 2


def test_a_higher_limit():
    with config.patch(recompile_limit=10):
        assert captures(oxyfuel.compile(lambda x: x + 1), range(1, 13)) == 10


def test_a_limit_of_one_function(caplog):
    compiled = oxyfuel.compile(lambda x: x + 1, recompile_limit=2)
    assert captures(compiled, range(1, 6)) == 2
    assert "has 2 captures" in caplog.text


def test_a_limit_that_is_an_error():
    compiled = oxyfuel.compile(lambda x: x + 1)
    with config.patch(recompile_limit=2, fail_on_recompile_limit_hit=True):
        captures(compiled, (1, 2, 1, 2))
        for _ in range(2):
            with pytest.raises(torch._dynamo.exc.FailOnRecompileLimitHit, match="2 captures"):
                compiled(torch.ones(1, 1, 1))
    captures(compiled, (3,))


def test_a_limit_under_fullgraph():
    compiled = oxyfuel.compile(lambda x: x + 1, fullgraph=True, recompile_limit=2)
    captures(compiled, (1, 2, 1, 2))
    for _ in range(2):
        with pytest.raises(torch._dynamo.exc.FailOnRecompileLimitHit, match="fullgraph=True"):
            compiled(torch.ones(1, 1, 1))
    captures(compiled, (1, 2))
    with torch.compiler.set_stance("eager_on_recompile"):
        assert torch.equal(compiled(torch.ones(1, 1, 1)), torch.full((1, 1, 1), 2.0))


def test_a_recompilation_that_is_an_error():
    compiled = oxyfuel.compile(lambda x: x + 1)
    with config.patch(error_on_recompile=True):
        captures(compiled, (1, 1))
        with pytest.raises(torch._dynamo.exc.RecompileError, match=r"L\['x'\]"):
            compiled(torch.ones(1, 1))
    captures(compiled, (2,))


@pytest.mark.parametrize("setting", [True, False])
def test_floats_that_are_numbers(setting):
    compiled = oxyfuel.compile(lambda x, rate: x * rate)
    x = torch.ones(3)
    with config.patch(specialize_float=setting):
        for rate in (0.5, 0.25, 0.75, 0.125):
            assert torch.equal(compiled(x, rate), x * rate)
    assert len(compiled.guards()) == (4 if setting else 2)


def test_a_backend_whose_errors_are_suppressed(caplog):
    tried = []

    def refuses(graph, inputs):
        tried.append(graph)
        raise RuntimeError("no such machine")

    x = torch.ones(3)
    with config.patch(suppress_errors=True):
        compiled = oxyfuel.compile(lambda x: x + 1, backend=refuses)
        for _ in range(3):
            assert torch.equal(compiled(x), x + 1)
    assert len(tried) == 1
    assert "no such machine" in caplog.text
    assert oxyfuel.stats()["fallbacks"] == 3
    with pytest.raises(RuntimeError, match="no such machine"):
        oxyfuel.compile(lambda x: x + 1, backend=refuses)(x)


def test_no_compilation_at_all():
    compiled = oxyfuel.compile(lambda x: x + 1)
    with config.patch(disable=True):
        assert captures(compiled, (1, 2)) == 0
    assert captures(compiled, (1, 2)) == 2


@pytest.mark.parametrize("setting", [True, False])
def test_a_dynamic_dimension_that_is_a_number_after_all(setting):
    def program(x):
        return x * 2 if x.shape[0] == 4 else x

    x = torch.ones(4)
    torch._dynamo.mark_dynamic(x, 0)
    compiled = oxyfuel.compile(program)
    with config.patch(allow_ignore_mark_dynamic=setting):
        if setting:
            assert torch.equal(compiled(x), program(x))
        else:
            with pytest.raises(oxyfuel.shapes.ConstraintViolationError):
                compiled(x)


@pytest.mark.parametrize("which", ["function", "method", "method of one object"])
def test_logging_that_is_ignored(which, caplog):
    logger, other = logging.getLogger("ignored"), logging.getLogger("heard")
    said = []

    def show(text):
        said.append(text)

    def program(x):
        show("shown")
        logger.warning("of %s", x.sum())
        other.warning("of %d", 3)
        return x + 1

    ignored = {
        "function": show,
        "method": logging.Logger.warning,
        "method of one object": logger.warning,
    }[which]
    compiled = oxyfuel.compile(program)
    with config.patch(ignore_logging_functions={ignored}):
        assert torch.equal(compiled(torch.ones(3)), torch.ones(3) + 1)
    names = [r.name for r in caplog.records]
    assert said == ([] if which == "function" else ["shown"])
    assert names.count("ignored") == (1 if which == "function" else 0)
    assert names.count("heard") == (0 if which == "method" else 1)
    assert which == "function" or oxyfuel.stats()["graph_breaks"] == 0


class Window(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Module()
        self.inner.length = 2

    def forward(self, x, parts, scale):
        return (x + parts["rows"][0])[: self.inner.length] * scale


@pytest.mark.parametrize("automatic", [True, False])
def test_what_the_eager_call_of_a_stance_tells(automatic):
    """The second call has another size, the first one to be captured: one capture serves all."""
    module = Window()
    compiled = oxyfuel.compile(module)
    with (
        torch.compiler.set_stance("eager_then_compile"),
        config.patch(automatic_dynamic_shapes=automatic),
    ):
        for n in (5, 7, 9, 11):
            module.inner.length = n - 3
            x, parts = torch.randn(n, 4), {"rows": [torch.randn(n, 1)]}
            assert torch.equal(compiled(x, parts, n / 4), module(x, parts, n / 4))
    assert oxyfuel.stats()["recompiles"] == (0 if automatic else 2)


@pytest.mark.parametrize(
    "settings, recompiles",
    [
        ({}, 1),
        ({"dynamic_sources": "L['x'], L['n'], L\\['parts'\\].*"}, 0),
        ({"dynamic_sources": "L['x']:0,L['n'],L['parts']['rows'][0]:0"}, 0),
        ({"dynamic_sources": "L['x']:1"}, 1),
        ({"dynamic_values": "11"}, 0),
        ({"dynamic_values": "12, 13"}, 1),
    ],
)
def test_sizes_that_are_named(settings, recompiles):
    def program(x, n, parts):
        return (x + parts["rows"][0]) * n

    compiled = oxyfuel.compile(program)
    with torch.compiler.config.patch(settings):
        for n in (11, 7, 9):
            args = torch.randn(n, 3), n, {"rows": [torch.randn(n, 1)]}
            assert torch.equal(compiled(*args), program(*args))
    assert oxyfuel.stats()["recompiles"] == recompiles
