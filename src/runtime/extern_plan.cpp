#include "runtime/extern_plan.h"

#include <unordered_map>

#include "ops/op_table.h"
#include "support/check.h"

namespace oxy::runtime {
namespace {

std::vector<int64_t> constants(const std::vector<sym::Expr>& es) {
  std::vector<int64_t> out;
  out.reserve(es.size());
  for (sym::Expr e : es) {
    OXY_CHECK(e.is_const(), "a plan needs known sizes, not ", e);
    out.push_back(e.value());
  }
  return out;
}

class ExternPlanner {
 public:
  explicit ExternPlanner(const ir::Graph& g) : g_(g) {}

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
    return std::move(plan_);
  }

 private:
  uint32_t add_buffer(PlanBuffer::Kind kind, ir::ValueId v, uint32_t source) {
    PlanBuffer b;
    b.kind = kind;
    b.meta = meta_of(g_.tensor_type(v));
    b.source = source;
    b.bytes = span_bytes(b.meta);
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
    const ir::Type& type = g_.value(v).type;
    uint32_t source = static_cast<uint32_t>(plan_.inputs.size());
    if (type.is_tensor()) {
      plan_.inputs.push_back(meta_of(type.tensor));
      add_buffer(PlanBuffer::Kind::Input, v, source);
      return;
    }
    TensorMeta number;
    number.dtype = ir::DType::None;
    if (type.kind == ir::Type::Kind::Int && type.expr.is_const()) number.offset = type.expr.value();
    plan_.inputs.push_back(number);
  }

  void add_attribute(const ir::Node& n) {
    add_buffer(PlanBuffer::Kind::Attribute, n.outputs.at(0), attributes_++);
  }

  void add_call(const ir::Node& n) {
    ExternStep step;
    step.op = n.target;
    for (const ir::Arg& a : n.args) {
      step.args.push_back(ir::map_values(a, [&](ir::ValueId v) { return ir::ValueId(buffer(v)); }));
    }
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
      plan_.outputs.push_back(output_of(g_, spec, [this](ir::ValueId v) { return buffer(v); }));
    for (const ir::Mutation& m : g_.mutations) {
      plan_.mutations.push_back(mutation_of(g_, m, buffer(m.value), false));
    }
  }

  // A FreeStep after the last step that reads or makes each buffer that is no result.
  void add_frees() {
    std::vector<bool> kept(plan_.buffers.size(), false);
    for (const PlanOutput& o : plan_.outputs) {
      if (o.buffer >= 0) kept[static_cast<size_t>(o.buffer)] = true;
    }
    for (const PlanMutation& m : plan_.mutations) kept[m.buffer] = true;
    std::vector<PlanStep> reversed;
    for (auto it = plan_.steps.rbegin(); it != plan_.steps.rend(); ++it) {
      auto& step = std::get<ExternStep>(*it);
      auto last_use = [&](uint32_t b) {
        if (kept[b] || plan_.buffers[b].kind != PlanBuffer::Kind::Extern) return;
        kept[b] = true;
        reversed.emplace_back(FreeStep{b});
      };
      for (int64_t b : step.outputs) {
        if (b >= 0) last_use(static_cast<uint32_t>(b));
      }
      for (const ir::Arg& a : step.args) {
        ir::for_each_value(a, [&](ir::ValueId v) { last_use(v.index); });
      }
      reversed.push_back(std::move(*it));
    }
    plan_.steps.assign(std::make_move_iterator(reversed.rbegin()),
                       std::make_move_iterator(reversed.rend()));
  }

  const ir::Graph& g_;
  Plan plan_;
  uint32_t attributes_ = 0;
  std::unordered_map<ir::ValueId, uint32_t> buffer_of_;
};

}  // namespace

TensorMeta meta_of(const ir::TensorType& t) {
  OXY_CHECK(t.offset.is_const(), "a plan needs known offsets, not ", t.offset);
  return {t.dtype, t.device, constants(t.sizes), constants(t.strides), t.offset.value()};
}

PlanOutput output_of(const ir::Graph& g, const ir::OutputSpec& spec,
                     const std::function<uint32_t(ir::ValueId)>& buffer) {
  using Kind = ir::OutputSpec::Kind;
  PlanOutput out;
  out.kind = spec.kind;
  out.index = spec.index;
  out.conj = spec.conj;
  out.neg = spec.neg;
  if (spec.kind == Kind::ViewOfInput || spec.kind == Kind::ViewOfOutput)
    out.meta = meta_of(spec.type);
  if (spec.kind != Kind::Value) return out;
  const ir::Type& type = g.value(spec.value).type;
  if (type.is_tensor()) {
    out.buffer = buffer(spec.value);
  } else {
    OXY_CHECK(type.kind == ir::Type::Kind::Int && type.expr.is_const(), "a result that is ",
              ir::print(type));
    out.number = type.expr.value();
  }
  return out;
}

PlanMutation mutation_of(const ir::Graph& g, const ir::Mutation& m, uint32_t buffer,
                         bool in_place) {
  PlanMutation out{m.input, buffer, in_place, std::nullopt, m.value == g.inputs()[m.input]};
  if (m.metadata) out.layout = meta_of(m.type);
  return out;
}

int64_t span_bytes(const TensorMeta& m) {
  int64_t last = m.offset;
  for (size_t i = 0; i < m.sizes.size(); i++) {
    if (m.sizes[i] == 0) return 0;
    last += (m.sizes[i] - 1) * m.strides[i];
  }
  return (last + 1) * ir::byte_size(m.dtype);
}

Plan make_extern_plan(const ir::Graph& aten) { return ExternPlanner(aten).run(); }

}  // namespace oxy::runtime
