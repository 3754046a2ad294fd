// Marks stores to large buffers, and takes marks back where a later kernel changes the buffer.
#include <set>

#include "schedule/cost.h"
#include "schedule/cpu/annotations.h"
#include "schedule/cpu/pass_list.h"

namespace oxy::schedule {

namespace {

// Whether the vector loop around a store writes short rows that share cache lines. Squares that are
// transposed are slower or faster then, by how much of a line their rows share.
bool writes_parts_of_lines(const Compute& store, const Path& path, int64_t element_bytes,
                           const Machine& machine) {
  if (path.empty() || path.back()->kind != ForKind::Vector || is_tiled(*path.back())) return false;
  const auto is_whole = [&](int64_t elements) {
    return elements * element_bytes % machine.line_bytes == 0;
  };
  const For& row = *path.back();
  const auto along = sym::linear_in(store.index, row.var);
  if (!along || !along->first.is_const(1)) return false;
  const int64_t length = count_of(row.size);
  bool whole = is_whole(length), alone = true;
  Expr rest = along->second;
  for (const For* f : std::span(path).first(path.size() - 1)) {
    const auto by_row = sym::linear_in(rest, f->var);
    const auto stride = by_row ? hinted(by_row->first) : std::nullopt;
    if (!stride) return false;
    alone &= *stride == 0;
    whole &= is_whole(*stride);
    rest = by_row->second;
  }
  return !whole && !alone && length * element_bytes < tuning::stream_row_bytes;
}

}  // namespace

void stream_stores(Kernel& k, const ScheduleOptions& options) {
  std::vector<bool> streaming;
  for (const KernelBuffer& b : k.buffers) {
    streaming.push_back(b.kind == KernelBuffer::Kind::Write &&
                        hinted(b.elements).value_or(0) * ir::byte_size(b.dtype) >=
                            options.large_bytes());
  }
  for_each_compute(k, [&](const Compute& c, const Path& path) {
    if (c.op == LoopOp::Store && streaming[c.buffer])
      streaming[c.buffer] = !writes_parts_of_lines(
          c, path, ir::byte_size(k.buffers[c.buffer].dtype), options.machine);
  });
  walk<Compute>(k.body, [&](Compute& c) {
    if (c.op == LoopOp::Store) c.annotations.set(kStreaming, streaming[c.buffer]);
  });
}

void keep_what_is_changed(std::vector<Kernel>& kernels, const ScheduleOptions& options) {
  if (!options.streaming) return;
  const int64_t most = tuning::changed_of_last_level * options.large_bytes();
  std::set<BufferId> changed;
  for (Kernel& k : kernels | std::views::reverse) {
    walk<Compute>(k.body, [&](Compute& c) {
      if (c.op == LoopOp::Store && changed.contains(k.buffers[c.buffer].buffer))
        c.annotations.set(kStreaming, 0);
    });
    for (const KernelBuffer& b : k.buffers)
      if (b.kind == KernelBuffer::Kind::ReadWrite &&
          hinted(b.elements).value_or(most) * ir::byte_size(b.dtype) < most)
        changed.insert(b.buffer);
  }
}

}  // namespace oxy::schedule
