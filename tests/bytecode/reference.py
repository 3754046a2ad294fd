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
    index = {line.offset: i for i, line in enumerate(lines)}
    extended, first = [], 0  # the offset of the first EXTENDED_ARG belongs to its instruction
    for i in dis.get_instructions(code):
        extended.append(i.offset)
        if i.opcode != dis.EXTENDED_ARG:
            index.update(dict.fromkeys(extended, index[i.offset]))
            extended.clear()
    handlers = ranges(code)
    entered_with_sent = stack_effect("RETURN_GENERATOR", None, False) == 0
    first = int(entered_with_sent and code.co_flags & GENERATORS != 0)
    found, waiting = {}, [(0, first)]
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
