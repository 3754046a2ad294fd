// Sizes, buffers and steps of a call, on arrays.
#include "runtime/run_plan.h"

#include <cstring>

#include "runtime/memory.h"

namespace oxy::runtime {
namespace {

using Kind = PlanBuffer::Kind;

int64_t element_count(const TensorMeta& m) {
  int64_t n = 1;
  for (int64_t s : m.sizes) n = checked_mul(n, s);
  return n;
}

// Calls f(byte offset in the storage) for each element in row-major order.
template <class F>
void for_each_element(const TensorMeta& m, F&& f) {
  const int64_t unit = byte_size(m.dtype), count = element_count(m);
  for (int64_t i = 0; i < count; i++) {
    int64_t at = m.offset;
    for (int64_t rest = i, d = static_cast<int64_t>(m.sizes.size()) - 1; d >= 0; d--) {
      const auto axis = static_cast<size_t>(d);
      at += rest % m.sizes[axis] * m.strides[axis];
      rest /= m.sizes[axis];
    }
    f(at * unit);
  }
}

// In the memory of `base`, whose storage offset was predicted as `offset`.
Array view_of(const Array& base, const TensorMeta& meta, int64_t offset) {
  Array out{meta, base.memory};
  out.meta.offset +=
      (base.meta.offset - offset) * byte_size(base.meta.dtype) / byte_size(meta.dtype);
  if (span_bytes(out.meta) > span_bytes(base.meta)) throw UserError("a view leaves its base");
  return out;
}

}  // namespace

Array make_array(const TensorMeta& meta) {
  auto block = std::make_shared<AlignedBlock>(static_cast<size_t>(span_bytes(meta)));
  return {meta, {block->data(), block}};
}

std::string gather(const Array& a) {
  std::string out;
  const auto unit = static_cast<size_t>(byte_size(a.meta.dtype));
  for_each_element(a.meta, [&](int64_t at) { out.append(a.memory.data + at, unit); });
  return out;
}

void scatter(std::string_view elements, const Array& a) {
  const auto unit = static_cast<size_t>(byte_size(a.meta.dtype));
  const char* from = elements.data();
  for_each_element(a.meta, [&](int64_t at) {
    std::memcpy(a.memory.data + at, from, unit);
    from += unit;
  });
}

struct PlanRunner::Call {
  std::span<const Array> inputs;
  SizedPlan sizes;
  DeviceApi::Queue queue;
  std::vector<Array> arrays;     // by buffer that has memory of its own
  std::vector<void*> addresses;  // by buffer
};

PlanRunner::PlanRunner(Plan plan, CodeTable code, std::vector<Array> attributes,
                       const DeviceApi& device)
    : plan_(std::move(plan)),
      code_(std::move(code)),
      entries_(code_.entries_of(plan_)),
      attributes_(std::move(attributes)),
      device_(device) {
  for (const PlanStep& step : plan_.steps)
    if (auto launch = bind_launch(plan_, step))
      launches_.push_back(std::move(*launch));
    else if (const auto* e = std::get_if<ExternStep>(&step))
      throw Unsupported(cat("the plan calls ", e->op, ", which needs torch"));
    else if (std::holds_alternative<SizeStep>(step))
      throw Unsupported("the plan has sizes that depend on data, which need torch");
    else if (std::holds_alternative<RegionStep>(step))
      throw Unsupported("the plan has regions, which need torch");
  for (const PlanMutation& m : plan_.mutations)
    if (m.layout) throw Unsupported("the plan changes the layout of an input, which needs torch");
  for (const PlanBuffer& b : plan_.buffers)
    if (b.kind == Kind::Attribute && b.source >= attributes_.size())
      throw UserError(
          cat("the plan has an attribute ", b.source, ", ", attributes_.size(), " were given"));
}

SizedPlan PlanRunner::sizes_of(std::span<const Array> inputs) const {
  if (inputs.size() != plan_.inputs.size())
    throw UserError(cat("the plan has ", plan_.inputs.size(), " inputs, not ", inputs.size()));
  std::vector<SizeInput> read;
  for (size_t i = 0; i < inputs.size(); i++) {
    const TensorMeta& m = inputs[i].meta;
    if (m.dtype != plan_.inputs[i].dtype || m.sizes.size() != plan_.inputs[i].sizes.size())
      throw UserError(cat("input ", i, " has another dtype or rank than the plan is for"));
    read.push_back({m.sizes.data(), m.strides.data(), m.offset});
  }
  std::vector<int64_t> slots(plan_.sizes.instructions.size());
  evaluate(plan_.sizes, read, slots.data());
  return at_sizes(plan_, entries_, std::move(slots));
}

void PlanRunner::check_inputs(const SizedPlan& sizes, std::span<const Array> inputs) const {
  for (size_t i = 0; i < inputs.size(); i++) {
    const TensorMeta &given = inputs[i].meta, &wanted = sizes.inputs[i];
    const bool number = wanted.dtype == DType::None;
    if (given.sizes != wanted.sizes || given.strides != wanted.strides ||
        (number && given.offset != wanted.offset))
      throw UserError(cat("input ", i, " has other sizes or strides than the plan is for"));
  }
  for (size_t b = 0; b < plan_.buffers.size(); b++) {
    const PlanBuffer& p = plan_.buffers[b];
    if (p.kind == Kind::Attribute && attributes_[p.source].meta != sizes.buffers[b].meta)
      throw UserError(cat("attribute ", p.source, " is not what the plan is for"));
  }
}

void PlanRunner::place_buffers(Call& c) const {
  const Memory arena = device_.allocate(c.sizes.arena_bytes, c.queue);
  for (size_t b = 0; b < plan_.buffers.size(); b++) {
    const PlanBuffer& p = plan_.buffers[b];
    const auto& [meta, offset, bytes] = c.sizes.buffers[b];
    Array a{meta, {}};
    if (p.kind == Kind::Input) a = c.inputs[p.source];
    if (p.kind == Kind::Attribute) a = attributes_[p.source];
    if (p.kind == Kind::Output) a.memory = device_.allocate(bytes, c.queue);
    if (p.kind == Kind::Arena) a.memory = {arena.data + offset, arena.owner};
    const bool empty = a.memory.data == nullptr;
    c.addresses.push_back(empty ? nullptr
                                : a.memory.data + a.meta.offset * byte_size(a.meta.dtype));
    c.arrays.push_back(std::move(a));
  }
}

void PlanRunner::run_steps(Call& c) const {
  const Memory scratch = device_.allocate(device_.scratch_bytes(c.sizes), c.queue);
  Arguments arguments;
  int status = 0;
  for (const BoundLaunch& l : launches_) {
    arguments.fill(l, c.sizes, c.addresses.data());
    status |= device_.launch(c.sizes.kernels[l.kernel], arguments.data(), scratch.data, c.queue);
  }
  status |= device_.finish(c.queue);
  if (status != 0) throw UserError(cat("a kernel stopped with status ", status));
}

Array PlanRunner::value(const Call& c, uint32_t buffer) const {
  const uint32_t root = memory_of(plan_, buffer);
  if (root == buffer) return c.arrays[buffer];
  return view_of(c.arrays[root], c.sizes.buffers[buffer].meta, c.sizes.buffers[root].meta.offset);
}

// What is in memory of the caller's becomes a copy.
Array PlanRunner::own_value(const Call& c, uint32_t buffer) const {
  Array v = value(c, buffer);
  const Kind kind = plan_.buffers[memory_of(plan_, buffer)].kind;
  if (kind != Kind::Input && kind != Kind::Attribute) return v;
  Array copy = make_array(v.meta);
  scatter(gather(v), copy);
  return copy;
}

Array PlanRunner::output(const Call& c, size_t i, const std::vector<Array>& outputs) const {
  using enum PlanOutput::Kind;
  const PlanOutput& o = plan_.outputs[i];
  if (o.conj || o.neg) throw Unsupported("a lazily negated result needs torch");
  if (o.kind == Input) return c.inputs[o.index];
  if (o.kind == ViewOfInput)
    return view_of(c.inputs[o.index], c.sizes.outputs[i], c.sizes.inputs[o.index].offset);
  if (o.kind == ViewOfOutput) {
    const auto base = static_cast<size_t>(plan_.outputs[o.index].buffer);
    OXY_CHECK(o.index < i, "a view in front of its base");
    return view_of(outputs[o.index], c.sizes.outputs[i], c.sizes.buffers[base].meta.offset);
  }
  if (o.kind == Value && !o.number) return own_value(c, static_cast<uint32_t>(o.buffer));
  Array none;
  none.meta.dtype = DType::None;
  if (o.number) none.meta.offset = c.sizes.slots[o.number->index];
  return none;
}

// All values are read before one is written.
void PlanRunner::write_inputs(const Call& c) const {
  std::vector<std::string> values;
  for (const PlanMutation& m : plan_.mutations) {
    const TensorMeta &from = c.sizes.buffers[m.buffer].meta, &to = c.sizes.inputs[m.input];
    if (from.dtype != to.dtype || from.sizes != to.sizes)
      throw UserError("an input is written with values of another dtype or other sizes");
    values.push_back(m.in_place || m.same_data ? "" : gather(value(c, m.buffer)));
  }
  for (size_t i = 0; i < values.size(); i++)
    if (!values[i].empty()) scatter(values[i], c.inputs[plan_.mutations[i].input]);
}

std::vector<Array> PlanRunner::run(std::span<const Array> inputs) const {
  Call c{inputs, sizes_of(inputs), device_.queue(), {}, {}};
  check_inputs(c.sizes, inputs);
  place_buffers(c);
  run_steps(c);
  std::vector<Array> outputs;
  for (size_t i = 0; i < plan_.outputs.size(); i++) outputs.push_back(output(c, i, outputs));
  write_inputs(c);
  return outputs;
}

}  // namespace oxy::runtime
