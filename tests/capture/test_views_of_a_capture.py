"""The logs trace_source and bytecode, and the trace folder of a captured function."""

import pytest
import torch

import oxyfuel


@pytest.fixture(autouse=True)
def fresh():
    oxyfuel.reset()
    yield
    oxyfuel.set_logs("")
    oxyfuel.reset()


def inner(x):
    return x + 1


def f(x):
    y = inner(x)
    return y * 2


def test_trace_source_follows_the_lines(capfd):
    oxyfuel.set_logs("trace_source")
    oxyfuel.compile(f)(torch.ones(2))
    printed = capfd.readouterr().err
    first = f.__code__.co_firstlineno
    order = [
        f"{__file__}:{first + 1} in f",
        "y = inner(x)",
        f"{__file__}:{inner.__code__.co_firstlineno + 1} in inner",
        "return x + 1",
        f"{__file__}:{first + 2} in f",
        "return y * 2",
    ]
    places = [printed.index(text) for text in order]
    assert places == sorted(places)


def test_bytecode_of_one_graph(capfd):
    oxyfuel.set_logs("bytecode")
    oxyfuel.compile(f)(torch.ones(2))
    printed = capfd.readouterr().err
    assert "LOAD_GLOBAL" in printed and "none: the call is one graph" in printed


def test_the_trace_folder_starts_at_bytecode(tmp_path):
    oxyfuel.compile(f, options={"trace": str(tmp_path)})(torch.ones(2))
    (folder,) = tmp_path.rglob("torch_graph.txt")
    assert "BINARY_" in (folder.parent / "bytecode.txt").read_text()
    assert "operator.add" in folder.read_text()
