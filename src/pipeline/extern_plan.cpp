// One extern step a node, with buffers for its results.
#include "pipeline/extern_plan.h"

#include <unordered_map>

#include "ops/op_table.h"
#include "pipeline/assemble.h"
#include "pipeline/lower_sizes.h"
#include "support/check.h"

namespace oxy::pipeline {

using runtime::ExternStep;
using runtime::Plan;
using runtime::PlanBuffer;

namespace {

class ExternPlanner {
 public:
  explicit ExternPlanner(const ir::Graph& g) : g_(g), sizes_(g, plan_.sizes) {}

  Plan run() {
    for (ir::ValueId v : g_.inputs()) add_input(v);
    for (ir::NodeId id : g_.order()) {
      const ir::Node& n = g_.node(id);
      if (n.dead || n.kind == ir::NodeKind::Input) continue;
      if (n.kind == ir::NodeKind::Attribute) {
        add_attribute(n);
      } else {
        add_call(n);
      }
    }
    add_results();
    add_frees();
    plan_.arena_bytes = sizes_.constant(0);
    return std::move(plan_);
  }

 private:
  uint32_t add_buffer(PlanBuffer::Kind kind, ir::ValueId v, uint32_t source) {
    PlanBuffer b;
    b.kind = kind;
    b.meta = sizes_.tensor(g_.tensor_type(v));
    b.source = source;
    b.arena_offset = sizes_.constant(0);
    b.bytes = sizes_.span_bytes(b.meta);
    const char* prefix = kind == PlanBuffer::Kind::Input       ? "in"
                         : kind == PlanBuffer::Kind::Attribute ? "attr"
                                                               : "buf";
    b.name = cat(prefix, kind == PlanBuffer::Kind::Extern ? plan_.buffers.size() : source);
    uint32_t number = static_cast<uint32_t>(plan_.buffers.size());
    plan_.buffers.push_back(std::move(b));
    buffer_of_.emplace(v, number);
    return number;
  }

  void add_input(ir::ValueId v) {
    const auto source = static_cast<uint32_t>(plan_.inputs.size());
    plan_.inputs.push_back(sizes_.input(v));
    if (g_.value(v).type.is_tensor()) add_buffer(PlanBuffer::Kind::Input, v, source);
  }

  void add_attribute(const ir::Node& n) {
    add_buffer(PlanBuffer::Kind::Attribute, n.outputs.at(0), attributes_++);
  }

  void add_region(const ir::Node& n) {
    std::vector<Plan> regions;
    for (const ir::Graph& r : n.regions) regions.push_back(make_extern_plan(r));
    runtime::RegionStep step = region_step(n, std::move(regions), plan_);
    for (const ir::Arg& a : n.args) step.operands.push_back(buffer(a.value()));
    for (ir::ValueId v : n.outputs)
      step.results.push_back(add_buffer(PlanBuffer::Kind::Extern, v, 0));
    plan_.steps.emplace_back(std::move(step));
  }

  void add_call(const ir::Node& n) {
    if (n.kind == ir::NodeKind::Region) return add_region(n);
    ExternStep step;
    step.op = n.target;
    for (const ir::Arg& a : n.args)
      step.args.push_back(sizes_.argument(a, [this](ir::ValueId v) { return buffer(v); }));
    step.returns = n.returns;
    for (ir::ValueId v : n.outputs) {
      bool tensor = g_.value(v).type.is_tensor();
      step.outputs.push_back(tensor ? add_buffer(PlanBuffer::Kind::Extern, v, 0) : -1);
    }
    const ops::OpInfo* info = ops::find(n);
    step.random = info != nullptr && info->has(ops::Random);
    step.origin = n.id.index;
    plan_.steps.emplace_back(std::move(step));
  }

  uint32_t buffer(ir::ValueId v) const {
    auto it = buffer_of_.find(v);
    OXY_CHECK(it != buffer_of_.end(), "no buffer holds ", ir::print(g_.value(v).type));
    return it->second;
  }

  void add_results() {
    for (const ir::OutputSpec& spec : g_.outputs)
      plan_.outputs.push_back(sizes_.output(spec, [this](ir::ValueId v) { return buffer(v); }));
    for (const ir::Mutation& m : g_.mutations)
      plan_.mutations.push_back(sizes_.mutation(m, buffer(m.value), false));
  }

  // A FreeStep after the last step that reads or makes each buffer that is no result.
  void add_frees() {
    std::vector<bool> kept(plan_.buffers.size(), false);
    for (const runtime::PlanOutput& o : plan_.outputs) {
      if (o.buffer >= 0) kept[static_cast<size_t>(o.buffer)] = true;
    }
    for (const runtime::PlanMutation& m : plan_.mutations) kept[m.buffer] = true;
    std::vector<runtime::PlanStep> reversed;
    for (auto it = plan_.steps.rbegin(); it != plan_.steps.rend(); ++it) {
      const auto* call = std::get_if<ExternStep>(&*it);
      const auto& made = call ? call->outputs : std::get<runtime::RegionStep>(*it).results;
      auto last_use = [&](uint32_t b) {
        if (kept[b] || plan_.buffers[b].kind != PlanBuffer::Kind::Extern) return;
        kept[b] = true;
        reversed.emplace_back(runtime::FreeStep{b});
      };
      for (int64_t b : made) {
        if (b >= 0) last_use(static_cast<uint32_t>(b));
      }
      for (uint32_t b : runtime::buffers_of(*it)) last_use(b);
      reversed.push_back(std::move(*it));
    }
    plan_.steps.assign(std::make_move_iterator(reversed.rbegin()),
                       std::make_move_iterator(reversed.rend()));
  }

  const ir::Graph& g_;
  Plan plan_;
  SizeLowering sizes_;
  uint32_t attributes_ = 0;
  std::unordered_map<ir::ValueId, uint32_t> buffer_of_;
};

}  // namespace

Plan make_extern_plan(const ir::Graph& aten) { return ExternPlanner(aten).run(); }

}  // namespace oxy::pipeline
