"""What CPython itself says of its bytecode: `dis`, stack effects, and where functions really go.

check.py holds the layer against it; recording.py writes it down in a CPython that the machine
lacks."""

import dis
import sys
import types
from typing import NamedTuple

HAS_TABLE = sys.version_info >= (3, 11)
NO_NEXT = {"RETURN_VALUE", "RETURN_CONST", "RAISE_VARARGS", "RERAISE"}
NO_NEXT |= {"JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT", "JUMP_ABSOLUTE"}
GENERATORS = 0x20 | 0x80 | 0x200  # the flags of generators and coroutines
JUMPS = {*dis.hasjrel, *dis.hasjabs}


class Shown(NamedTuple):
    """A line of `dis`."""

    offset: int
    name: str
    argument: int | None
    target: int | None  # of a jump
    text: str


def code_objects(code):
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from code_objects(constant)


def shown(code):
    """Without EXTENDED_ARG and caches."""
    return [
        Shown(i.offset, i.opname, i.arg, i.argval if i.opcode in JUMPS else None, i.argrepr)
        for i in dis.get_instructions(code)
        if i.opcode != dis.EXTENDED_ARG
    ]


def places(code):
    """The location of each instruction and cache, as many of its four parts as this version
    keeps."""
    if hasattr(code, "co_positions"):
        return list(code.co_positions())
    lines = [None] * (len(code.co_code) // 2)
    for start, end, line in code.co_lines():
        lines[start // 2 : end // 2] = [line] * ((end - start) // 2)
    return [(line, line, None, None) for line in lines]


def ranges(code):
    entries = dis.Bytecode(code).exception_entries
    return [(e.start, e.end, e.target, e.depth, e.lasti) for e in entries]


def stack_effect(name, argument, jumps):
    return dis.stack_effect(dis.opmap[name], argument, jump=jumps)


def depths(code):
    """{offset: the stack's depth in front of it} of what can be reached; only where exceptions have
    a table."""
    lines = shown(code)
    index, first = {}, 0
    for i, line in enumerate(lines):  # a jump may go to the first EXTENDED_ARG
        index.update(dict.fromkeys(range(first, line.offset + 2, 2), i))
        first = line.offset + 2
    handlers = ranges(code)
    # A generator begins with what it is sent, unless an instruction pushes that.
    pushed = stack_effect("RETURN_GENERATOR", None, False)
    found, waiting = {}, [(0, 1 - pushed if code.co_flags & GENERATORS else 0)]
    while waiting:
        at, depth = waiting.pop()
        line = lines[at]
        if line.offset in found:
            continue
        found[line.offset] = depth
        for start, end, target, kept, lasti in handlers:
            if start <= line.offset < end:
                waiting.append((index[target], kept + 1 + lasti))
        if line.target is not None and line.name != "END_ASYNC_FOR":
            effect = stack_effect(line.name, line.argument, True)
            waiting.append((index[line.target], depth + effect))
        if line.name not in NO_NEXT:
            waiting.append((at + 1, depth + stack_effect(line.name, line.argument, False)))
    return found


def varints(numbers):
    return bytes(number | (128 if place == 0 else 0) for place, number in enumerate(numbers))


def raises_in_front():
    """What a called frame raises goes to the handler of the code unit in front of the call."""

    def raises():
        raise ValueError

    def catches():
        try:
            raises()
        except ValueError:
            return True

    code = catches.__code__
    call = next(line.offset for line in shown(code) if line.name == "CALL")
    target, depth = next(entry[2:4] for entry in ranges(code) if entry[0] <= call < entry[1])
    table = varints([call // 2 - 1, 1, target // 2, depth << 1])
    catches.__code__ = code.replace(co_exceptiontable=table)
    try:
        return catches()
    except ValueError:
        return False


def habits():
    """What of the constants in opcodes.h shows only when code around a graph break runs."""
    keywords = {stack_effect("CALL_FUNCTION_EX", argument, False) for argument in (0, 1)}
    return {
        "raises_in_front": HAS_TABLE and raises_in_front(),
        "keywords_or_null": len(keywords) == 1,
        "conditions_are_bools": "TO_BOOL" in dis.opmap,
        "calls_take_null": "PUSH_NULL" in dis.opmap,
        "has_resume": "RESUME" in dis.opmap,
        "cells_made_at_entry": "MAKE_CELL" not in dis.opmap,
    }


def handled(values):
    result = []
    for value in values:
        try:
            try:
                result.append(10 // value)
            except ZeroDivisionError as error:
                result.append(str(error))
                raise KeyError(value) from error
            finally:
                result.append(value)
        except (KeyError, TypeError):
            with open_block(result) as block:
                block[value]
    return result


class open_block:
    def __init__(self, log):
        self.log = log

    def __enter__(self):
        return {}

    def __exit__(self, *raised):
        self.log.append(raised[0])
        return True


def nested(n):
    while n:
        n -= 1
        try:
            with open_block([]):
                [1 // (k - n) for k in range(4)]
            for _ in [0]:
                try:
                    int(f"x{n}")
                finally:
                    n -= 0
        except ValueError:
            continue
    return n


RUN = ((handled, [1, 0, None, 2, 0]), (nested, 5))


def written_twice(a, b):
    x = a
    try:
        x = b()
    except ValueError:
        return x
    return 1


def visits(function, *arguments):
    """(offset that raised, offset that came next) in the function's own frame, and every offset it
    was at."""
    code, raised, offsets, pending = function.__code__, [], set(), []

    def trace(frame, event, _):
        if frame.f_code is not code:
            return None
        frame.f_trace_opcodes = True
        if event == "exception":
            pending[:] = [frame.f_lasti]
        elif event == "opcode":
            offsets.add(frame.f_lasti)
            if pending:
                raised.append((pending.pop(), frame.f_lasti))
        return trace

    for _ in range(2):  # 3.12 tells of opcodes from the second run on
        raised.clear(), pending.clear()
        sys.settrace(trace)
        try:
            function(*arguments)
        finally:
            sys.settrace(None)
    return raised, offsets
