"""Random worlds that change between calls: `make_program(seed)` gives a module with a function
`main(x, n)` that reads and writes what the module has, and statements that run between its calls.

The module is made of parts (worlds.py, code_worlds.py, torch_worlds.py). The function reaches what
they name as globals, cells, defaults, attributes of an object or items of a dict, and stands alone,
in a method or in a module's forward. OXYFUEL_PARTS=CLASSES,TENSORS makes all worlds of these.
"""

from __future__ import annotations

import os
import random
import re
import textwrap
from dataclasses import dataclass

import code_worlds
import torch_worlds
import worlds
from worlds import Part

IMPORTS = """
import abc
import array
import builtins
import collections
import contextlib
import contextvars
import copy
import dataclasses
import datetime
import enum
import fractions
import functools
import inspect
import io
import itertools
import logging
import math
import numbers
import operator
import os
import pathlib
import random
import re
import sys
import threading
import types
import typing
import warnings
import weakref

import numpy as np
import torch


def identity(o):
    return o


def call(f, *args):
    return f(*args)
"""

ONLY = os.environ.get("OXYFUEL_PARTS")
PARTS = {
    name: part
    for module in (worlds, torch_worlds, code_worlds)
    for name, part in vars(module).items()
    if isinstance(part, Part)
}
# Where the process is changed for all code, nothing else is looked at in the same program.
ALONE = ("PATCHES", "SETTINGS")
EXPECTED = "(AttributeError, KeyError, TypeError, IndexError, ValueError, LookupError)"

READS = [
    "log.append(E)",
    "log.append(E)",
    "V = E\nlog.append(V)",
    "if E:\n    x = x + A",
    "x = x * B if E else x - A",
    'log.append(f"{E}")',
    "log.append([E for _ in range(2)])",
    "log.append((lambda: E)())",
    "log.append(call(lambda: E))",
    "log.extend(E for _ in 'a')",
    "V = lambda y=E: y\nlog.append(V())",
    "def V():\n    return E\nlog.append(V())",
    "def V():\n    yield E\nlog.append(list(V()))",
    "V = identity(E)\nlog.append((V, E))",
    "log.append({'k': E, 'n': n})",
    "log.append(E == E)",
    (
        "match E:\n    case None | False:\n        log.append('no')\n    case int(V):\n"
        "        x = x + V\n    case V:\n        log.append(V)"
    ),
    "while not E:\n    log.append('empty')\n    break\nelse:\n    log.append('full')",
    "assert E or True\nlog.append(not E)",
    "log.append(type(E).__name__)",
]
TENSORS = [
    "x = T",
    "x = x + T",
    "log.append(T)",
    "V = [T, T]\nx = V[0] - V[1] + x",
    "x = call(lambda: T)",
    "log.append((T).shape)",
    "x = torch.where(x > 0, T, x)",
    "def V():\n    return T\nx = V()",
]
WRITES = [
    "S",
    "S",
    "S",
    "for V in range(2):\n    S",
    "if n % 2:\n    S",
    "def V_write():\n    S\nV_write()",
    "with contextlib.suppress(Exception):\n    S",
    "try:\n    S\nfinally:\n    log.append('after')",
    (
        "try:\n    S\nexcept ERRORS as V:\n    log.append((type(V).__name__, str(V)))\n"
        "else:\n    log.append('fine')"
    ),
]


@dataclass
class Program:
    setup: str
    main: str
    changes: list[list[str]]  # those in front of each call but the first
    restore: str
    state: str  # an expression
    break_at: int
    backend: str
    requires_grad: bool
    numbers: list[int]  # the argument n

    def source(self) -> str:
        return self.setup + self.main

    def text(self) -> str:
        steps = "\n".join(f"# then {c!r}" for c in self.changes)
        return f"{self.main}\n{steps}\n# break at {self.break_at}, {self.backend}"


class Writer:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        pick = self.random
        names = pick.sample(sorted(PARTS), pick.choice((1, 1, 2, 2, 3)))
        if ONLY:
            names = ONLY.split(",")
        alone = [n for n in names if n in ALONE]
        self.parts = [PARTS[n] for n in (alone[:1] or names)]
        self.count = 0

    def filled(self, text: str) -> str:
        self.count += 1
        pick = self.random
        text = re.sub(r"\bV(?=\b|_)", f"v{self.count}", text)
        for mark, values in (
            ("A", "0123"),
            ("B", "23"),
            ("F", ("0.5", "2.0", "-1.5")),
            ("W", ("a", "w", "zed")),
        ):
            text = re.sub(rf"\b{mark}\b", lambda _, v=values: pick.choice(v), text)
        return text

    def piece(self) -> str:
        part = self.random.choice(self.parts)
        kind = self.random.random()
        if kind < 0.45:
            text, mark, of = self.random.choice(READS), "E", "reads"
        elif kind < 0.65 and part.tensors:
            text, mark, of = self.random.choice(TENSORS), "T", "tensors"
        else:
            text, mark, of = self.random.choice(WRITES), "S", "writes"
        text = self.filled(text).replace("ERRORS", EXPECTED)
        inner = self.filled(self.random.choice(part.pieces[of]))
        if mark != "S":
            inner = f"({inner})" if " " in inner else inner
            return re.sub(rf"\b{mark}\b", lambda _: inner, text)
        lines = []
        for line in text.split("\n"):
            indent = line[: len(line) - len(line.lstrip())]
            lines += textwrap.indent(inner, indent).split("\n") if line.strip() == "S" else [line]
        return "\n".join(lines)

    def body(self) -> str:
        pieces = [self.piece() for _ in range(self.random.randint(2, 6))]
        if self.random.random() < 0.3:
            at = self.random.randrange(len(pieces))
            inside = textwrap.indent("\n".join(pieces[at:]), "    ")
            pieces[at:] = [
                f"try:\n{inside}\nexcept {EXPECTED} as e:\n"
                "    log.append((type(e).__name__, str(e)))"
            ]
        return "log = []\n" + "\n".join(pieces) + "\nreturn x, log"

    def main(self) -> str:
        body = textwrap.indent(self.body(), "    ")
        deeper = textwrap.indent(body, "    ")
        named = [n for p in self.parts for n in p.names if re.search(rf"\b{n}\b", body)]
        named = self.random.sample(named, min(len(named), 2))
        args = ", ".join(named)
        read = lambda form: "".join(f"    {n} = {form.format(n=n)}\n" for n in named)
        if re.search(rf"^ +({'|'.join(named)}) [-+*/|^]?= ", body, re.M) if named else False:
            named = []
        plain = f"\ndef main(x, n):\n{body}\n"
        if not named:
            method = f"\nclass Plain:\n    def run(self, x, n):\n{deeper}\n\nmain = Plain().run\n"
            forward = (
                f"\nclass Model(torch.nn.Module):\n    def forward(self, x, n):\n{deeper}\n\n"
                "main = Model()\n"
            )
            helper = f"\ndef helper(x, n):\n{body}\n\ndef main(x, n):\n    return helper(x, n=n)\n"
            return self.random.choice((plain, plain, method, forward, helper))
        space = "".join(f"where.{n} = {n}\n" for n in named)
        return self.random.choice(
            (
                plain,
                plain,
                f"\ndef make({args}):\n    def main(x, n):\n{deeper}\n    return main\n\n"
                f"main = make({args})\n",
                f"\ndef main(x, n, *, {', '.join(f'{n}={n}' for n in named)}):\n{body}\n",
                f"\nwhere = types.SimpleNamespace()\n{space}\n"
                f"def main(x, n):\n{read('where.{n}')}{body}\n",
                f"\nwhere = {{{', '.join(f'{n!r}: {n}' for n in named)}}}\n\n"
                f"def main(x, n):\n{read('where[{n!r}]')}{body}\n",
                f"\ndef helper(x, n, {args}):\n{body}\n\n"
                f"def main(x, n):\n    return helper(x, n, {args})\n",
                f"\ndef main(x, n):\n{read('globals()[{n!r}]')}{body}\n",
            )
        )

    def changes(self) -> list[list[str]]:
        pick = self.random
        out = []
        for _ in range(pick.randint(4, 8)):
            some = pick.choice((0, 1, 1, 1, 2))
            out.append(
                [
                    self.filled(pick.choice(pick.choice(self.parts).pieces["changes"]))
                    for _ in range(some)
                ]
            )
        return out

    def program(self) -> Program:
        setup = IMPORTS + "".join(p.setup for p in self.parts)
        main, changes = self.main(), self.changes()
        return Program(
            setup,
            main,
            changes,
            "\n".join(p.restore for p in self.parts),
            f"[{', '.join(p.state for p in self.parts if p.state)}]",
            self.random.choice((0, 0, 0, 0, 5, 15, 30, 60)),
            self.random.choice(("eager", "eager", "eager", "native")),
            self.random.random() < 0.25,
            [self.random.choice((2, 2, 3)) for _ in range(len(changes) + 1)],
        )


def make_program(seed: int) -> Program:
    return Writer(seed).program()
