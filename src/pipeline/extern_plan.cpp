// One extern step a node, with buffers for its results.
#include <iterator>

#include "ops/op_table.h"
#include "pipeline/assemble.h"
#include "pipeline/plan_writer.h"
#include "support/check.h"

namespace oxy::pipeline {

using runtime::ExternStep;
using runtime::Plan;
using runtime::PlanArg;
using runtime::PlanBuffer;

namespace {

class ExternPlanner final : PlanWriter {
 public:
  ExternPlanner(const ir::Graph& g, std::span<const sym::Expr> numbers,
                std::span<const Fact> checks)
      : PlanWriter(g, numbers, checks) {}

  Plan run() {
    add_inputs();
    for (uint32_t i = 0; i < graph_.inputs().size(); i++)
      if (const ir::ValueId v = graph_.inputs()[i]; graph_.value(v).type.is_tensor())
        add_buffer(Kind::Input, v, i);
    add_sizes(checks_now());
    uint32_t attributes = 0;
    for (ir::NodeId id : graph_.order()) {
      const ir::Node& n = graph_.node(id);
      if (n.dead || n.kind == ir::NodeKind::Input || n.target == ops::kNumber) continue;
      if (n.kind == ir::NodeKind::Attribute)
        add_buffer(Kind::Attribute, n.outputs.at(0), attributes++);
      else
        add_call(n);
    }
    add_results();
    add_frees();
    plan_.arena_bytes = constant(0);
    return std::move(plan_);
  }

 private:
  using Kind = PlanBuffer::Kind;

  uint32_t add_buffer(Kind kind, ir::ValueId v, uint32_t source) {
    const auto number = static_cast<uint32_t>(plan_.buffers.size());
    PlanBuffer& b = plan_.buffers.emplace_back();
    b.kind = kind;
    b.meta = tensor(graph_.tensor_type(v));
    b.source = source;
    b.arena_offset = constant(0);
    b.bytes = span_bytes(b.meta);
    b.name = kind == Kind::Extern ? cat("buf", number)
                                  : cat(kind == Kind::Input ? "in" : "attr", source);
    buffer_of_.emplace(v, number);
    return number;
  }

  void add_call(const ir::Node& n) {
    const bool is_region = n.kind == ir::NodeKind::Region;
    std::vector<Plan> regions;
    const std::vector<sym::Expr> numbers = symbols_of_regions(n);
    for (const ir::Graph& r : n.regions) regions.push_back(make_extern_plan(r, numbers));
    PlanArg::List args;
    if (!is_region) args = arguments(n);
    std::vector<int64_t> outputs;
    auto next = static_cast<int64_t>(plan_.buffers.size());
    for (ir::ValueId v : n.outputs)
      outputs.push_back(graph_.value(v).type.is_tensor() ? next++ : -1);
    runtime::SizeStep sizes = is_region ? runtime::SizeStep() : define_symbols(n, outputs);
    for (ir::ValueId v : n.outputs)
      if (graph_.value(v).type.is_tensor()) add_buffer(Kind::Extern, v, 0);
    if (is_region) return add_region(n, std::move(regions), std::move(outputs));
    if (n.target != ops::kReadNumber) add_extern(n, n.target, std::move(args), std::move(outputs));
    add_sizes(std::move(sizes));
  }

  uint32_t buffer_of(ir::ValueId v) const override {
    auto it = buffer_of_.find(v);
    OXY_CHECK(it != buffer_of_.end(), "no buffer holds ", ir::print(graph_.value(v).type));
    return it->second;
  }

  // A FreeStep after the last step that reads or makes each buffer that is no result.
  void add_frees() {
    std::vector<bool> kept(plan_.buffers.size(), false);
    for (const runtime::PlanOutput& o : plan_.outputs)
      if (o.buffer >= 0) kept[static_cast<size_t>(o.buffer)] = true;
    for (const runtime::PlanMutation& m : plan_.mutations) kept[m.buffer] = true;
    std::vector<runtime::PlanStep> reversed;
    std::vector<runtime::PlanStep> sizes_of_call;  // right behind the call that they are read of
    for (auto it = plan_.steps.rbegin(); it != plan_.steps.rend(); ++it) {
      const auto* call = std::get_if<ExternStep>(&*it);
      const auto* region = std::get_if<runtime::RegionStep>(&*it);
      const std::vector<int64_t> made = call     ? call->outputs
                                        : region ? region->results
                                                 : std::vector<int64_t>();
      auto last_use = [&](uint32_t b) {
        if (kept[b] || plan_.buffers[b].kind != Kind::Extern) return;
        kept[b] = true;
        reversed.emplace_back(runtime::FreeStep{b});
      };
      for (int64_t b : made)
        if (b >= 0) last_use(static_cast<uint32_t>(b));
      for (uint32_t b : runtime::buffers_of(*it)) last_use(b);
      if (const auto* sizes = std::get_if<runtime::SizeStep>(&*it)) {
        bool of_call = false;
        for (const runtime::Slot s : sizes->reads) {
          const runtime::SizeInstruction& i = plan_.sizes.instructions[s.index];
          last_use(static_cast<uint32_t>(i.a));
          of_call |= i.op == runtime::SizeOp::BufferSize;
        }
        if (of_call) {
          sizes_of_call.push_back(std::move(*it));
          continue;
        }
      }
      std::ranges::move(sizes_of_call, std::back_inserter(reversed));
      sizes_of_call.clear();
      reversed.push_back(std::move(*it));
    }
    plan_.steps.assign(std::make_move_iterator(reversed.rbegin()),
                       std::make_move_iterator(reversed.rend()));
  }

  std::unordered_map<ir::ValueId, uint32_t> buffer_of_;
};

}  // namespace

Plan make_extern_plan(const ir::Graph& aten, std::span<const sym::Expr> numbers,
                      std::span<const sym::ShapeFacts::Fact> checks) {
  return ExternPlanner(aten, numbers, checks).run();
}

}  // namespace oxy::pipeline
