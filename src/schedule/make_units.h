// The steps of a program one by one, as fusion takes them: loops flat, extern steps as they are.
#pragma once

#include "schedule/fuse_nests.h"

namespace oxy::schedule {

// Loops that write nothing are left out; a reduction of nothing is a constant.
std::vector<ScheduledUnit> make_units(const loops::Program& p);

// Cuts reductions in two (split_reductions.h).
void split_units(loops::Program& p, std::vector<ScheduledUnit>& units);

}  // namespace oxy::schedule
