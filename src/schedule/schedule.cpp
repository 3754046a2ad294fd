// The scheduler: its parts in order.
#include "schedule/schedule.h"

#include <algorithm>

#include "loops/body_writer.h"
#include "schedule/arrange_loops.h"
#include "schedule/copy_loops.h"
#include "schedule/emit_kernel.h"
#include "schedule/epilogues.h"
#include "schedule/fetch_ahead.h"
#include "schedule/fold.h"
#include "schedule/fuse_nests.h"
#include "schedule/in_place.h"
#include "schedule/inline_loops.h"
#include "schedule/jam_rows.h"
#include "schedule/kernel_access.h"
#include "schedule/lane_tables.h"
#include "schedule/nest.h"
#include "schedule/plan_memory.h"
#include "schedule/scan_kernel.h"
#include "schedule/scatter_kernel.h"
#include "schedule/split_ranges.h"
#include "schedule/split_reductions.h"
#include "schedule/uses.h"

namespace oxy::schedule {

namespace {

constexpr size_t kNamedOps = 4;

// "op3_add" -> "add"
std::string_view op_of(std::string_view nest_name) {
  size_t bar = nest_name.find('_');
  return bar == std::string_view::npos ? nest_name : nest_name.substr(bar + 1);
}

std::string_view op_of(const ir::Node& n) {
  std::string_view t = n.target;
  t.remove_prefix(std::min(t.size(), t.find('.') + 1));
  t = t.substr(0, t.find('.'));
  while (t.starts_with('_')) t.remove_prefix(1);
  return t;
}

// fused_add_gelu_0: the ops that it came from, in order, each once.
std::string kernel_name(const loops::Program& p, const Group& g, size_t number) {
  std::vector<std::string_view> ops;
  auto add = [&](std::string_view op) {
    if (std::find(ops.begin(), ops.end(), op) == ops.end() && ops.size() < kNamedOps)
      ops.push_back(op);
  };
  for (const Nest& n : g.nests) {
    if (!p.graph)
      add(op_of(n.name));
    else
      for (ir::NodeId id : n.origins) add(op_of(p.graph->node(id)));
  }
  std::string name = "fused";
  for (std::string_view op : ops) cat_to(name, "_", op);
  return cat(name, "_", number);
}

bool is_empty(const loops::Loop& l, bool reduction) {
  return std::any_of(l.axes.begin(), l.axes.end(),
                     [&](const Axis& a) { return a.size.is_const(0) && a.reduction == reduction; });
}

// A reduction of nothing is a constant; what would be folded is never read.
void fold_nothing(loops::Loop& l) {
  for (Inst& i : l.body) {
    if (i.op == LoopOp::Reduce) i = identity_of(i.reduce, i.dtype);
  }
  std::erase_if(l.axes, [](const Axis& a) { return a.reduction; });
  loops::remove_dead(l.body);
}

std::vector<ScheduledUnit> make_units(loops::Program& p) {
  std::vector<ScheduledUnit> units;
  auto add = [&](Nest n) {
    ScheduledUnit u;
    u.group.push_back(group_of(std::move(n)));
    units.push_back(std::move(u));
  };
  for (loops::Step& s : p.steps) {
    if (auto* e = std::get_if<loops::ExternStep>(&s)) {
      units.push_back({{}, {ExternCall{*e}}});
      continue;
    }
    if (auto* c = std::get_if<loops::ContractionStep>(&s)) {
      units.push_back({{}, {ContractionCall{*c, {}}}});
      continue;
    }
    auto& l = std::get<loops::Loop>(s);
    if (is_empty(l, false)) continue;  // writes nothing
    if (is_empty(l, true)) fold_nothing(l);
    Nest n = flatten(p, l);
    if (auto parts = split_reduction(p, n)) {
      add(std::move(parts->first));
      add(std::move(parts->second));
    } else {
      add(std::move(n));
    }
  }
  return units;
}

// Buffers that something outside of the unit reads.
std::vector<std::vector<uint32_t>> readers_of(const loops::Program& p,
                                              const std::vector<ScheduledUnit>& units) {
  std::vector<std::vector<uint32_t>> readers(p.buffers.size());
  for (uint32_t u = 0; u < units.size(); ++u) {
    for (const Group& g : units[u].group) {
      for (const Nest& n : g.nests) {
        for (const Inst& i : n.body) {
          bool reads = i.op == LoopOp::Load || i.op == LoopOp::StoreAdd;
          if (!reads) continue;
          auto& list = readers[i.buffer.index];
          if (list.empty() || list.back() != u) list.push_back(u);
        }
      }
    }
  }
  return readers;
}

}  // namespace

Schedule make_schedule(loops::Program program, const ScheduleOptions& options) {
  Schedule s;
  s.program = std::move(program);
  loops::Program& p = s.program;
  copies_to_loops(p);
  if (options.fusion)
    inline_loops(p);
  else
    remove_dead_loops(p);
  std::vector<ScheduledUnit> units = fuse_nests(p, make_units(p), options, s.notes);
  std::vector<std::vector<uint32_t>> readers = readers_of(p, units);
  std::vector<bool> pinned = buffer_uses(p).pinned;
  pinned.resize(p.buffers.size(), false);
  for (uint32_t u = 0; u < units.size(); ++u) {
    if (units[u].group.empty()) {
      s.steps.push_back(std::move(units[u].call[0]));
      continue;
    }
    Group& g = units[u].group[0];
    std::vector<bool> needed = pinned;
    for (const Nest& n : g.nests) {
      for (const Inst& i : n.body) {
        if (i.op != LoopOp::Store) continue;
        const auto& r = readers[i.buffer.index];
        bool outside = std::any_of(r.begin(), r.end(), [&](uint32_t x) { return x != u; });
        if (outside) needed[i.buffer.index] = true;
      }
    }
    std::string name = kernel_name(p, g, s.kernels.size());
    if (is_scan(g.nests[0]) || is_scatter(g.nests[0])) {
      s.kernels.push_back(is_scan(g.nests[0]) ? scan_kernel(p, g.nests[0], std::move(name))
                                              : scatter_kernel(p, g.nests[0], std::move(name)));
      if (is_scan(g.nests[0])) stream_large_stores(s.kernels.back(), options.large_bytes());
      s.steps.push_back(KernelCall{static_cast<uint32_t>(s.kernels.size() - 1)});
      continue;
    }
    if (auto epilogue = epilogue_kernel(s, g, needed, options, name)) {
      s.kernels.push_back(std::move(*epilogue));
      s.steps.push_back(KernelCall{static_cast<uint32_t>(s.kernels.size() - 1)});
      continue;
    }
    Arrangement a = arrange_loops(p, std::move(g), needed, options);
    needed.resize(p.buffers.size(), false);
    s.kernels.push_back(emit_kernel(p, a, needed, options, std::move(name)));
    split_ranges(s.kernels.back(), *p.variables);
    jam_rows(s.kernels.back(), *p.variables, options);
    make_lane_tables(s.kernels.back(), options.machine);
    s.steps.push_back(KernelCall{static_cast<uint32_t>(s.kernels.size() - 1)});
    pinned.resize(p.buffers.size(), false);
    readers.resize(p.buffers.size());
  }
  write_in_place(s);
  attach_epilogues(s);
  if (options.streaming)
    keep_what_is_changed(s.kernels, tuning::changed_of_last_level * options.large_bytes());
  for (Kernel& k : s.kernels) fetch_ahead(k, *p.variables, options);
  for (Kernel& k : s.kernels) k.parameters = free_symbols(k);
  s.memory = plan_memory(s);
  insert_frees(s);
  return s;
}

}  // namespace oxy::schedule
