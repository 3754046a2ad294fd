// Marks stores to large buffers, and takes marks back where a later kernel changes the buffer.
#include "schedule/cpu/stream_stores.h"

#include <set>

#include "schedule/cost.h"
#include "schedule/cpu/annotations.h"

namespace oxy::schedule {
namespace {

void mark_streaming(Block& body, const std::vector<bool>& streaming) {
  for (Stmt& s : body) {
    if (auto* f = std::get_if<For>(&s.v)) mark_streaming(f->body, streaming);
    auto* c = std::get_if<Compute>(&s.v);
    if (c && c->op == LoopOp::Store) c->annotations.set(kStreaming, streaming[c->buffer]);
  }
}

void stop_streaming(Block& body, const std::set<loops::BufferId>& kept,
                    const std::vector<KernelBuffer>& buffers) {
  for (Stmt& s : body) {
    if (auto* f = std::get_if<For>(&s.v)) stop_streaming(f->body, kept, buffers);
    auto* c = std::get_if<Compute>(&s.v);
    if (c && c->op == LoopOp::Store && kept.contains(buffers[c->buffer].buffer))
      c->annotations.set(kStreaming, 0);
  }
}

}  // namespace

void stream_stores(Kernel& k, const ScheduleOptions& options) {
  std::vector<bool> streaming;
  for (const KernelBuffer& b : k.buffers) {
    streaming.push_back(b.kind == KernelBuffer::Kind::Write &&
                        hinted(b.elements).value_or(0) * ir::byte_size(b.dtype) >=
                            options.large_bytes());
  }
  mark_streaming(k.body, streaming);
}

void keep_what_is_changed(std::vector<Kernel>& kernels, const ScheduleOptions& options) {
  if (!options.streaming) return;
  const int64_t most = tuning::changed_of_last_level * options.large_bytes();
  std::set<loops::BufferId> changed;
  for (size_t k = kernels.size(); k-- > 0;) {
    stop_streaming(kernels[k].body, changed, kernels[k].buffers);
    for (const KernelBuffer& b : kernels[k].buffers)
      if (b.kind == KernelBuffer::Kind::ReadWrite &&
          hinted(b.elements).value_or(most) * ir::byte_size(b.dtype) < most)
        changed.insert(b.buffer);
  }
}

}  // namespace oxy::schedule
