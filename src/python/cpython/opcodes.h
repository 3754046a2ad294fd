// What of an opcode depends on the version of CPython. The numbers are <opcode.h>'s; the rest is a
// table file a version (opcodes_3_11.def).
#pragma once

#include <opcode.h>

#include <cstdint>

namespace oxy::python {

enum class Argument : uint8_t {
  none,
  number,
  constant,
  name,
  global_name,  // a name in the bits above the lowest, which says whether a NULL is pushed first
  local,        // an index into localsplus
  cell,         // the same, of a cell or free variable
  compare,
  binary,
  jump,
};

enum class Jump : uint8_t { none, forward, backward };

struct Opcode {
  const char* name = "<unknown>";
  uint8_t caches = 0;  // code units behind the instruction
  Argument argument = Argument::none;
  Jump jump = Jump::none;
};

const Opcode& opcode_info(uint8_t op);

inline bool is_jump(uint8_t op) { return opcode_info(op).jump != Jump::none; }

// False where the next instruction never follows: returns, raises, unconditional jumps.
bool falls_through(uint8_t op);

// The same jump in the given direction; fails where CPython has none.
uint8_t jump_towards(uint8_t op, bool backward);

// What the instruction adds to the stack, when it jumps and when it does not.
int stack_effect(uint8_t op, uint32_t arg, bool jumps);

}  // namespace oxy::python
