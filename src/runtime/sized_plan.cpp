// Reads each slot of a plan as a number.
#include "runtime/sized_plan.h"

#include "runtime/launch.h"
#include "support/check.h"

namespace oxy::runtime {
namespace {

constexpr int64_t kMaxScratch = INT64_MAX >> 20;  // a thread: all threads' is counted in 64 bits

// Writes parts of a sized plan, in the place where they are, and checks them. Where the plan comes
// from a file, anything may be said in it.
class Sizer {
 public:
  Sizer(const Plan& p, SizedPlan& out) : plan_(p), out_(out) {}

  void write(const std::vector<Slot>& from, std::vector<int64_t>& to) const {
    to.resize(from.size());
    for (size_t i = 0; i < from.size(); i++) to[i] = at(from[i]);
  }
  void write(const TensorSlots& t, TensorMeta& to) const {
    to.dtype = t.dtype;
    to.device = t.device;
    write(t.sizes, to.sizes);
    write(t.strides, to.strides);
    to.offset = at(t.offset);
  }
  void write_arena() {
    out_.arena_bytes = at(plan_.arena_bytes);
    OXY_CHECK(out_.arena_bytes >= 0, "the arena has ", out_.arena_bytes, " bytes");
  }
  void write_buffer(uint32_t i, bool late = false) {
    const PlanBuffer& b = plan_.buffers[i];
    SizedBuffer& s = out_.buffers[i];
    write(b.meta, s.meta);
    s.arena_offset = at(b.arena_offset);
    s.bytes = at(b.bytes);
    if (late) return;
    OXY_CHECK(s.bytes >= 0 && s.bytes >= span_bytes(s.meta), b.name, " has ", s.bytes, " bytes");
  }
  void write_kernel(uint32_t i, bool late = false) {
    const PlanKernel& k = plan_.kernels[i];
    SizedKernel& s = out_.kernels[i];
    s.range = at(k.range), s.grain = at(k.grain), s.scratch_bytes = at(k.scratch_bytes);
    write(k.parameters, s.parameters);
    if (late) s.scratch_bytes = 0;
    if (late) return;
    const bool can_run =
        s.range >= 0 && s.grain > 0 && s.scratch_bytes >= 0 && s.scratch_bytes <= kMaxScratch;
    OXY_CHECK(can_run, k.name, " has a range of ", s.range, ", a grain of ", s.grain, ", ",
              s.scratch_bytes, " bytes of scratch");
  }
  void count_scratch() {
    out_.scratch_bytes = 0;
    for (const SizedKernel& k : out_.kernels)
      out_.scratch_bytes = std::max(out_.scratch_bytes, scratch_bytes(k, 1));
  }

  void check_memory(uint32_t i) const {
    const PlanBuffer& b = plan_.buffers[i];
    const TensorMeta& m = out_.buffers[i].meta;
    OXY_CHECK(b.kind != PlanBuffer::Kind::Input || m == out_.inputs[b.source], b.name,
              " is not its input");
    OXY_CHECK(b.kind != PlanBuffer::Kind::View || is_inside(m, b.source), b.name,
              " leaves its base");
  }
  void check_place(uint32_t b) const {
    const uint32_t root = memory_of(plan_, b);
    const SizedBuffer& s = out_.buffers[root];
    const bool inside = s.arena_offset >= 0 && s.arena_offset <= out_.arena_bytes - s.bytes;
    OXY_CHECK(plan_.buffers[root].kind != PlanBuffer::Kind::Arena || inside,
              plan_.buffers[root].name, " leaves the arena");
  }

 private:
  int64_t at(Slot s) const { return out_.slots[s.index]; }

  // Of memory that comes from outside the plan only the base's own elements are known to be there.
  bool is_inside(const TensorMeta& view, uint32_t base) const {
    const auto& [m, offset, bytes] = out_.buffers[base];
    const auto kind = plan_.buffers[base].kind;
    if (kind == PlanBuffer::Kind::Arena || kind == PlanBuffer::Kind::Output)
      return span_bytes(view) <= bytes;
    auto begin = [](const TensorMeta& t) { return checked_mul(t.offset, byte_size(t.dtype)); };
    return span_bytes(view) == 0 || (span_bytes(view) <= span_bytes(m) && begin(view) >= begin(m));
  }

  const Plan& plan_;
  SizedPlan& out_;
};

// The buffers whose place matters. Others, which nobody reads or writes since fusion has removed
// them, have none.
std::vector<uint32_t> placed_buffers(const Plan& p) {
  std::vector<uint32_t> out;
  for (const PlanStep& step : p.steps) {
    const std::vector<uint32_t> named = buffers_of(step);
    out.insert(out.end(), named.begin(), named.end());
  }
  for (const PlanOutput& o : p.outputs)
    if (o.buffer >= 0) out.push_back(static_cast<uint32_t>(o.buffer));
  for (const PlanMutation& m : p.mutations) out.push_back(m.buffer);
  std::ranges::sort(out);
  out.erase(std::ranges::unique(out).begin(), out.end());
  return out;
}

// By buffer: whether a call asks for it.
std::vector<bool> used_buffers(const Plan& p) {
  std::vector<bool> out(p.buffers.size());
  for (const uint32_t b : placed_buffers(p)) out[b] = out[memory_of(p, b)] = true;
  auto use = [&](const std::vector<int64_t>& made) {
    for (const int64_t b : made)
      if (b >= 0) out[static_cast<size_t>(b)] = true;
  };
  for (const PlanStep& step : p.steps) {
    if (const auto* call = std::get_if<ExternStep>(&step)) use(call->outputs);
    if (const auto* region = std::get_if<RegionStep>(&step)) use(region->results);
  }
  for (size_t i = 0; i < out.size(); i++) {
    const PlanBuffer::Kind kind = p.buffers[i].kind;
    if (kind == PlanBuffer::Kind::Input || kind == PlanBuffer::Kind::Output) out[i] = true;
    // A view of a view is checked against it.
    for (size_t b = i; out[i] && p.buffers[b].kind == PlanBuffer::Kind::View;
         b = p.buffers[b].source)
      out[p.buffers[b].source] = true;
  }
  return out;
}

bool is_constant(const Plan& p, const PlanBuffer& b) {
  auto constant = [&](Slot s) { return p.sizes.is_constant(s); };
  return std::ranges::all_of(b.meta.sizes, constant) &&
         std::ranges::all_of(b.meta.strides, constant) && constant(b.meta.offset) &&
         constant(b.arena_offset) && constant(b.bytes);
}

// When a number that is read of slots is known.
class Times {
 public:
  explicit Times(const Plan& p) : plan_(p), slots_(known_from(p)) {}

  uint32_t of(Slot s) const { return slots_[s.index]; }
  uint32_t of(const std::vector<Slot>& list) const {
    uint32_t last = 0;
    for (const Slot s : list) last = std::max(last, of(s));
    return last;
  }
  uint32_t of(const TensorSlots& t) const {
    return std::max({of(t.sizes), of(t.strides), of(t.offset)});
  }
  uint32_t of(const PlanKernel& k) const {
    return std::max({of(k.range), of(k.grain), of(k.scratch_bytes), of(k.parameters)});
  }
  uint32_t of_buffer(uint32_t b) const { return known_from(plan_, slots_, b); }

 private:
  const Plan& plan_;
  const std::vector<uint32_t> slots_;
};

}  // namespace

int64_t span_bytes(const TensorMeta& m) {
  OXY_CHECK(m.offset >= 0, "an offset below 0");
  int64_t last = m.offset;
  for (size_t i = 0; i < m.sizes.size(); i++) {
    OXY_CHECK(m.sizes[i] >= 0 && m.strides[i] >= 0, "a size or a stride below 0");
    if (m.sizes[i] == 0) return 0;
    last = checked_add(last, checked_mul(m.sizes[i] - 1, m.strides[i]));
  }
  return checked_mul(checked_add(last, 1), byte_size(m.dtype));
}

SizedPlan at_sizes(const Plan& p, std::span<const KernelFn> entries, std::vector<int64_t> slots) {
  const Times known(p);
  SizedPlan out;
  out.slots = std::move(slots);
  out.inputs.resize(p.inputs.size());
  out.buffers.resize(p.buffers.size());
  out.kernels.resize(p.kernels.size());
  out.outputs.resize(p.outputs.size());
  out.layouts.resize(p.mutations.size());
  Sizer sizer(p, out);
  for (uint32_t i = 0; i < p.inputs.size(); i++) sizer.write(p.inputs[i], out.inputs[i]);
  sizer.write_arena();
  for (uint32_t i = 0; i < p.buffers.size(); i++) sizer.write_buffer(i, known.of_buffer(i) > 0);
  for (uint32_t i = 0; i < p.buffers.size(); i++)
    if (known.of_buffer(i) == 0) sizer.check_memory(i);
  for (const uint32_t b : placed_buffers(p))
    if (known.of_buffer(b) == 0) sizer.check_place(b);
  for (uint32_t i = 0; i < p.kernels.size(); i++) {
    out.kernels[i].entry = entries[i];
    sizer.write_kernel(i, known.of(p.kernels[i]) > 0);
  }
  sizer.count_scratch();
  for (uint32_t i = 0; i < p.outputs.size(); i++)
    if (p.outputs[i].meta) sizer.write(*p.outputs[i].meta, out.outputs[i]);
  for (uint32_t i = 0; i < p.mutations.size(); i++)
    if (p.mutations[i].layout) sizer.write(*p.mutations[i].layout, out.layouts[i]);
  return out;
}

SizeChanges::SizeChanges(const Plan& p, uint32_t step) : plan_(p) {
  const Times known(p);
  auto varies = [&](Slot s) { return !p.sizes.is_constant(s) && known.of(s) == step; };
  auto any = [&](const std::vector<Slot>& list) { return std::ranges::any_of(list, varies); };
  auto changes = [&](const TensorSlots& t) {
    return known.of(t) == step && (any(t.sizes) || any(t.strides) || varies(t.offset));
  };
  for (uint32_t i = 0; i < p.inputs.size(); i++)
    if (changes(p.inputs[i])) inputs_.push_back(i);
  const std::vector<bool> used = used_buffers(p);
  std::vector<bool> changed(p.buffers.size());
  for (uint32_t i = 0; i < p.buffers.size(); i++) {
    const PlanBuffer& b = p.buffers[i];
    if (!used[i]) continue;
    const uint32_t own = std::max({known.of(b.meta), known.of(b.arena_offset), known.of(b.bytes)});
    changed[i] = !is_constant(p, b);
    if (changed[i] && own == step) buffers_.push_back(i);
    if (known.of_buffer(i) != step) continue;
    if (b.kind == PlanBuffer::Kind::Arena && (changed[i] || varies(p.arena_bytes)))
      placed_.push_back(i);
    const bool of_changed = b.kind == PlanBuffer::Kind::View && changed[b.source];
    const bool enters = b.kind == PlanBuffer::Kind::Input && changes(p.inputs[b.source]);
    if (changed[i] || of_changed || enters) checked_.push_back(i);
  }
  for (uint32_t i = 0; i < p.kernels.size(); i++) {
    const PlanKernel& k = p.kernels[i];
    if (known.of(k) != step) continue;
    if (varies(k.range) || varies(k.grain) || varies(k.scratch_bytes) || any(k.parameters))
      kernels_.push_back(i);
  }
  for (uint32_t i = 0; i < p.outputs.size(); i++)
    if (p.outputs[i].meta && changes(*p.outputs[i].meta)) outputs_.push_back(i);
  for (uint32_t i = 0; i < p.mutations.size(); i++)
    if (p.mutations[i].layout && changes(*p.mutations[i].layout)) layouts_.push_back(i);
}

void SizeChanges::apply(SizedPlan& sized) const {
  Sizer sizer(plan_, sized);
  for (const uint32_t i : inputs_) sizer.write(plan_.inputs[i], sized.inputs[i]);
  sizer.write_arena();
  for (const uint32_t i : buffers_) sizer.write_buffer(i);
  for (const uint32_t i : checked_) sizer.check_memory(i);
  for (const uint32_t b : placed_) sizer.check_place(b);
  for (const uint32_t i : kernels_) sizer.write_kernel(i);
  sizer.count_scratch();
  for (const uint32_t i : outputs_) sizer.write(*plan_.outputs[i].meta, sized.outputs[i]);
  for (const uint32_t i : layouts_) sizer.write(*plan_.mutations[i].layout, sized.layouts[i]);
}

}  // namespace oxy::runtime
