"""Whether a program of python_programs.py does under `oxyfuel.compile` what it does in plain
Python.

Each program is executed twice, in namespaces of their own; `main` is called several times on the
same arguments, so that the second call meets what the first one has changed. Compared are results,
arguments, globals, printed text and exceptions with what they were raised from. Who calls
`differing` often does `gc.freeze()` before. `reduced` takes statements out of a program as long as
it still differs.
"""

from __future__ import annotations

import ast
import contextlib
import copy
import gc
import io
import pathlib
import sys
import types
import warnings

import torch
from python_prelude import PRELUDE

import oxyfuel

sys.path.append(str(pathlib.Path(__file__).parent.parent / "capture"))
from snapshot import Snapshot, differences

_PRELUDE = compile(PRELUDE, "<prelude>", "exec")
CALLS = (2, 3, 2)  # the argument n
GLOBALS = ("total", "notes", "settings", "shared")


def differing(source: str, break_at: int = 0) -> list[str]:
    """What differs, at the first call that does; empty when nothing does."""

    def compiler(main):
        options = {"break_at": break_at}
        return oxyfuel.compile(main, backend="eager", options=options)

    oxyfuel.reset()
    expected = run_plainly(source)
    actual = _calls(source, compiler)
    for number, (e, a) in enumerate(zip(expected, actual)):
        found = differences(e, a, f"call {number}")
        if found:
            return found
    return []


def run_plainly(source: str) -> list[list]:
    """What each call gives in plain Python."""
    return _calls(source, lambda main: main)


@contextlib.contextmanager
def _no_collection():
    """What is garbage in a cycle (a generator that an exception's traceback holds) dies at the end,
    in no program's time."""
    gc.disable()
    yield
    with contextlib.redirect_stdout(io.StringIO()):
        gc.collect()
    gc.enable()


@_no_collection()
def _calls(source: str, compiler) -> list[list]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = sys.modules["program"] = types.ModuleType("program")
        names = module.__dict__
        exec(_PRELUDE, names)
        exec(compile(source, "<program>", "exec"), names)
    run = compiler(names["main"])
    args = [torch.arange(3.0) - 1, 0, [1, 2, 3], {"a": 1, "c": 2}, names["Checked"](2, 3)]
    seen = []
    with torch.no_grad():
        for n in CALLS:
            args[1] = n
            seen.append(_call(run, args, names))
    return seen


def _call(run, args, names) -> list:
    result, error, printed = None, None, io.StringIO()
    with contextlib.redirect_stdout(printed):
        try:
            result = run(*args)
        except Exception as e:
            error = e
        let_go_of_frames(error)
    snapshot = Snapshot()
    state = [snapshot.of(a) for a in args] + [snapshot.of(names[g]) for g in GLOBALS]
    return [_chain(error, snapshot), snapshot.of(result), state, printed.getvalue()]


def let_go_of_frames(error: BaseException | None) -> None:
    """A traceback holds the frames of those functions that the exception went through, and all that
    lives in them. Behind a break the rest of a function is a function of its own, whose frame it
    may be that is held."""
    for _ in range(8):
        if error is not None:
            error.__traceback__ = None
            error = error.__cause__ or error.__context__


def _chain(error: BaseException | None, snapshot: Snapshot) -> list:
    """The exception, and those behind it."""
    out = []
    while error is not None and len(out) < 8:
        args = [str(a) if isinstance(a, BaseException) else snapshot.of(a) for a in error.args]
        out.append([type(error).__name__, args, error.__suppress_context__])
        error = error.__cause__ or error.__context__
    return out


def reduced(source: str, still_differs) -> str:
    """The source with as few statements as a greedy search finds for which `still_differs(source)`
    holds."""
    tree, shrinks = ast.parse(source), True
    while shrinks:
        shrinks = False
        for body in _bodies(tree):
            for i in reversed(range(len(body))):
                taken = body[i]
                inner = getattr(taken, "body", None)
                options = [inner if isinstance(inner, list) else [], []]
                for put in options if options[0] else options[1:]:
                    body[i : i + 1] = put
                    if _holds(still_differs, tree):
                        shrinks = True
                        break
                    body[i : i + len(put)] = [taken]
    return _text(tree)


def _bodies(tree: ast.AST) -> list[list]:
    found = []
    for node in ast.walk(tree):
        for name in ("body", "orelse", "finalbody", "handlers", "cases"):
            part = getattr(node, name, None)
            if isinstance(part, list):
                found.append(part)
    return found


def _text(tree: ast.AST) -> str:
    tree = copy.deepcopy(tree)  # the lists of the original are being changed
    for node in ast.walk(tree):
        if isinstance(getattr(node, "body", None), list) and not node.body:
            node.body = [ast.Pass()]
    return ast.unparse(ast.fix_missing_locations(tree))


def _holds(still_differs, tree) -> bool:
    try:
        text = _text(tree)
        compile(text, "<program>", "exec")
        return still_differs(text)
    except Exception:
        return False
