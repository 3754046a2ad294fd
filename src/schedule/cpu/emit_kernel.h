// An arrangement to a Kernel: statements at the outermost loop that knows their operands, equal
// ones once, stored values handed to the loads of the same element.
#pragma once

#include "schedule/cpu/arrange_loops.h"

namespace oxy::schedule {

Kernel emit_kernel(const loops::Program& p, const Arrangement& a, const std::vector<bool>& needed,
                   std::string name);

}  // namespace oxy::schedule
