"""Texts of sizes and of numbers that vary: one that nobody looks at does not fix the numbers."""

from __future__ import annotations

import contextlib
import io
import logging

import pytest
import torch

import oxyfuel

LOGGER = logging.getLogger("oxyfuel.a_test_of_texts")
SIZES = (5, 6, 7, 12, 9, 10)


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    monkeypatch.setenv("OXYFUEL_STRICT", "1")
    oxyfuel.reset()


def unused(x):
    text = f"{x.shape[0]} rows"  # noqa: F841
    return x * 2


def checked(x):
    assert x.shape[1] == 3, f"{x.shape[0]} rows of {x.shape[1]}"
    message = "rows of " + str(tuple(x.shape))
    if x.shape[1] != 3:
        raise ValueError(message)
    return x * 2


class Named:
    def note(self, message):
        self.message = message

    def __call__(self, x):
        self.note(f"{x.shape[0]} rows")
        return x * 2


def noted(x):
    named = Named()
    return named(x), named.message


def logs(x):
    LOGGER.debug(f"rows: {x.shape[0]}")
    LOGGER.debug("rows: %d", x.shape[0])
    return x * 2


def prints(x):
    y = x * 2
    print(f"{x.shape[0]} rows", x.shape[0] + 1, end=";")
    return y + 1


def of_another_function(x):
    def name(n):
        return f"<{n}>"

    text = name(x.shape[0])
    return x * 2, text + "!"


def list_that_changes(x):
    sizes = list(x.shape)
    text = f"{sizes}"
    sizes.append(1)
    return x * 2, text, sizes


def attribute(x):
    x.tag = f"{x.shape[0]}"
    return x * 2


def behind_a_break(x):
    text = f"{x.shape[0]} rows"
    print("a break")
    return x * 2, text


PROGRAMS = {
    "unused": unused,
    "checked": checked,
    "text": lambda x: (x * 2, str(x.shape[0])),
    "repr": lambda x: (x * 2, repr(x.shape[0] * 2)),
    "format": lambda x: (x * 2, format(x.shape[0], ">6d")),
    "spec": lambda x: (x * 2, f"{x.shape[0]:>5d}|{x.shape[0] + 1!r:>9}|{x.shape[1]}"),
    "shape": lambda x: (x * 2, f"{x.shape} {tuple(x.shape)!r}"),
    "list": lambda x: (x * 2, f"{list(x.shape)} {list(x.shape)!s}"),
    "list_that_changes": list_that_changes,
    "percent": lambda x: (x * 2, "%d rows, %s" % (x.shape[0], x.shape[0] - 1)),  # noqa: UP031
    "format_method": lambda x: (x * 2, f"{x.shape[0]} {7:4d}" + "{}".format("")),
    "braces": lambda x: (x * 2, f"{x.shape[0]:>5}{x.shape[1]}"),
    "sum": lambda x: (x * 2, "<" + str(x.shape[0]) + ">"),
    "text_of_a_text": lambda x: (x * 2, f"{f'{x.shape[0]}'!s:>8}"),
    "float_of_a_size": lambda x: (x * 2, f"{1 / x.shape[0]:.3f}"),
    "of_another_function": of_another_function,
    "logs": logs,
}


def run(program, n):
    x = torch.arange(3.0 * n).view(n, 3)
    with contextlib.redirect_stdout(io.StringIO()) as out:
        found = program(x)
    return found, getattr(x, "tag", None), out.getvalue()


def same(found, expected):
    if isinstance(expected, torch.Tensor):
        torch.testing.assert_close(found, expected)
    elif isinstance(expected, (tuple, list)):
        assert type(found) is type(expected)
        for a, b in zip(found, expected, strict=True):
            same(a, b)
    else:
        assert found == expected and type(found) is type(expected)


def check(program, plans, breaks=0):
    compiled = oxyfuel.compile(program)
    for n in SIZES:
        same(run(compiled, n), run(program, n))
    stats = oxyfuel.stats()
    assert stats["plans"] <= plans and stats["graph_breaks"] <= breaks, stats
    assert stats["static_captures"] == stats["fallbacks"] == 0, stats


@pytest.mark.parametrize("name", PROGRAMS)
def test_one_capture(name):
    check(PROGRAMS[name], plans=2)


@pytest.mark.parametrize("program", (prints, attribute, behind_a_break))
def test_around_breaks(program):
    check(program, plans=4, breaks=4)


def test_what_looks_at_a_text_has_a_capture_for_each():
    def starts(x):
        return x * 2 if f"{x.shape[0]}".startswith("1") else x * 3

    def length(x):
        return x * len(str(x.shape[0]))

    def number(x):
        return x + int(f"{x.shape[0]}") + float("%d.5" % x.shape[0])  # noqa: UP031

    def chosen(x):
        sizes = {"5": 1.0, "12": 2.0}
        return x * sizes.get(f"{x.shape[0]}", 3.0)

    def key(x):
        return {f"rows_{x.shape[0]}": x * 2}[f"rows_{x.shape[0]}"]

    def joined(x):
        return x * 2, ",".join([str(n) for n in x.shape]), ",".join(map(str, x.shape))

    def caught(x):
        try:
            raise ValueError(f"{x.shape[0]} rows")
        except ValueError as e:
            return x * len(str(e)), e.args

    def raises_by_its_format(x):
        try:
            return x, f"{x.shape[0]:zz}"
        except ValueError:
            return x * 2, "refused"

    def compared(x):
        text = f"{x.shape[0]}"
        return x * 2 if text == "7" or text in ("9", "10") else x * 3

    def written(x):
        return noted(x)

    def held(x):
        text = f"{x.shape[0]}"
        return (lambda: text + "!")(), [text, x * 2]

    programs = (starts, length, number, chosen, key, joined, caught)
    for program in (*programs, raises_by_its_format, compared, held, written):
        oxyfuel.reset()
        check(program, plans=len(SIZES))


def test_texts_of_numbers_that_vary():
    def program(x, rate, steps):
        message = f"{rate:.3f} after {steps}: {rate}"
        return x * rate + steps, message, "%.2f" % rate, "%5d" % steps  # noqa: UP031

    compiled = oxyfuel.compile(program)
    for i in range(8):
        given = torch.arange(4.0), 0.1 + i / 7, 3 * i + 2
        same(compiled(*given), program(*given))
    assert oxyfuel.stats()["plans"] <= 2


def test_many_texts():
    def program(x):
        text = ""
        for _ in range(300):
            text = text + str(x.shape[0])
        return x * 2, text

    check(program, plans=len(SIZES))


@pytest.mark.parametrize(
    "program",
    [
        lambda v: str(v),
        lambda v: f"{v}",
        lambda v: f"{v!s}",
        lambda v: f"{v!r}",
        lambda v: f"<{v}>",
    ],
    ids=["str", "f", "s", "r", "part"],
)
def test_no_text_behind_texts(program):
    compiled = oxyfuel.compile(program, backend="eager")
    for v in ("a", "b", 3, None, "c", (1, 2), 0.5, [1], "d"):
        assert compiled(v) == program(v)
