// Rows of a Plan.
#include "pipeline/plan_writer.h"

#include <algorithm>

#include "ops/op_table.h"
#include "schedule/cost.h"
#include "support/check.h"

namespace oxy::pipeline {

using runtime::PlanArg;
using runtime::SizeOp;
using runtime::Slot;
using sym::Expr;

PlanWriter::PlanWriter(const ir::Graph& graph, std::span<const Expr> numbers,
                       std::span<const Fact> checks)
    : graph_(graph),
      numbers_(numbers.begin(), numbers.end()),
      checks_(checks.begin(), checks.end()),
      sizes_(plan_.sizes) {
  const auto& inputs = graph_.inputs();
  std::vector<Reading> readings;
  auto each_tensor = [&](auto&& f) {
    for (uint32_t i = 0; i < inputs.size(); i++) {
      const ir::Type& type = graph_.value(inputs[i]).type;
      if (type.is_tensor()) f(i, type.tensor);
    }
  };
  each_tensor([&](uint32_t i, const ir::TensorType& t) {
    for (size_t d = 0; d < t.sizes.size(); d++)
      readings.push_back({t.sizes[d], SizeOp::InputSize, i, d});
  });
  for (uint32_t i = 0; i < inputs.size(); i++) {
    const ir::Type& type = graph_.value(inputs[i]).type;
    if (type.kind == ir::Type::Kind::Int)
      readings.push_back({type.expr, SizeOp::InputNumber, i, 0});
  }
  each_tensor([&](uint32_t i, const ir::TensorType& t) {
    for (size_t d = 0; d < t.strides.size(); d++)
      readings.push_back({t.strides[d], SizeOp::InputStride, i, d});
    readings.push_back({t.offset, SizeOp::InputOffset, i, 0});
  });
  for (size_t i = 0; i < numbers_.size(); i++)
    readings.push_back(
        {numbers_[i], SizeOp::InputNumber, static_cast<uint32_t>(inputs.size() + i), 0});
  sizes_.bind(readings);
}

std::vector<Slot> PlanWriter::slots(const std::vector<Expr>& list) {
  std::vector<Slot> out;
  out.reserve(list.size());
  for (const Expr e : list) out.push_back(slot(e));
  return out;
}

runtime::Size PlanWriter::size(Expr e) {
  if (e.is_const()) return e.value();
  return {sizes_.builder(), slot(e), schedule::hinted(e).value_or(schedule::count_of(e))};
}

runtime::TensorSlots PlanWriter::tensor(const ir::TensorType& t) {
  return {t.dtype, t.device, slots(t.sizes), slots(t.strides), slot(t.offset)};
}

Slot PlanWriter::span_bytes(const runtime::TensorSlots& t) {
  Slot last = t.offset, some = constant(1);
  for (size_t i = 0; i < t.sizes.size(); i++) {
    const Slot before = binary(SizeOp::Add, t.sizes[i], constant(-1));
    last = binary(SizeOp::Add, last, binary(SizeOp::Mul, before, t.strides[i]));
    some = binary(SizeOp::Min, some, t.sizes[i]);
  }
  const Slot elements = binary(SizeOp::Mul, some, binary(SizeOp::Add, last, constant(1)));
  return binary(SizeOp::Mul, elements, constant(byte_size(t.dtype)));
}

void PlanWriter::add_input(ir::ValueId v) {
  const ir::Type& type = graph_.value(v).type;
  if (type.is_tensor())
    plan_.inputs.push_back(tensor(type.tensor));
  else
    add_number(type.kind == ir::Type::Kind::Int ? slot(type.expr) : constant(0));
}

void PlanWriter::add_number(Slot value) {
  runtime::TensorSlots input;
  input.dtype = DType::None;
  input.offset = value;
  plan_.inputs.push_back(std::move(input));
}

void PlanWriter::add_inputs() {
  for (ir::ValueId v : graph_.inputs()) add_input(v);
  for (const Expr s : numbers_) add_number(slot(s));
}

// What the caller gets for an output of the graph.
runtime::PlanOutput PlanWriter::output(const ir::OutputSpec& spec) {
  using Kind = ir::OutputSpec::Kind;
  runtime::PlanOutput out;
  out.kind = static_cast<runtime::PlanOutput::Kind>(spec.kind);
  out.index = spec.index;
  out.conj = spec.conj;
  out.neg = spec.neg;
  out.piece = spec.piece;
  out.detached = spec.detached;
  out.itself = spec.itself;
  out.unseen = spec.unseen;
  out.no_grad = spec.no_grad;
  out.derived = spec.derived;
  out.alias = spec.alias;
  if (spec.kind == Kind::ViewOfInput || spec.kind == Kind::ViewOfOutput)
    out.meta = tensor(spec.type);
  if (spec.kind != Kind::Value) return out;
  const ir::Type& type = graph_.value(spec.value).type;
  OXY_CHECK(type.is_tensor() || type.kind == ir::Type::Kind::Int, "a result that is ",
            ir::print(type));
  if (type.is_tensor())
    out.buffer = result_of(spec.value);
  else
    out.number = slot(type.expr);
  return out;
}

void PlanWriter::add_results() {
  for (const ir::OutputSpec& spec : graph_.outputs) plan_.outputs.push_back(output(spec));
  for (const ir::Mutation& m : graph_.mutations) {
    const bool same_data = m.value == graph_.inputs()[m.input];
    plan_.mutations.push_back(
        {m.input, result_of(m.value), false, std::nullopt, same_data, m.unseen});
    if (m.metadata) plan_.mutations.back().layout = tensor(m.type);
  }
}

PlanArg PlanWriter::argument(const ir::Arg& a) {
  if (a.is_value()) {
    const ir::Type& type = graph_.value(a.value()).type;
    if (type.kind == ir::Type::Kind::Int) return {slot(type.expr)};
    return {runtime::BufferArg{buffer_of(a.value())}};
  }
  if (a.is_none()) return {};
  if (const auto* e = a.get_if<Expr>()) return {slot(*e)};
  if (const auto* s = a.get_if<ir::Str>()) return {s->value};
  if (const auto* items = a.items()) {
    PlanArg::List out;
    for (const ir::Arg& x : *items) out.push_back(argument(x));
    return {std::move(out)};
  }
  if (const auto* d = a.get_if<double>()) return {*d};
  if (const auto* b = a.get_if<bool>()) return {*b};
  if (const auto* c = a.get_if<std::complex<double>>()) return {*c};
  if (const auto* d = a.get_if<DType>()) return {*d};
  if (const auto* d = a.get_if<Device>()) return {*d};
  if (const auto* l = a.get_if<Layout>()) return {*l};
  if (const auto* m = a.get_if<MemoryFormat>()) return {*m};
  throw Unsupported("an argument of a kind that extern calls do not know");
}

PlanArg::List PlanWriter::arguments(const ir::Node& n) {
  PlanArg::List out;
  for (const ir::Arg& a : n.args) out.push_back(argument(a));
  return out;
}

void PlanWriter::add_extern(const ir::Node& n, std::string op, PlanArg::List args,
                            std::vector<int64_t> outputs) {
  const ops::OpInfo* info = ops::find(n);
  plan_.steps.emplace_back(runtime::ExternStep{std::move(op), std::move(args), n.returns,
                                               std::move(outputs), info && info->has(ops::Random),
                                               n.id.index});
}

runtime::SizeStep PlanWriter::define_symbols(const ir::Node& n, std::span<const int64_t> outputs) {
  // Facts may have made something else of a size that depends on data, and nobody may ask for the
  // result itself.
  const ops::OpInfo* info = ops::find(n);
  const bool of_data = info != nullptr && info->has(ops::DataDependent);
  std::vector<Reading> readings;
  for (size_t i = 0; i < n.outputs.size(); i++) {
    const ir::Type& type = graph_.value(n.outputs[i]).type;
    if (type.kind == ir::Type::Kind::Int && n.target == ops::kReadNumber)
      readings.push_back({type.expr, SizeOp::BufferNumber, buffer_of(n.arg(0).value())});
    for (size_t d = 0; type.is_tensor() && outputs[i] >= 0 && d < type.tensor.sizes.size(); d++)
      if (of_data || !sizes_.has(type.tensor.sizes[d]))
        readings.push_back(
            {type.tensor.sizes[d], SizeOp::BufferSize, static_cast<uint32_t>(outputs[i]), d});
  }
  const std::vector<bool> gives = sizes_.bind(readings);
  runtime::SizeStep step;
  for (size_t i = 0; i < readings.size(); i++) {
    const Reading& r = readings[i];
    const Slot read = sizes_.read(r);
    if (read_.insert(read.index).second) step.reads.push_back(read);
    if (!gives[i])
      step.checks.push_back({binary(SizeOp::Equal, read, slot(r.value)),
                             cat("a size of ", n.target, " is ", r.value)});
  }
  runtime::SizeStep more = checks_now();
  std::ranges::move(more.checks, std::back_inserter(step.checks));
  return step;
}

runtime::SizeStep PlanWriter::checks_now() {
  runtime::SizeStep step;
  std::erase_if(checks_, [&](const Fact& f) {
    if (!sizes_.has(f.condition)) return false;
    const Slot holds = sizes_.slot(f.condition);
    step.checks.push_back({holds, sym::print(f.condition)});
    return true;
  });
  return step;
}

void PlanWriter::add_sizes(runtime::SizeStep step) {
  std::ranges::sort(step.reads);
  step.reads.erase(std::ranges::unique(step.reads).begin(), step.reads.end());
  if (!step.reads.empty() || !step.checks.empty()) plan_.steps.emplace_back(std::move(step));
}

void PlanWriter::add_region(const ir::Node& n, std::vector<runtime::Plan> regions,
                            std::vector<int64_t> results) {
  using Kind = runtime::RegionStep::Kind;
  const std::pair<std::string_view, Kind> kinds[] = {
      {"cond", Kind::Cond}, {"while_loop", Kind::Loop}, {"block_sparse", Kind::Blocks}};
  const auto* kind = std::ranges::find(kinds, n.target, &std::pair<std::string_view, Kind>::first);
  if (kind == std::end(kinds)) throw Unsupported(cat("a plan of ", n.target));
  runtime::RegionStep step{kind->second, {}, {}, {}};
  for (runtime::Plan& region : regions) {
    step.plans.push_back(static_cast<uint32_t>(plan_.regions.size()));
    plan_.regions.push_back(std::move(region));
  }
  for (const ir::Arg& a : n.args) step.operands.push_back(buffer_of(a.value()));
  step.results = std::move(results);
  step.numbers = slots(symbols_of_regions(n));
  plan_.steps.emplace_back(std::move(step));
}

namespace {

void collect(const ir::TensorType& t, std::vector<Expr>& out) {
  for (const Expr e : t.sizes) sym::collect_symbols(e, out);
  for (const Expr e : t.strides) sym::collect_symbols(e, out);
  sym::collect_symbols(t.offset, out);
}

void collect(const ir::Arg& a, std::vector<Expr>& out) {
  if (const auto* e = a.get_if<Expr>()) sym::collect_symbols(*e, out);
  if (const auto* items = a.items())
    for (const ir::Arg& x : *items) collect(x, out);
}

void collect(const ir::Graph& g, std::vector<Expr>& out) {
  for (uint32_t i = 0; i < g.value_count(); i++) {
    const ir::Type& type = g.value(ir::ValueId(i)).type;
    if (type.is_tensor()) collect(type.tensor, out);
    if (type.kind == ir::Type::Kind::Int) sym::collect_symbols(type.expr, out);
  }
  for (const ir::NodeId id : g.order()) {
    for (const ir::Arg& a : g.node(id).args) collect(a, out);
    for (const ir::Graph& r : g.node(id).regions) collect(r, out);
  }
  for (const ir::OutputSpec& o : g.outputs) collect(o.type, out);
}

}  // namespace

std::vector<Expr> symbols_of_regions(const ir::Node& n) {
  std::vector<Expr> out;
  for (const ir::Graph& r : n.regions) collect(r, out);
  std::sort(out.begin(), out.end());
  return out;
}

}  // namespace oxy::pipeline
