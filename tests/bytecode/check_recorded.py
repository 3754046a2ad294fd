"""The bytecode layer, built for a version of CPython that is not there, against what was recorded
of that version (recording.py).

usage: python check_recorded.py check VERSION FOLDER   (of oxyfuel_bytecode; in CPython 3.11)
       python check_recorded.py header VERSION FILE    (writes that version's opcode.h)
"""

import gzip
import importlib
import json
import marshal
import pathlib
import sys
import types

import check
import reference

RECORDED = pathlib.Path(__file__).parent / "recorded"
# What code objects do not contain.
INTERNAL = {"CACHE", "RESERVED", "INTERPRETER_EXIT", "EXIT_INIT_CHECK", "EXTENDED_ARG"}
PLAIN = {
    "LOAD_FAST_BORROW": ["LOAD_FAST"],
    "LOAD_FAST_LOAD_FAST": ["LOAD_FAST", "LOAD_FAST"],
    "LOAD_FAST_BORROW_LOAD_FAST_BORROW": ["LOAD_FAST", "LOAD_FAST"],
    "STORE_FAST_LOAD_FAST": ["STORE_FAST", "LOAD_FAST"],
    "STORE_FAST_STORE_FAST": ["STORE_FAST", "STORE_FAST"],
    "NOT_TAKEN": ["NOP"],
    "POP_ITER": ["POP_TOP"],
}


def tables(version):
    return json.loads((RECORDED / f"opcode-{version}.json").read_text())


def write_header(version, path):
    """Prints OXY_BYTECODE_HEX."""
    known = tables(version)
    names = enumerate(known["opname"])
    lines = [f"#define {name} {number}" for number, name in names if not name.startswith("<")]
    lines.append(f"#define HAVE_ARGUMENT {known['HAVE_ARGUMENT']}")
    pathlib.Path(path).write_text("\n".join(lines) + "\n")
    print(hex(known["hexversion"]), end="")


def opcode_module(known):
    """What that version's module `opcode` says."""
    module = types.ModuleType("opcode")
    module.__dict__.update(known)

    def stack_effect(op, argument, jumps):
        name = known["opname"][op]
        of_jumps = known["stack_effects_of_jumps"]
        effect = (of_jumps if jumps and name in of_jumps else known["stack_effects"])[name]
        return effect[str(argument)] if isinstance(effect, dict) else effect

    module.stack_effect = stack_effect
    return module


def raw_bytes(code):
    """As recorded.h takes them."""
    return code._co_code_adaptive


def code_of(hexadecimal):
    return marshal.loads(bytes.fromhex(hexadecimal))


def check_seen(module, code, seen):
    lines = [reference.Shown(*line) for line in seen["lines"]]
    offsets = [line.offset for line in lines]
    places = {offset // 2: tuple(place) for offset, place in zip(offsets, seen["places"])}
    ranges = [tuple(row) for row in seen["ranges"]]
    depths = {at: depth for at, depth in zip(offsets, seen["depths"]) if depth is not None}
    check.check_instructions(module, code, lines, places)
    check.check_text(module, code, lines)
    check.check_ranges(module, code, ranges)
    check.check_depths(module, code, depths)
    check.check_liveness(module, code, lines, ranges)
    check_plain(module, code, lines)


def locals_of(line):
    return line.text.split(", ") if "_FAST" in line.name else []


def check_plain(module, code, lines):
    """What each instruction is in plain ones, and the locals of these."""
    expected = []
    for line in lines:
        steps = PLAIN.get(line.name, [line.name])
        names = locals_of(line) or [None] * len(steps)
        expected += zip(steps, names)
        if line.text.startswith("bool("):
            expected.append(("TO_BOOL", None))
    plain = module.bytecode_plain(code)
    assert plain.co_stacksize == code.co_stacksize
    text = [line for line in module.bytecode_text(plain).splitlines() if line]
    assert len(module.bytecode_instructions(plain)) == len(expected)
    for (name, local), (_, mine, *_), line in zip(
        expected, module.bytecode_instructions(plain), text
    ):
        assert mine == name, (mine, name)
        assert local is None or f" ({local})" in line, (line, local)


def main():
    task, version, path = sys.argv[1:]
    if task == "header":
        return write_header(version, path)
    known = tables(version)
    sys.modules["opcode"] = opcode_module(known)
    sys.path.insert(0, path)
    module = importlib.import_module("oxyfuel_bytecode")
    recorded = json.loads(gzip.decompress((RECORDED / f"code-{version}.json.gz").read_bytes()))
    count, names = 0, set()
    for of_module in recorded["modules"]:
        for index, code in enumerate(reference.code_objects(code_of(of_module["code"]))):
            try:
                check.check_round_trip(module, code, raw_bytes)
                names.update(name for _, name, *_ in module.bytecode_instructions(code))
                if seen := of_module["seen"].get(str(index)):
                    check_seen(module, code, seen)
            except Exception as error:
                where = f"{of_module['name']}:{code.co_firstlineno} {code.co_name}"
                raise AssertionError(f"{where}: {error!r}") from error
            count += 1
    for run in recorded["runs"]:
        raised = [tuple(pair) for pair in run["raised"]]
        check.check_handlers(module, code_of(run["code"]), raised, {*run["offsets"]})
    check.check_habits(module, known["habits"])
    check.check_live(module, code_of(recorded["written_twice"]))
    real = known["opname"][: known["opname"].index("RESUME") + 1]
    real = {name for name in real if name[0] != "<"} - known["_specialized_opmap"].keys()
    assert names == real - INTERNAL, names ^ (real - INTERNAL)
    print(f"{count} code objects of {known['version']}, {len(names)} instructions")


if __name__ == "__main__":
    main()
