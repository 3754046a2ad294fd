"""Whether a program of states.py does under `oxyfuel.compile` what it does in eager, and the
smallest part of it that does not."""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import functools
import io
import logging
import pathlib
import random
import re
import sys
import threading
import types
import warnings
import weakref

import numpy as np
import torch
from against_python import let_go_of_frames, reduced
from states import IMPORTS, Program

import oxyfuel

sys.path.append(str(pathlib.Path(__file__).parent.parent / "capture"))
from snapshot import Leaf, Snapshot, differences

_NAMELESS = ("__dict__", "__weakref__", "__doc__", "__module__", "__builtins__")
_VIEWS = (type({}.keys()), type({}.values()), type({}.items()), types.MappingProxyType)
_WRAPPED = (property, classmethod, staticmethod, functools.cached_property)
_CACHE = type(functools.lru_cache(len))


class WorldSnapshot(Snapshot):
    """Also classes, functions, modules of the world, and what tensors share."""

    def __init__(self) -> None:
        super().__init__()
        self.storages: dict[int, int] = {}

    def of(self, value):
        if isinstance(value, type):
            made_here = value.__module__ == "program"
            if not made_here or id(value) in self.numbers:
                return _text(value) if not made_here else ("seen", self.numbers[id(value)])
            self._number(value)
            return (
                "class",
                value.__name__,
                [self.of(b) for b in value.__bases__],
                self._members(value),
            )
        if isinstance(value, types.ModuleType) and value.__name__ in ("space", "other"):
            if id(value) in self.numbers:
                return ("seen", self.numbers[id(value)])
            self._number(value)
            return ("module", type(value).__name__, self._named(vars(value)))
        found = super().of(value)
        if isinstance(found, Leaf):
            return self._tensor(value, found)
        return _without_addresses(found) if isinstance(value, str) else _plain(found)

    def _number(self, value):
        self.numbers[id(value)] = len(self.numbers)
        self.kept.append(value)

    def _members(self, cls):
        return self._named({k: v for k, v in vars(cls).items() if not k.startswith("_abc")})

    def _named(self, names):
        return [(k, self.of(v)) for k, v in list(names.items()) if k not in _NAMELESS]

    def _tensor(self, value, leaf):
        facts = [*leaf.facts, value.grad_fn is None, value.is_inference()]
        if value.layout == torch.strided and value.device.type == "cpu":
            storage = value.untyped_storage()
            self.kept.append(storage)
            number = self.storages.setdefault(storage._cdata, len(self.storages))
            facts += [number, value.storage_offset()]
        seen = torch.zeros(()) if value.device.type == "meta" else leaf.value
        if type(seen) is not torch.Tensor:
            with torch._C.DisableTorchFunctionSubclass():
                seen = seen.as_subclass(torch.Tensor)
        extra = [self.of(value.grad) if value.is_leaf else None, self._named(value.__dict__)]
        return (Leaf(leaf.number, seen, tuple(facts)), extra)

    def _content(self, value):
        if isinstance(value, np.ndarray):
            return [value.dtype.name, value.shape, value.strides, repr(value.tolist())]
        if isinstance(value, weakref.ref):
            return [self.of(value())]
        if isinstance(value, (set, frozenset)):
            return [*sorted(_text(v) for v in value), self._attributes(value)]
        if isinstance(value, types.FunctionType):
            code = value.__code__
            cells = [self.of(_cell(c)) for c in value.__closure__ or ()]
            defaults = [self.of(value.__defaults__), self.of(value.__kwdefaults__)]
            return [value.__name__, code.co_code, cells, defaults, self._named(value.__dict__)]
        if isinstance(value, types.MethodType):
            return [self.of(value.__self__), self.of(value.__func__)]
        if isinstance(value, functools.partial):
            return [*self.of_function(value), self._named(value.__dict__)]
        if isinstance(value, _CACHE):
            return [value.cache_info()[2:], self.of(value.__wrapped__)]
        if isinstance(value, _VIEWS):
            return [self.of(v) for v in (list(value.items()) if hasattr(value, "items") else value)]
        if isinstance(value, property):
            return [self.of(value.fget), self.of(value.fset)]
        if isinstance(value, (classmethod, staticmethod)):
            return [self.of(value.__func__)]
        if isinstance(value, contextvars.ContextVar):
            return [self.of(value.get(None))]
        if isinstance(value, io.StringIO):
            return [value.getvalue()]
        if isinstance(value, logging.Logger):
            return [value.level, value.disabled]
        if isinstance(value, random.Random):
            return [hash(value.getstate())]
        if isinstance(value, torch.Generator):
            return [value.get_state().tolist()]
        if isinstance(value, BaseException):
            return [self.of(value.args), self._attributes(value)]
        if isinstance(value, functools.cached_property):
            return [self.of(value.func)]
        if isinstance(value, threading.local):
            return [self._named(vars(value))]
        if isinstance(value, types.GeneratorType):
            return [value.gi_frame is None]
        if isinstance(value, torch.nn.Module):
            return self._named(value.__dict__)
        if type(value).__module__ not in ("program", "types", "collections", "builtins"):
            return [_text(value)]
        more = [getattr(value, k, None) for k in ("maxlen",)]
        more += [self.of(getattr(value, "default_factory", None))]
        return [*more, *super()._content(value)]

    def _attributes(self, value):
        try:
            named = dict(object.__getattribute__(value, "__dict__"))
        except AttributeError:
            named = {}
        for cls in type(value).__mro__:
            for name in vars(cls).get("__slots__", ()):
                slot = vars(cls).get(name)
                if isinstance(slot, types.MemberDescriptorType):
                    with contextlib.suppress(AttributeError):
                        named[name] = slot.__get__(value)
        return self._named(named)


def _cell(cell):
    return cell.cell_contents if cell != types.CellType() else None


def _text(value) -> str:
    try:
        return re.sub(r"0x[0-9a-f]+", "0x", repr(value))
    except Exception as e:
        return f"{type(e).__name__}: {e}"


def _plain(found):
    return re.sub(r"0x[0-9a-f]+", "0x", found) if isinstance(found, str) else found


def _without_addresses(found):
    return tuple(_plain(part) for part in found)


@contextlib.contextmanager
def _builtins_as_they_were(names):
    """For what looks at a world whose builtins are patched."""
    patched = {}
    for (where, name), original in names.get("originals", {}).items():
        patched[where, name] = getattr(where, name)
        setattr(where, name, original)
    try:
        yield
    finally:
        for (where, name), value in patched.items():
            setattr(where, name, value)


def differing(program: Program) -> str | None:
    """What differs, at the first call that does."""

    def compiler(main):
        options = {"break_at": program.break_at}
        return oxyfuel.compile(main, backend=program.backend, options=options)

    oxyfuel.reset()
    expected = contextvars.copy_context().run(_calls, program, lambda main: main)
    actual = contextvars.copy_context().run(_calls, program, compiler)
    for number, (e, a) in enumerate(zip(expected, actual)):
        if e[-1]:
            break
        for name, one, other in zip(("exception", "result", "world", "printed"), e, a):
            if found := differences(one, other, f"call {number}, {name}"):
                return found[0][:600]
    return None


def _calls(program: Program, compiler) -> list[list]:
    module = sys.modules["program"] = types.ModuleType("program")
    names = module.__dict__
    seen = []
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec(compile(IMPORTS, "<imports>", "exec"), names)
        try:
            exec(compile(program.source(), "<program>", "exec"), names)
            if not callable(names["main"]):
                raise TypeError("not a program")
            run = compiler(names["main"])
            for number, changes in enumerate([[], *program.changes]):
                for change in changes:
                    with contextlib.suppress(Exception):
                        exec(compile(change, "<change>", "exec"), names)
                seen.append(_call(program, run, names, number))
        finally:
            exec(program.restore, names)
    return seen


def _call(program: Program, run, names, number: int) -> list:
    x = torch.arange(3.0) - 1
    x.requires_grad_(program.requires_grad)
    result, error, printed = None, None, io.StringIO()
    with contextlib.redirect_stdout(printed):
        try:
            result = run(x, program.numbers[number])
        except Exception as e:
            error = e
    with _builtins_as_they_were(names):
        let_go_of_frames(error)
        refused = error is None and _backward_is_refused(result[0])
        snapshot = WorldSnapshot()
        told = [type(error).__name__, re.sub(r"0x[0-9a-f]+", "0x", str(error))]
        given = snapshot.of(result)
        world = [(k, snapshot.of(v)) for k, v in _world(names).items()]
        state = eval(program.state, names) if program.state else []
        world = [world, snapshot.of(state), snapshot.of(x)]
        return [told, given, world, printed.getvalue(), refused]


def _backward_is_refused(result) -> bool:
    """For what was written since, which eager's nodes look at whether they read it or not."""
    try:
        result.sum().backward()
    except Exception as e:
        return "modified" in str(e)
    return False


def _world(names):
    skipped = (types.ModuleType, types.BuiltinFunctionType)
    return {
        k: v
        for k, v in names.items()
        if not k.startswith("__")
        and k not in ("originals", "saved", "main", "saved_relu", "saved_code")
        and (not isinstance(v, skipped) or k == "space")
    }


def report(program: Program) -> str:
    """The smallest program that still differs in the same part of its call."""
    kind = lambda p: (differing(p) or ": ").split(", ")[-1].split(":")[0].split(".")[0]
    wanted = kind(program)
    fails = lambda p: kind(p) == wanted
    shrinks = True
    while shrinks:
        shrinks = False
        for smaller in _smaller(program):
            if fails(smaller):
                program, shrinks = smaller, True
                break
    main = reduced(program.main, lambda t: fails(dataclasses.replace(program, main=t)))
    program = dataclasses.replace(program, main=main)
    return f"{differing(program)}\n{program.text()}\n"


def _smaller(program: Program):
    if program.backend != "eager":
        yield dataclasses.replace(program, backend="eager")
    if program.break_at:
        yield dataclasses.replace(program, break_at=0)
    if program.requires_grad:
        yield dataclasses.replace(program, requires_grad=False)
    if set(program.numbers) != {2}:
        yield dataclasses.replace(program, numbers=[2] * len(program.numbers))
    for i, changes in enumerate(program.changes):
        if len(program.changes) > 1:
            cut = program.changes[:i] + program.changes[i + 1 :]
            numbers = program.numbers[: i + 1] + program.numbers[i + 2 :]
            yield dataclasses.replace(program, changes=cut, numbers=numbers)
        for j in range(len(changes)):
            less = [c for k, c in enumerate(changes) if k != j]
            cut = [less if k == i else c for k, c in enumerate(program.changes)]
            yield dataclasses.replace(program, changes=cut)
