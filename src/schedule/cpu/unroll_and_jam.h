// Rows that are only reduced, several at a time: a kernel that reads one row after the other is one
// stream of memory, which a core alone does not fill the bus with; four rows are four streams.
// After emission, since the statements of neighbouring iterations are what is interleaved.
#pragma once

#include "schedule/schedule.h"

namespace oxy::schedule {

// Buffers of at least options.large_bytes() are worth it.
void unroll_and_jam(Kernel& k, loops::Variables& variables, const ScheduleOptions& options);

}  // namespace oxy::schedule
