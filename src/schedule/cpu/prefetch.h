// Prefetches memory before it is needed, where a kernel streams through large buffers.
//
// An iteration of one loop prefetches a little ahead of its loads: the machine's own prefetchers
// stop at the end of a page. An iteration of several loops (softmax: the row is loaded, then worked
// on in the cache) prefetches in those behind the first one what the first loop of the next
// iteration will load, so that memory has no pause. Rows at loaded indices are prefetched by the
// iteration before, which loads the next index, and their ends touched by the one before that (the
// last iterations: their own again). A kernel that only reads gains nothing.
#pragma once

#include "schedule/schedule.h"

namespace oxy::schedule {

// After all that moves or merges statements. Buffers of at least options.large_bytes() are worth
// it.
void prefetch(Kernel& k, loops::Variables& variables, const ScheduleOptions& options);

}  // namespace oxy::schedule
