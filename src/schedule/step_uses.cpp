// Collects reads, writes and checks of launches, gemms and extern calls.
#include "schedule/step_uses.h"

#include <algorithm>

#include "schedule/kernel_access.h"

namespace oxy::schedule {

using loops::BufferId;

namespace {

bool has(const std::vector<BufferId>& list, BufferId b) {
  return std::find(list.begin(), list.end(), b) != list.end();
}

template <class Call, class Step>
Call* call_in(Step& s) {
  if (auto* e = std::get_if<ExternCall>(&s)) return &e->step;
  auto* c = std::get_if<ContractionCall>(&s);
  return c ? &c->step : nullptr;
}

void add_kernel(const Schedule& s, uint32_t kernel, StepUses& u) {
  for (const KernelBuffer& b : s.kernels[kernel].buffers) {
    if (!b.buffer.valid()) continue;
    BufferId memory = memory_of(s.program, b.buffer);
    if (b.kind != KernelBuffer::Kind::Write) u.reads.push_back(memory);
    if (b.kind != KernelBuffer::Kind::Read) u.writes.push_back(memory);
  }
}

}  // namespace

loops::Call* call_of(ScheduledStep& s) { return call_in<loops::Call>(s); }
const loops::Call* call_of(const ScheduledStep& s) { return call_in<const loops::Call>(s); }

StepUses uses_of(const Schedule& s, const ScheduledStep& step) {
  StepUses u;
  if (const auto* call = std::get_if<KernelCall>(&step)) {
    add_kernel(s, call->kernel, u);
    u.raises = has_check(s.kernels[call->kernel]);
  } else if (const loops::Call* e = call_of(step)) {
    for (BufferId b : e->reads) u.reads.push_back(memory_of(s.program, b));
    for (BufferId b : e->writes) {
      if (b.valid()) u.writes.push_back(memory_of(s.program, b));
    }
    const auto* c = std::get_if<ContractionCall>(&step);
    if (c && c->epilogue) add_kernel(s, *c->epilogue, u);
    u.raises = !c || !c->step.is_own();
  }
  return u;
}

bool reads(const StepUses& u, BufferId b) { return has(u.reads, b); }
bool writes(const StepUses& u, BufferId b) { return has(u.writes, b); }

bool conflict(const StepUses& a, const StepUses& b) {
  auto meets = [](const std::vector<BufferId>& written, const StepUses& other) {
    return std::any_of(written.begin(), written.end(),
                       [&](BufferId x) { return reads(other, x) || writes(other, x); });
  };
  return meets(a.writes, b) || meets(b.writes, a);
}

}  // namespace oxy::schedule
