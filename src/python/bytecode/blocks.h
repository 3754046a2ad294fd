// The handlers of versions of CPython that have blocks instead of an exception table.
#pragma once

#include "python/bytecode/code.h"

namespace oxy::python {

// For each run of instructions within the same block what its handler is: what later versions have
// in a table.
std::vector<ExceptionRange> ranges_of_blocks(const Bytecode& bytecode, int flags);

}  // namespace oxy::python
