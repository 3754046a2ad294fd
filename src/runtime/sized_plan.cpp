// Reads each slot of a plan as a number.
#include "runtime/sized_plan.h"

#include "runtime/launch.h"
#include "support/check.h"

namespace oxy::runtime {
namespace {

constexpr int64_t kMaxScratch = INT64_MAX >> 20;  // a thread: all threads' is counted in 64 bits

class Sizer {
 public:
  Sizer(const Plan& p, std::vector<int64_t> slots) : plan_(p) { out_.slots = std::move(slots); }

  // Where the plan comes from a file, anything may be said in it.
  SizedPlan run(std::span<const KernelFn> entries) {
    for (const TensorSlots& t : plan_.inputs) out_.inputs.push_back(meta(t));
    out_.arena_bytes = at(plan_.arena_bytes);
    OXY_CHECK(out_.arena_bytes >= 0, "the arena has ", out_.arena_bytes, " bytes");
    for (const PlanBuffer& b : plan_.buffers) add_buffer(b);
    check_memory();
    check_arena();
    for (size_t i = 0; i < plan_.kernels.size(); i++) add_kernel(plan_.kernels[i], entries[i]);
    for (const PlanOutput& o : plan_.outputs)
      out_.outputs.push_back(o.meta ? meta(*o.meta) : TensorMeta());
    for (const PlanMutation& m : plan_.mutations)
      out_.layouts.push_back(m.layout ? meta(*m.layout) : TensorMeta());
    return std::move(out_);
  }

 private:
  int64_t at(Slot s) const { return out_.slots[s.index]; }
  std::vector<int64_t> at(const std::vector<Slot>& list) const {
    std::vector<int64_t> out;
    out.reserve(list.size());
    for (Slot s : list) out.push_back(at(s));
    return out;
  }
  TensorMeta meta(const TensorSlots& t) const {
    return {t.dtype, t.device, at(t.sizes), at(t.strides), at(t.offset)};
  }

  void add_buffer(const PlanBuffer& b) {
    const SizedBuffer& s =
        out_.buffers.emplace_back(SizedBuffer{meta(b.meta), at(b.arena_offset), at(b.bytes)});
    OXY_CHECK(s.bytes >= 0 && s.bytes >= span_bytes(s.meta), b.name, " has ", s.bytes, " bytes");
  }

  void check_memory() const {
    for (size_t i = 0; i < plan_.buffers.size(); i++) {
      const PlanBuffer& b = plan_.buffers[i];
      const TensorMeta& m = out_.buffers[i].meta;
      OXY_CHECK(b.kind != PlanBuffer::Kind::Input || m == out_.inputs[b.source], b.name,
                " is not its input");
      OXY_CHECK(b.kind != PlanBuffer::Kind::View || is_inside(m, b.source), b.name,
                " leaves its base");
    }
  }
  // Of memory that comes from outside the plan only the base's own elements are known to be there.
  bool is_inside(const TensorMeta& view, uint32_t base) const {
    const auto& [m, offset, bytes] = out_.buffers[base];
    const auto kind = plan_.buffers[base].kind;
    if (kind == PlanBuffer::Kind::Arena || kind == PlanBuffer::Kind::Output)
      return span_bytes(view) <= bytes;
    auto begin = [](const TensorMeta& t) { return checked_mul(t.offset, byte_size(t.dtype)); };
    return span_bytes(view) == 0 || (span_bytes(view) <= span_bytes(m) && begin(view) >= begin(m));
  }

  // Buffers that nobody reads or writes, since fusion has removed them, have no place.
  void check_arena() const {
    for (const PlanStep& step : plan_.steps)
      for (const uint32_t b : buffers_of(step)) check_place(b);
    for (const PlanOutput& o : plan_.outputs)
      if (o.buffer >= 0) check_place(static_cast<uint32_t>(o.buffer));
    for (const PlanMutation& m : plan_.mutations) check_place(m.buffer);
  }
  void check_place(uint32_t b) const {
    const uint32_t root = memory_of(plan_, b);
    const SizedBuffer& s = out_.buffers[root];
    const bool inside = s.arena_offset >= 0 && s.arena_offset <= out_.arena_bytes - s.bytes;
    OXY_CHECK(plan_.buffers[root].kind != PlanBuffer::Kind::Arena || inside,
              plan_.buffers[root].name, " leaves the arena");
  }

  void add_kernel(const PlanKernel& k, KernelFn entry) {
    const SizedKernel& s = out_.kernels.emplace_back(
        SizedKernel{entry, at(k.range), at(k.grain), at(k.scratch_bytes), at(k.parameters)});
    const bool can_run =
        s.range >= 0 && s.grain > 0 && s.scratch_bytes >= 0 && s.scratch_bytes <= kMaxScratch;
    OXY_CHECK(can_run, k.name, " has a range of ", s.range, ", a grain of ", s.grain, ", ",
              s.scratch_bytes, " bytes of scratch");
    out_.scratch_bytes = std::max(out_.scratch_bytes, scratch_bytes(s, 1));
  }

  const Plan& plan_;
  SizedPlan out_;
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
  return Sizer(p, std::move(slots)).run(entries);
}

}  // namespace oxy::runtime
