// Where the Temp buffers lie in the arena, and when Extern buffers are freed. Last part of the
// scheduler: the order of the steps is final.
#pragma once

#include <set>

#include "schedule/schedule.h"

namespace oxy::schedule {

// Best fit by lifetime: a buffer takes the smallest gap among the buffers alive with it. One whose
// kernel reads another of its size for the last time, each element before it writes it, takes that
// one's place. Temps that no step touches get no place.
MemoryPlan plan_memory(const Schedule& s);

// Buffers that are read after the last step: outputs and new values of inputs.
std::set<loops::BufferId> escaping(const Schedule& s);

// Puts a Free after the last use of each Extern buffer that does not escape.
void insert_frees(Schedule& s);

}  // namespace oxy::schedule
