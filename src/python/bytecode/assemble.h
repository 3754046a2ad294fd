// The parts of `assemble`: where instructions land in the bytes, the tables beside them in the
// encoding of CPython, and the code object around all. Offsets are in code units of two bytes.
#pragma once

#include "python/bytecode/code.h"
#include "python/cpython/code_object.h"
#include "python/cpython/opcodes.h"

namespace oxy::python {

struct Layout {
  std::vector<int> start;      // the first EXTENDED_ARG, or the instruction; one more for the end
  std::vector<int> prefixes;   // EXTENDED_ARGs of each instruction
  std::vector<uint8_t> ops;    // jumps in the direction that they really go
  std::vector<uint32_t> args;  // jumps with their distance

  int offset(int index) const { return 2 * (start[index] + prefixes[index]); }  // of the op, bytes
};

// The instruction whose offset a jump's argument gives.
inline int named_target(const Instruction& jump) {
  return jump.target - (jump.op == FOR_ITER ? kForIterSkips : 0);
}

Layout lay_out(const Bytecode& bytecode);

// co_linetable: a location for each of `units` code units; of 3.10 with lines only.
std::vector<Location> read_locations(std::string_view table, int first_line, int units);

// Locations in order, each for so many code units.
using Locations = std::vector<std::pair<Location, int>>;
std::string write_locations(const Locations& entries, int first_line);

// co_exceptiontable: start, end and target are code units, not instructions.
std::vector<ExceptionRange> read_ranges(std::string_view table);
std::string write_ranges(const std::vector<ExceptionRange>& ranges);

// The names and flags of `code`, with its cells and free variables; the rest is to be filled in.
inline CodeParts parts_like(PyCodeObject* code, PyObject* cells, PyObject* frees) {
  CodeParts parts;
  parts.flags = code->co_flags;
  parts.names = code->co_names;
  parts.cell_variables = cells;
  parts.free_variables = frees;
  parts.name = code->co_name;
  parts.qualified_name = qualified_name(code);
  return parts;
}

// With the bytes and tables of the instructions; file name and first line are `like`'s. A new
// reference, nullptr with an exception set.
PyCodeObject* make_code(const Bytecode& bytecode, CodeParts parts, PyCodeObject* like);

}  // namespace oxy::python
