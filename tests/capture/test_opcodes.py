"""Every opcode of CPython 3.10 and 3.11: each program of opcode_programs.py gives plain Python's
result, also with a forced break in front of any instruction."""

import dis
import opcode
import pathlib
import sys
import types

import pytest
from opcode_programs import BREAKS, LEFT_OUT, LEFT_OUT_OF_310, PROGRAMS

import oxyfuel

sys.path.append(str(pathlib.Path(__file__).parent.parent / "property"))
from against_python import differing

pytestmark = [pytest.mark.usefixtures("strict"), pytest.mark.filterwarnings("ignore")]
EVERY = pytest.mark.parametrize("name", PROGRAMS)


def opcodes_of(code: types.CodeType) -> set[str]:
    found = {i.opname for i in dis.get_instructions(code)}
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            found |= opcodes_of(constant)
    return found


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="the opcodes of 3.11")
def test_each_opcode_has_a_program_or_a_reason():
    listed = set(LEFT_OUT)
    for opcodes, text in PROGRAMS.values():
        names = set(opcodes.split())
        missing = names - opcodes_of(compile(text, "<program>", "exec"))
        assert not missing, f"{missing} not in{text}"
        listed |= names
    assert listed == set(opcode.opmap)


@pytest.mark.skipif(sys.version_info[:2] != (3, 10), reason="the opcodes of 3.10")
def test_each_opcode_of_310_has_a_program_or_a_reason():
    there = set()
    for _, text in PROGRAMS.values():
        there |= opcodes_of(compile(text, "<program>", "exec"))
    left_out = set(LEFT_OUT) & set(opcode.opmap) | set(LEFT_OUT_OF_310)
    assert there | left_out == set(opcode.opmap)
    assert not there & left_out


@EVERY
def test_plain_pythons_result(name):
    assert not differing(PROGRAMS[name][1])
    breaks = oxyfuel.stats()["graph_breaks"]
    assert breaks > 0 if name in BREAKS else breaks == 0


@EVERY
def test_with_a_break_at_any_instruction(name, request):
    every = request.config.getoption("--every-break")
    place = 1 if every else 2 + len(name) % 5
    while place < 4000:
        found = differing(PROGRAMS[name][1], place)
        assert not found, f"break at {place}: {found}"
        if oxyfuel.stats()["graph_breaks"] == 0:
            break
        place += 1 if every else place // 2 + 1
