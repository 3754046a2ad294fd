// What a scheduled step does to memory, and whether it may stop the call.
#pragma once

#include "schedule/schedule.h"

namespace oxy::schedule {

struct StepUses {
  std::vector<loops::BufferId> reads, writes;  // none is a View
  bool raises = false;  // an op of the dispatcher, or a kernel that checks indices
};
StepUses uses_of(const Schedule& s, const ScheduledStep& step);

bool reads(const StepUses& u, loops::BufferId b);
bool writes(const StepUses& u, loops::BufferId b);
// Whether the order of the two matters.
bool conflict(const StepUses& a, const StepUses& b);

}  // namespace oxy::schedule
