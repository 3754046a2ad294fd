"""Code written in C that reads a tensor breaks the graph in front of it; fields of str.format are
followed."""

from __future__ import annotations

import array
import itertools
import logging

import pytest
import torch

import oxyfuel


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    monkeypatch.setenv("OXYFUEL_STRICT", "1")
    oxyfuel.reset()


def inserted(n):
    items = [1, 2, 3]
    items.insert(n, 9)
    return items


def percent(text, values):
    return text % values


def format_by(text, **values):
    return text.format(**values)


def handled(n):
    try:
        return "abcdef"[:n]
    except RuntimeError:
        return "what a handler must not see"


READERS = {
    "a tuple of %": lambda n: percent("%.3f", (n,)),
    "a number beside it": lambda n: percent("epoch %d loss %.4f", (3, n * 1.5)),
    "a dict of %": lambda n: percent("%(a).2f", {"a": n}),
    "a keyword of format": lambda n: format_by("{loss:.4f}", loss=n.float()),
    "a list in a text": lambda n: "all %s" % [n],
    "a bound of a text": lambda n: "abcdef"[:n],
    "a slice object": lambda n: [1, 2, 3, 4][slice(n, None)],
    "pop": lambda n: [1, 2, 3, 4].pop(n),
    "insert": inserted,
    "repeat": lambda n: list(itertools.repeat(1, n)),
    "combinations": lambda n: list(itertools.combinations(range(4), n)),
    "array": lambda n: array.array("i", [n]).tolist(),
    "within a handler": handled,
}


@pytest.mark.parametrize("name", READERS)
def test_readers(name):
    def f(x):
        doubled = x * 2
        text = READERS[name](x[0])
        return doubled + 1, text

    compiled = oxyfuel.compile(f)
    for values in ([2, 5], [1, 5], [3, 0]):
        x = torch.tensor(values)
        result, expected = compiled(x), f(x)
        torch.testing.assert_close(result[0], expected[0])
        assert result[1] == expected[1]


def test_messages_of_logging(caplog):
    log = logging.getLogger("oxyfuel-test")

    def f(x):
        loss = (x * 2).sum()
        log.warning("loss %.3f", loss)
        return loss + 1

    with caplog.at_level(logging.WARNING, "oxyfuel-test"):
        compiled = oxyfuel.compile(f)
        for scale in (1.0, 2.0):
            compiled(torch.ones(2) * scale)
    assert [r.getMessage() for r in caplog.records] == ["loss 4.000", "loss 8.000"]


class Holder:
    def __init__(self):
        self.n, self.d = 1, {"k": [1]}


holder = Holder()

# The text, and what it is given.
FORMATS = {
    "an attribute's item": ("{a.shape[0]} rows", lambda x: ((), {"a": x})),
    "a size by its name": ("{n}|{n:>5}|{n!r:>4}", lambda x: ((), {"n": x.shape[0]})),
    "a width": ("{:>{w}}", lambda x: (("q",), {"w": x.shape[0]})),
    "widths in turn": ("{:{}}|{:>{}}", lambda x: (("a", 4, x.shape[0], 6), {})),
    "an attribute": ("{o.n}", lambda x: ((), {"o": holder})),
    "an item": ("{0.d[k][0]}, {0.n}", lambda x: ((holder,), {})),
    "by places": ("{1}{0}{{}}", lambda x: ((x.shape[0], "b"), {})),
    "a tensor": ("{0.shape} {a:>4}", lambda x: ((x,), {"a": 3})),
    "a place that is not there": ("{} {a}", lambda x: ((), {"a": 1})),
    "a name that is not there": ("{b}", lambda x: ((), {"a": 1})),
    "both ways of counting": ("{} {1.n}", lambda x: ((1, holder), {})),
}


@pytest.mark.parametrize("name", FORMATS)
def test_fields_of_formats(name):
    text, given = FORMATS[name]

    def f(x):
        args, kwargs = given(x)
        try:
            return x * 2, text.format(*args, **kwargs), str.format(text, *args, **kwargs)
        except (IndexError, KeyError, ValueError) as e:
            return x * 2, repr(e)

    compiled = oxyfuel.compile(f)
    for rows in range(2, 6):
        x = torch.ones(rows, 2)
        assert compiled(x)[1:] == f(x)[1:]
        holder.n += 1
        holder.d["k"][0] += 1
    # A text that is no format goes to str.format, with an object from before.
    assert name == "both ways of counting" or oxyfuel.stats()["graph_breaks"] == 0
