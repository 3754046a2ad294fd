// Where each instruction lands in the bytes, in code units of two.
#pragma once

#include <vector>

#include "python/bytecode/code.h"
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

}  // namespace oxy::python
