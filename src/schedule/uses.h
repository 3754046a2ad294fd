// Who reads and writes each buffer: the steps of a program, and those of a schedule.
#pragma once

#include <set>

#include "schedule/schedule.h"

namespace oxy::schedule {

// By buffer:
struct BufferUses {
  std::vector<int32_t> writer;                 // the step, or -1
  std::vector<std::vector<uint32_t>> readers;  // loop steps that load it, in order, each once
  std::vector<bool> updated;                   // folded into after it was written
  // Read by an extern step, the caller, or a mutation; not made by a loop.
  std::vector<bool> pinned;
};
BufferUses buffer_uses(const loops::Program& p);
// Memory that is read after the last step: outputs and new values of inputs.
std::set<BufferId> escaping(const loops::Program& p);

// What a scheduled step does to memory, and whether it may stop the call.
struct StepUses {
  std::vector<BufferId> reads, writes;  // none is a View
  std::vector<Expr> needs, gives;       // symbols that steps make known
  bool raises = false;                  // an op of the dispatcher, or a kernel that checks indices
};
StepUses uses_of(const Schedule& s, const ScheduledStep& step);

// The symbols that steps make known and that a call's arguments, operands and results have; those
// that it makes known itself.
std::vector<Expr> symbols_needed(const loops::Program& p, const loops::Call& call);
std::vector<Expr> symbols_given(const loops::Program& p, const loops::Call& call);

bool reads(const StepUses& u, BufferId b);
bool writes(const StepUses& u, BufferId b);
// Whether the order of the two matters.
bool conflict(const StepUses& a, const StepUses& b);

}  // namespace oxy::schedule
