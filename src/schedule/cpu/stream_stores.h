// Which stores go past the cache.
#pragma once

#include "schedule/schedule.h"

namespace oxy::schedule {

// Marks the stores of a kernel to large buffers that it only writes.
void stream_stores(Kernel& k, const ScheduleOptions& options);
// Buffers that a later kernel adds to do not stream, unless they are much larger than the cache: it
// reads them again. When kernels are final.
void keep_what_is_changed(std::vector<Kernel>& kernels, const ScheduleOptions& options);

}  // namespace oxy::schedule
