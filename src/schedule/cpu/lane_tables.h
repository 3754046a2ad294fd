// What differs by lane only is computed once for all rows: a Vector loop inside of Serial loops
// that computes the same for each row (where upsampling reads a row, with which weights) finds it
// in a local buffer, which a loop in front of the rows fills.
#pragma once

#include "schedule/schedule.h"

namespace oxy::schedule {

void make_lane_tables(Kernel& k, const ScheduleOptions& options);

}  // namespace oxy::schedule
