// The whole way from a program to a schedule for the CPU: the passes of every device
// (schedule/pass_list.h) with the CPU's own between them.
#pragma once

#include "schedule/pass_list.h"

namespace oxy::schedule {

// All in order.
std::span<const Pass> cpu_passes();

Schedule make_schedule(loops::Program program, const ScheduleOptions& options,
                       const RunOptions& run = {});

}  // namespace oxy::schedule
