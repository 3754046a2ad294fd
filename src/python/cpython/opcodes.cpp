// The table of the version that we are built for, and questions that it answers.
#include "python/cpython/opcodes.h"

#include <Python.h>

#include <array>
#include <string>

#include "support/check.h"

namespace oxy::python {

namespace {

std::array<Opcode, 256> make_table() {
  std::array<Opcode, 256> table;
#define OXY_OPCODE(name, caches, argument, jump) \
  table[name] = Opcode{#name, caches, Argument::argument, Jump::jump};
#if PY_MINOR_VERSION == 10
#include "python/cpython/opcodes_3_10.def"
#elif PY_MINOR_VERSION == 11
#include "python/cpython/opcodes_3_11.def"
#elif PY_MINOR_VERSION == 12
#include "python/cpython/opcodes_3_12.def"
#elif PY_MINOR_VERSION == 13
#include "python/cpython/opcodes_3_13.def"
#else
#error "a table of the opcodes of this version of CPython is missing"
#endif
#undef OXY_OPCODE
  return table;
}

// The opcode of the same name with FORWARD and BACKWARD exchanged, 0 for none.
uint8_t find_opposite(const std::string& name) {
  std::string other = name;
  if (size_t at = name.find("FORWARD"); at != std::string::npos)
    other.replace(at, 7, "BACKWARD");
  else if (size_t at = name.find("BACKWARD"); at != std::string::npos)
    other.replace(at, 8, "FORWARD");
  for (int op = 0; op < 256; ++op)
    if (other != name && opcode_info(static_cast<uint8_t>(op)).name == other)
      return static_cast<uint8_t>(op);
  return 0;
}

}  // namespace

const Opcode& opcode_info(uint8_t op) {
  static const std::array<Opcode, 256> table = make_table();
  return table[op];
}

bool falls_through(uint8_t op) {
  switch (op) {
    case RETURN_VALUE:
    case RETURN_CONST:
    case RAISE_VARARGS:
    case RERAISE:
    case JUMP_FORWARD:
    case JUMP_BACKWARD:
    case JUMP_BACKWARD_NO_INTERRUPT:
    case JUMP_ABSOLUTE:
      return false;
    default:
      return true;
  }
}

uint8_t jump_towards(uint8_t op, bool backward) {
  const Opcode& info = opcode_info(op);
  if (info.jump == Jump::absolute) return op;
  if (info.jump == (backward ? Jump::backward : Jump::forward)) return op;
  if (op == JUMP_BACKWARD_NO_INTERRUPT) return JUMP_FORWARD;
  uint8_t opposite = find_opposite(info.name);
  OXY_CHECK(opposite != 0, info.name, " jumps in one direction only");
  return opposite;
}

LocalUse local_use(uint8_t op, uint32_t arg) {
  const int slot = static_cast<int>(arg), high = slot >> 4, low = slot & 15;
  switch (op) {
    case STORE_FAST:
      return {.written = {slot, -1}};
    case LOAD_FAST:
    case LOAD_FAST_CHECK:
    case LOAD_FAST_AND_CLEAR:
    case DELETE_FAST:  // it raises where there is nothing to delete
      return {.read = {slot, -1}};
    case LOAD_FAST_LOAD_FAST:
      return {.read = {high, low}};
    case STORE_FAST_STORE_FAST:
      return {.written = {high, low}};
    case STORE_FAST_LOAD_FAST:
      return {.read = {low == high ? -1 : low, -1}, .written = {high, -1}};
    default:
      return {};
  }
}

int stack_effect(uint8_t op, uint32_t arg, bool jumps) {
  if (kForIterSkips > 0 && op == FOR_ITER && jumps) return -1;
  // An argument where there should be none is refused.
  int operand = op >= HAVE_ARGUMENT ? static_cast<int>(arg) : 0;
  int effect = PyCompile_OpcodeStackEffectWithJump(op, operand, jumps);
  OXY_CHECK(effect != PY_INVALID_STACK_EFFECT, opcode_info(op).name);
  return effect;
}

}  // namespace oxy::python
