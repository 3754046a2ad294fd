// Names each group's kernel and hands it to the writer that fits.
#include <algorithm>

#include "schedule/cpu/arrange_loops.h"
#include "schedule/cpu/epilogues.h"
#include "schedule/cpu/nest_writer.h"
#include "schedule/cpu/pass_list.h"
#include "schedule/kernel_access.h"
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
    if (std::ranges::find(ops, op) == ops.end() && ops.size() < kNamedOps) ops.push_back(op);
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

// Buffers that something outside of the unit reads.
std::vector<std::vector<uint32_t>> readers_of(const loops::Program& p,
                                              const std::vector<ScheduledUnit>& units) {
  std::vector<std::vector<uint32_t>> readers(p.buffers.size());
  for (uint32_t u = 0; u < units.size(); ++u) {
    for (const Group& g : units[u].group) {
      for (const Inst& i : instructions(g.nests)) {
        if (!is_any(i.op, LoopOp::Load, LoopOp::StoreAdd)) continue;
        auto& list = readers[i.buffer.index];
        if (list.empty() || list.back() != u) list.push_back(u);
      }
    }
  }
  return readers;
}

// The buffers that must be in memory when unit `u` has run.
std::vector<bool> needed_after(uint32_t u, const Group& g, std::vector<bool> pinned,
                               const std::vector<std::vector<uint32_t>>& readers) {
  for (const Inst& i : instructions(g.nests)) {
    if (i.op == LoopOp::Store &&
        std::ranges::any_of(readers[i.buffer.index], [&](uint32_t x) { return x != u; }))
      pinned[i.buffer.index] = true;
  }
  return pinned;
}

std::pair<Kernel, KernelForm> kernel_of(Draft& d, Group g, std::vector<bool> needed) {
  Schedule& s = d.schedule;
  const Nest& nest = g.nests[0];
  std::string name = kernel_name(s.program, g, s.kernels.size());
  if (find_inst(nest, LoopOp::Scan))
    return {scan_kernel(s.program, nest, std::move(name)), KernelForm::Scan};
  if (find_inst(nest, LoopOp::StoreAdd))
    return {scatter_kernel(s.program, nest, std::move(name)), KernelForm::Scatter};
  if (auto k = epilogue_kernel(s, g, needed, d.options, name))
    return {std::move(*k), KernelForm::Epilogue};
  const Arrangement a = arrange_loops(s.program, std::move(g), needed, d.options);
  needed.resize(s.program.buffers.size(), false);
  return {emit_kernel(s.program, a, needed, std::move(name)), KernelForm::Loops};
}

}  // namespace

void make_kernels(Draft& d) {
  Schedule& s = d.schedule;
  std::vector<std::vector<uint32_t>> readers = readers_of(s.program, d.units);
  std::vector<bool> pinned = buffer_uses(s.program).pinned;
  for (uint32_t u = 0; u < d.units.size(); ++u) {
    if (d.units[u].group.empty()) {
      s.steps.push_back(std::move(d.units[u].call[0]));
      continue;
    }
    pinned.resize(s.program.buffers.size(), false);
    readers.resize(s.program.buffers.size());
    Group& g = d.units[u].group[0];
    std::vector<bool> needed = needed_after(u, g, pinned, readers);
    auto [k, form] = kernel_of(d, std::move(g), std::move(needed));
    k.parameters = free_symbols(k);
    s.steps.push_back(KernelCall{static_cast<uint32_t>(s.kernels.size())});
    s.kernels.push_back(std::move(k));
    d.forms.push_back(form);
  }
  d.units.clear();
}

}  // namespace oxy::schedule
