// Marks stores to large buffers, and takes marks back where a later kernel changes the buffer.
#include <set>

#include "schedule/cost.h"
#include "schedule/cpu/annotations.h"
#include "schedule/cpu/pass_list.h"

namespace oxy::schedule {

void stream_stores(Kernel& k, const ScheduleOptions& options) {
  std::vector<bool> streaming;
  for (const KernelBuffer& b : k.buffers) {
    streaming.push_back(b.kind == KernelBuffer::Kind::Write &&
                        hinted(b.elements).value_or(0) * ir::byte_size(b.dtype) >=
                            options.large_bytes());
  }
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
