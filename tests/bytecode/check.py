"""The bytecode layer against the interpreter that runs this: its standard library, `dis`, the
compiler's figures.

usage: python check.py FOLDER     (of the module oxyfuel_bytecode; needs neither torch nor pytest)
"""

import importlib.util
import marshal
import pathlib
import sys
import sysconfig
import types
import warnings

import reference

SKIPPED = {"test", "tests", "idle_test", "site-packages", "lib2to3", "turtledemo"}
# `dis` shows every argument, but for names; these are compared for one code object of so many.
STRIDE = 7


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
            yield from reference.code_objects(compiled(path))


def check_round_trip(module, code, bytes_of=lambda code: code.co_code):
    made = module.bytecode_round_trip(code)
    assert bytes_of(made) == bytes_of(code)
    assert made.co_linetable == code.co_linetable
    assert made.co_stacksize == code.co_stacksize, (made.co_stacksize, code.co_stacksize)
    if reference.HAS_TABLE:
        assert made.co_exceptiontable == code.co_exceptiontable
    assert made == code


def check_instructions(module, code, lines, places):
    mine = module.bytecode_instructions(code)
    assert len(mine) == len(lines)
    for (offset, name, argument, target, place), line in zip(mine, lines):
        assert (offset, name) == (line.offset, line.name), line
        assert line.argument is None or argument == line.argument, line
        assert target == line.target, line
        assert place == places[offset // 2], (place, line)


def check_ranges(module, code, ranges):
    assert module.bytecode_ranges(code) == ranges


def check_depths(module, code, depths):
    """The end of a loop is all that the layer does not go through."""
    mine = dict(module.bytecode_depths(code))
    assert all(depths.get(offset) == depth for offset, depth in mine.items()), (mine, depths)
    names = {offset: name for offset, name, *_ in module.bytecode_instructions(code)}
    assert {names[offset] for offset in depths if offset not in mine} <= {"END_FOR", "POP_TOP"}


def local_use(line):
    """(the names that an instruction reads before it writes, those that it writes)"""
    if "_FAST" not in line.name:
        return set(), set()
    first, *second = line.text.split(", ")
    if line.name == "STORE_FAST_LOAD_FAST":
        return {*second} - {first}, {first}
    names = {first, *second}
    return (set(), names) if line.name.startswith("STORE") else (names, set())


def check_liveness(module, code, lines, ranges):
    """What is live in front of an instruction follows from what is so where it may go on."""
    live = {offset: {*names} for offset, names in module.bytecode_live(code)}
    always = {*code.co_cellvars, *code.co_freevars}
    if "__class__" in code.co_freevars:
        always.update(code.co_varnames[: min(code.co_argcount, 1)])
    # A target is the first EXTENDED_ARG of its instruction.
    at, first = {}, 0
    for line in lines:
        at.update(dict.fromkeys(range(first, line.offset + 2, 2), live[line.offset]))
        first = line.offset + 2
    for line, after in zip(lines, [*lines[1:], None]):
        read, written = local_use(line)
        expected = set()
        if line.name not in reference.NO_NEXT and after:
            expected |= live[after.offset]
        if line.target is not None and line.name != "END_ASYNC_FOR":
            expected |= at[line.target]
        expected = expected - written | read | always
        for start, end, target, _, _ in ranges:
            if start <= line.offset < end:
                expected |= at[target]
        assert live[line.offset] == expected, (line, live[line.offset], expected)


def check_text(module, code, lines):
    # The text of arguments that versions of dis have more and less of.
    unlike = ("KW_NAMES", "CALL_INTRINSIC", "IS_OP", "CONTAINS_OP")
    unlike += ("LOAD_COMMON_CONSTANT", "LOAD_SPECIAL", "LOAD_SMALL_INT")
    mine = [line for line in module.bytecode_text(code).splitlines() if line]
    for text, line in zip(mine, lines):
        head, _, shown = text.partition(" (")
        assert line.name in head.replace(">>", "").split(), (text, line)
        if line.text and line.target is None and not line.name.startswith(unlike):
            assert shown.removesuffix(")") == line.text, (text, line)


def check_library(module):
    count = instructions = 0
    for code in library():
        try:
            check_round_trip(module, code)
            if count % STRIDE == 0:
                lines = reference.shown(code)
                check_instructions(module, code, lines, reference.places(code))
                check_text(module, code, lines)
            if reference.HAS_TABLE:
                ranges = reference.ranges(code)
                check_ranges(module, code, ranges)
            if reference.HAS_TABLE and count % STRIDE == 0:
                check_depths(module, code, reference.depths(code))
                check_liveness(module, code, lines, ranges)
        except Exception as error:
            where = f"{code.co_filename}:{code.co_firstlineno} {code.co_name}"
            raise AssertionError(f"{where}: {error!r}") from error
        count += 1
        instructions += len(code.co_code) // 2
    assert count > 10000
    print(f"{count} code objects, {instructions} code units")


def check_handlers(module, code, raised, offsets):
    """An exception goes on where the range that covers its instruction says; what runs can be
    reached."""
    ranges = module.bytecode_ranges(code)
    assert len(raised) > 5
    for at, then in raised:
        targets = [target for start, end, target, _, _ in ranges if start <= at < end]
        assert targets == [then], (code, at, then, ranges)
    names = {offset: name for offset, name, *_ in module.bytecode_instructions(code)}
    reached = {at for at, _ in module.bytecode_depths(code)}
    assert offsets & names.keys() <= reached
    # Loops that end go past this.
    assert {at for at in reached if names[at] == "END_FOR"} <= offsets


def check_round_trip_runs(module):
    for function, argument in reference.RUN:
        code = module.bytecode_round_trip(function.__code__)
        made = types.FunctionType(code, function.__globals__)
        assert made(argument) == function(argument)


def check_live(module, code):
    """Of reference.written_twice."""
    live = dict(module.bytecode_live(code))
    shown = module.bytecode_instructions(code)
    call = next(offset for offset, name, *_ in shown if name.startswith("CALL"))
    # The call may raise before the second write.
    assert set(live[call]) == {"x"}, live[call]
    assert set(live[0]) == {"a", "b"}, live[0]


def check_habits(module, habits):
    assert {name: bool(getattr(module, name)) for name in habits} == habits


def main():
    sys.path.insert(0, sys.argv[1])
    module = importlib.import_module("oxyfuel_bytecode")
    for function, argument in reference.RUN:
        check_handlers(module, function.__code__, *reference.visits(function, argument))
    check_habits(module, reference.habits())
    check_round_trip_runs(module)
    check_live(module, reference.written_twice.__code__)
    check_library(module)


if __name__ == "__main__":
    main()
