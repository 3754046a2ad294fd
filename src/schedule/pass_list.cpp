// The lists of passes that every device has, and the loop that runs a list.
#include "schedule/pass_list.h"

#include "support/check.h"

namespace oxy::schedule {
namespace {

// A pass on the program or the schedule alone.
template <void (*run)(loops::Program&)>
void on_program(Draft& d) {
  run(d.schedule.program);
}
template <void (*run)(Schedule&)>
void on_schedule(Draft& d) {
  run(d.schedule);
}

constexpr Pass kProgramPasses[] = {
    {"copies_to_loops", on_program<copies_to_loops>, "first: a copy that is a loop can be inlined"},
    {"inline_loops", on_program<inline_loops>, "fusion then sees fewer and larger loops"},
    {"remove_dead_loops", on_program<remove_dead_loops>, "what nobody reads by now"},
    {"make_units", make_units, "from here on memory is flat", true},
    {"split_reductions", split_reductions,
     "what is folded is known, and either part may still join others"},
    {"fuse_nests", fuse_nests, "groups are final but for where they write"},
    {"place_pieces", place_pieces, "last: which kernel makes all pieces of a call is known"},
};

constexpr Pass kStepPasses[] = {
    {"write_in_place", on_schedule<write_in_place>,
     "once kernels show in which order they read and write; may divide them"},
};

constexpr Pass kMemoryPasses[] = {
    {"plan_memory", on_schedule<plan_memory>, "the order of the steps is final", true},
    {"insert_frees", on_schedule<insert_frees>, "behind the last uses"},
};

void verify(const loops::Program& p, const Nest& n) {
  for (size_t k = 0; k < n.body.size(); ++k) {
    const Inst& i = n.body[k];
    for (uint32_t a : i.args) OXY_CHECK(a < k, n.name, ": %", k, " takes %", a);
    if (!touches_memory(i.op)) continue;
    OXY_CHECK(i.buffer.valid() && i.buffer.index < p.buffers.size(), n.name, ": no buffer");
    OXY_CHECK(p.buffers[i.buffer].kind != Buffer::Kind::View && i.index.size() == 1, n.name, ": %",
              k, " is not flat");
  }
}

}  // namespace

std::span<const Pass> program_passes() { return kProgramPasses; }
std::span<const Pass> step_passes() { return kStepPasses; }
std::span<const Pass> memory_passes() { return kMemoryPasses; }

std::string print(const Draft& d) {
  const loops::Program& p = d.schedule.program;
  if (!d.schedule.steps.empty()) return print(d.schedule);
  if (d.units.empty()) return loops::print(p);
  std::string out;
  for (const ScheduledUnit& u : d.units) {
    for (const ScheduledStep& call : u.call) {
      if (const auto* e = std::get_if<ExternCall>(&call)) out += loops::print(p, e->step);
      if (const auto* c = std::get_if<ContractionCall>(&call)) out += loops::print(p, c->step);
    }
    for (const Group& g : u.group) {
      append(out, "group parallel");
      for (const Axis& a : g.parallel) cat_to(out, ' ', a.var, ": ", a.size);
      append(out, "\n");
      for (const Nest& n : g.nests)
        out += loops::print(p, loops::Loop{n.name, n.axes, n.body, n.origins});
    }
  }
  return out;
}

void verify(const Draft& d) {
  if (d.units.empty() && d.schedule.steps.empty()) loops::verify(d.schedule.program);
  for (const ScheduledUnit& u : d.units)
    for (const Group& g : u.group)
      for (const Nest& n : g.nests) verify(d.schedule.program, n);
  for (const Buffer& b : d.schedule.program.buffers)
    OXY_CHECK(b.kind != Buffer::Kind::View ||
                  d.schedule.program.buffers[b.base].kind != Buffer::Kind::View,
              b.name, ": a view of a view");
  for (const Kernel& k : d.schedule.kernels) verify(k);
  for (const ScheduledStep& s : d.schedule.steps)
    if (const auto* call = std::get_if<KernelCall>(&s))
      OXY_CHECK(call->kernel < d.schedule.kernels.size(), "a step without its kernel");
}

void run_passes(Draft& d, std::span<const Pass> passes, const RunOptions& options) {
  for (const Pass& pass : passes) {
    if (!pass.required && options.disabled && options.disabled(pass.name)) continue;
    Phase phase(options.timeline, pass.name);
    pass.run(d);
    phase.stop();
    if (options.verify) {
      try {
        verify(d);
      } catch (const InternalError& e) {
        throw InternalError(cat("after pass ", pass.name, ": ", e.what()));
      }
    }
    if (options.after) options.after(pass, d);
  }
}

}  // namespace oxy::schedule
