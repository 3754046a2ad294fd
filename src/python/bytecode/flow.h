// Where control goes from an instruction, and what follows from it for the stack.
#pragma once

#include "python/bytecode/code.h"

namespace oxy::python {

struct StackDepths {
  std::vector<int> before;  // of each instruction; -1 where it cannot be reached
  int most = 0;             // what co_stacksize has to be
};

// `flags` are the code object's: a generator may start with the value that it is sent.
StackDepths stack_depths(const Bytecode& bytecode, int flags);

// Where CPython has blocks and no exception table: the handler of each run within the same block.
std::vector<ExceptionRange> ranges_of_blocks(const Bytecode& bytecode, int flags);

}  // namespace oxy::python
