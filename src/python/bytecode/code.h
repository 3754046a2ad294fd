// A code object taken apart, and put together again.
//
// Instructions stand in order without caches and EXTENDED_ARG; jumps and exception ranges name
// instructions by index, so that code can be inserted and removed. `assemble` computes offsets,
// caches, EXTENDED_ARG, the tables and the stack size. What depends on the version of CPython
// (opcode numbers, caches, which opcodes jump and how, stack effects) is behind opcodes.h.
#pragma once

#include <Python.h>

#include <algorithm>
#include <string>
#include <vector>

namespace oxy::python {

struct Location {
  int32_t line = -1, end_line = -1, column = -1, end_column = -1;  // -1: none
  friend bool operator==(const Location&, const Location&) = default;
};

struct Instruction {
  uint8_t op = 0;
  uint32_t arg = 0;     // of a jump: meaningless, see target; of a cell: its slot
  int32_t target = -1;  // of a jump: the index of the instruction that follows it
  int32_t offset = -1;  // in bytes, where the code came from; -1 for one that was made
  Location location;
};

// Instructions [start, end) raise to `target` with the stack cut to `depth`.
struct ExceptionRange {
  int32_t start = 0, end = 0, target = 0;
  int32_t depth = 0;
  bool push_lasti = false;
};

struct Bytecode {
  std::vector<Instruction> instructions;
  std::vector<ExceptionRange> ranges;  // as CPython keeps them: disjoint, ascending
  int first_cell = 0;                  // the slot that CPython counts cells from

  // The range that covers the instruction; nullptr where there is none.
  const ExceptionRange* range_at(size_t index) const {
    const auto at = static_cast<int32_t>(index);
    auto covers = [=](const ExceptionRange& r) { return r.start <= at && at < r.end; };
    const auto found = std::ranges::find_if(ranges, covers);
    return found == ranges.end() ? nullptr : &*found;
  }
};

// Takes the bytecode of a code object apart. Never fails on code that CPython made.
Bytecode disassemble(PyCodeObject* code);

// The same with plain instructions alone (plain_steps): what captures and the code around breaks
// are made of.
Bytecode plain_bytecode(PyCodeObject* code);

// A code object like `like` (names, constants, locals, flags ...) with this bytecode; a new
// reference, nullptr with an exception set.
PyCodeObject* assemble(const Bytecode& bytecode, PyCodeObject* like);

// As dis.dis prints it, a line an instruction, jump targets marked: the artefact "bytecode".
std::string to_text(const Bytecode& bytecode, PyCodeObject* code);

// For each instruction the locals (indices into localsplus) that may be read from there on before
// they are written, along jumps and exception edges. Cells are always live.
std::vector<std::vector<bool>> live_locals(const Bytecode& bytecode, PyCodeObject* code);

// What tests see of it, also for a Python without torch. All take a code object; offsets in bytes.
//   bytecode_round_trip   the code object, taken apart and put together
//   bytecode_plain        the same of plain instructions alone
//   bytecode_text         to_text()
//   bytecode_instructions [(offset, name, argument, offset of the jump's target or None, (line,
//                         end_line, column, end_column) with None for what is not there)]
//   bytecode_ranges       [(start, end, target, depth, push_lasti)]
//   bytecode_depths       [(offset, depth of the stack in front of it)] of what can be reached
//   bytecode_live         [(offset, [names of the live locals])]
extern PyMethodDef bytecode_functions[];

}  // namespace oxy::python
