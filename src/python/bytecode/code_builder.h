// Instructions behind each other, and the original's with their slots moved.
#pragma once

#include <vector>

#include "python/bytecode/code.h"
#include "python/cpython/opcodes.h"

namespace oxy::python {

class CodeBuilder {
 public:
  explicit CodeBuilder(Location location) : location_(location) {}

  int size() const { return static_cast<int>(code.instructions.size()); }

  int add(uint8_t op, uint32_t arg = 0) {
    code.instructions.push_back({op, arg, -1, -1, location_});
    return size() - 1;
  }

  // Reads a slot for the last time: nothing stays alive in it.
  void take(int slot) {
    add(LOAD_FAST, slot);
    add(DELETE_FAST, slot);
  }

  void call(int arguments) {
    if (kHasPrecall) add(PRECALL, arguments);
    add(CALL, arguments);
  }

  // Instruction `at` of the original; `moved` is where each slot is now. Its target stays.
  void copy(const Instruction& in, const std::vector<int>& moved) {
    code.instructions.push_back(in);
    Argument kind = opcode_info(in.op).argument;
    if (kind == Argument::local || kind == Argument::cell)
      code.instructions.back().arg = moved[in.arg];
  }

  // The whole original with its jumps and ranges; where it starts.
  int copy_all(const Bytecode& original, const std::vector<int>& moved) {
    int start = size();
    for (const Instruction& in : original.instructions) {
      copy(in, moved);
      if (in.target >= 0) code.instructions.back().target += start;
    }
    for (const ExceptionRange& range : original.ranges)
      code.ranges.push_back({range.start + start, range.end + start, range.target + start,
                             range.depth, range.push_lasti});
    return start;
  }

  Bytecode code;

 private:
  Location location_;
};

// The call that an instruction belongs to, [first, last]; itself where it is no call.
struct InstructionGroup {
  int first = 0, last = 0;
};
InstructionGroup group_of(const Bytecode& bytecode, int index);

}  // namespace oxy::python
