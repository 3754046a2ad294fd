// An arrangement to a Kernel: statements at the outermost loop that knows their operands, equal
// ones once, stored values handed to the loads of the same element.
#pragma once

#include "schedule/arrange_loops.h"

namespace oxy::schedule {

Kernel emit_kernel(const loops::Program& p, const Arrangement& a, const std::vector<bool>& needed,
                   const ScheduleOptions& options, std::string name);

// Marks the stores of a kernel to large buffers that it only writes.
void stream_large_stores(Kernel& k, int64_t large);
// Buffers of less than `most` bytes that a later kernel adds to do not stream: it reads them again.
void keep_what_is_changed(std::vector<Kernel>& kernels, int64_t most);

// Kernel::cost of its loops as they are.
int64_t point_cost(const Kernel& k);

}  // namespace oxy::schedule
