// index_copy as two kernels, where its result becomes the new value of the very input that it copies into: one that
// checks the positions and may raise, and one that writes the rows. ATen's functional op would clone all of the input.
#pragma once

#include <optional>

#include "schedule/schedule.h"

namespace oxy::schedule {

struct IndexCopy {
  Kernel check;
  Kernel
      write;  // stores the rows of the step's result and nothing else: right in the memory of its first operand
};

// Nothing where the step is no index_copy, or one that has no kernels.
std::optional<IndexCopy> index_copy(const loops::Program& p, const loops::ExternStep& e);

}  // namespace oxy::schedule
