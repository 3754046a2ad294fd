// Buffers that only one kernel writes and reads need no place in memory: they become values, where
// each reader stands in the writer's loop (or the writer in none), or local to a parallel
// iteration, where what one iteration writes fits the cache. After the phases are known, before
// loops are merged.
#pragma once

#include "schedule/cpu/arrange_loops.h"

namespace oxy::schedule {

// Fills Arrangement::locals and rewrites the indices of the local buffers. Values need no mark: the
// emitter forwards a stored value to a load at the same index, and drops stores that nobody loads.
void localise_buffers(const loops::Program& p, Arrangement& a, const std::vector<bool>& needed,
                      int64_t cache_bytes);

}  // namespace oxy::schedule
