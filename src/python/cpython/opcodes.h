// What of an opcode depends on the version of CPython. The numbers are <opcode.h>'s; the rest is a
// table file a version (opcodes_3_11.def, opcodes_3_12.def).
#pragma once

#include <cstdint>

#include "python/cpython/opcode_names.h"

namespace oxy::python {

enum class Argument : uint8_t {
  none,
  number,
  constant,
  name,
  global_name,  // a name in the bits above the lowest, which says whether a NULL is pushed first
  attribute,  // a name in the bits above the lowest, which says whether a method is loaded for a call
  super_attribute,  // the same above two bits; the second says that super() has its arguments written out
  local,            // an index into localsplus
  cell,             // the same, of a cell or free variable
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

// The loop's iterator is exhausted: FOR_ITER of 3.12 jumps to END_FOR, and skips it. Here its target is what lies behind.
inline constexpr bool kForIterSkips = PY_VERSION_HEX >= 0x030C0000;

// What SEND leaves below the result when the inner iterator has returned: END_SEND takes it away.
inline constexpr bool kSendKeepsIterator = PY_VERSION_HEX >= 0x030C0000;

// A call is announced by an instruction of its own.
inline constexpr bool kHasPrecall = PY_VERSION_HEX < 0x030C0000;

// The index of the name that an instruction's argument holds.
inline uint32_t name_index(uint8_t op, uint32_t arg) {
  switch (opcode_info(op).argument) {
    case Argument::global_name:
    case Argument::attribute:
      return arg >> 1;
    case Argument::super_attribute:
      return arg >> 2;
    default:
      return arg;
  }
}

// CALL_INTRINSIC_1 as the instruction of 3.11 that it stands for. A generator that lets a StopIteration out is found by
// whoever runs it, so turning that into an error is nothing to do.
inline uint8_t plain_opcode(uint8_t op, uint32_t arg) {
  constexpr uint32_t kStopIterationError = 3, kUnaryPositive = 5, kListToTuple = 6;
  if (op != CALL_INTRINSIC_1) return op;
  return arg == kStopIterationError ? NOP
         : arg == kUnaryPositive    ? UNARY_POSITIVE
         : arg == kListToTuple      ? LIST_TO_TUPLE
                                    : op;
}

// The comparison (Py_LT ...) that a COMPARE_OP makes.
inline uint32_t compared_as(uint32_t arg) { return PY_VERSION_HEX >= 0x030C0000 ? arg >> 4 : arg; }

// Pushes two values for a call: a NULL and the attribute, or a function and its self.
inline bool loads_method(uint8_t op, uint32_t arg) {
  const Argument kind = opcode_info(op).argument;
  return op == LOAD_METHOD ||
         ((kind == Argument::attribute || kind == Argument::super_attribute) && (arg & 1));
}

// The same jump in the given direction; fails where CPython has none.
uint8_t jump_towards(uint8_t op, bool backward);

// What the instruction adds to the stack, when it jumps and when it does not.
int stack_effect(uint8_t op, uint32_t arg, bool jumps);

}  // namespace oxy::python
