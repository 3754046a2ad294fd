"""The bytecode layer against the interpreter that runs this: its standard library, `dis`, the
compiler's figures.

usage: python check.py FOLDER     (of the module oxyfuel_bytecode; needs neither torch nor pytest)
"""

import dis
import importlib.util
import marshal
import pathlib
import sys
import sysconfig
import types
import warnings

SKIPPED = {"test", "tests", "idle_test", "site-packages", "lib2to3", "turtledemo"}
HAS_TABLE = sys.version_info >= (3, 11)
# `dis` shows every argument, but for names; these are compared for one code object of so many.
STRIDE = 7


def code_objects(code):
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from code_objects(constant)


def compiled(path):
    cached = pathlib.Path(importlib.util.cache_from_source(str(path)))
    if cached.exists() and cached.read_bytes()[:4] == importlib.util.MAGIC_NUMBER:
        return marshal.loads(cached.read_bytes()[16:])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return compile(path.read_bytes(), path.name, "exec")


def library():
    root = pathlib.Path(sysconfig.get_paths()["stdlib"])
    for path in sorted(root.rglob("*.py")):
        if SKIPPED.isdisjoint(path.relative_to(root).parts):
            yield from code_objects(compiled(path))


def line_table_entries(code):
    """The location of each instruction and cache, as many of its four parts as this version
    keeps."""
    if hasattr(code, "co_positions"):
        return list(code.co_positions())
    lines = [None] * (len(code.co_code) // 2)
    for start, end, line in code.co_lines():
        lines[start // 2 : end // 2] = [line] * ((end - start) // 2)
    return [(line, line, None, None) for line in lines]


def check_round_trip(module, code):
    made = module.bytecode_round_trip(code)
    assert made.co_code == code.co_code
    assert made.co_linetable == code.co_linetable
    assert made.co_stacksize == code.co_stacksize, (made.co_stacksize, code.co_stacksize)
    if HAS_TABLE:
        assert made.co_exceptiontable == code.co_exceptiontable
    assert made == code


def shown_by_dis(code):
    """dis's instructions without EXTENDED_ARG and caches."""
    return [i for i in dis.get_instructions(code) if i.opcode != dis.EXTENDED_ARG]


def check_instructions(module, code):
    mine, theirs = module.bytecode_instructions(code), shown_by_dis(code)
    assert len(mine) == len(theirs)
    places = line_table_entries(code)
    jumps = {*dis.hasjrel, *dis.hasjabs}
    for (offset, name, argument, target, place), it in zip(mine, theirs):
        assert (offset, name) == (it.offset, it.opname), it
        assert it.arg is None or argument == it.arg, it
        assert target == (it.argval if it.opcode in jumps else None), it
        assert place == places[offset // 2], (place, it)


def check_ranges(module, code):
    entries = dis.Bytecode(code).exception_entries
    theirs = [(e.start, e.end, e.target, e.depth, e.lasti) for e in entries]
    assert module.bytecode_ranges(code) == theirs


def check_text(module, code):
    lines = [line for line in module.bytecode_text(code).splitlines() if line]
    # The text of arguments that versions of dis have more and less of.
    unlike = ("KW_NAMES", "CALL_INTRINSIC", "IS_OP", "CONTAINS_OP", "LOAD_GLOBAL", "LOAD_ATTR")
    for line, it in zip(lines, shown_by_dis(code)):
        head, _, shown = line.partition(" (")
        words = head.replace(">>", "").split()
        assert it.opname in words, (line, it)
        if it.argrepr and it.opcode not in dis.hasjrel and not it.opname.startswith(unlike):
            assert shown.removesuffix(")") == it.argrepr, (line, it)


def check_library(module):
    count = instructions = 0
    for code in library():
        try:
            check_round_trip(module, code)
            if count % STRIDE == 0:
                check_instructions(module, code)
                check_text(module, code)
            if HAS_TABLE:
                check_ranges(module, code)
        except Exception as error:
            where = f"{code.co_filename}:{code.co_firstlineno} {code.co_name}"
            raise AssertionError(f"{where}: {error!r}") from error
        count += 1
        instructions += len(code.co_code) // 2
    assert count > 10000
    print(f"{count} code objects, {instructions} code units")


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


def check_handlers(module):
    """An exception goes on where the range that covers its instruction says."""
    for function, argument in ((handled, [1, 0, None, 2, 0]), (nested, 5)):
        raised, offsets = visits(function, argument)
        ranges = module.bytecode_ranges(function.__code__)
        assert len(raised) > 5
        for at, then in raised:
            targets = [target for start, end, target, _, _ in ranges if start <= at < end]
            assert targets == [then], (function, at, then, ranges)
        reached = {at for at, _ in module.bytecode_depths(function.__code__)}
        shown = {i.offset for i in shown_by_dis(function.__code__)}
        assert offsets & shown <= reached


def check_round_trip_runs(module):
    for function, argument in ((handled, [1, 0, None, 2, 0]), (nested, 5)):
        made = types.FunctionType(module.bytecode_round_trip(function.__code__), globals())
        assert made(argument) == function(argument)


def check_live(module):
    def f(a, b):
        x = a
        try:
            x = b()
        except ValueError:
            return x
        return 1

    live = dict(module.bytecode_live(f.__code__))
    call = next(i.offset for i in shown_by_dis(f.__code__) if i.opname.startswith("CALL"))
    # The call may raise before the second write.
    assert set(live[call]) == {"x"}, live[call]
    assert set(live[0]) == {"a", "b"}, live[0]


def main():
    sys.path.insert(0, sys.argv[1])
    module = importlib.import_module("oxyfuel_bytecode")
    check_handlers(module)
    check_round_trip_runs(module)
    check_live(module)
    check_library(module)


if __name__ == "__main__":
    main()
