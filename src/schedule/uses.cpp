// Notes writers and readers in one walk; removes loops that nobody reads.
#include "schedule/uses.h"

namespace oxy::schedule {

using loops::Buffer;
using loops::Inst;
using loops::Loop;
using loops::LoopOp;

BufferUses buffer_uses(const loops::Program& p) {
  BufferUses u;
  u.writer.assign(p.buffers.size(), -1);
  u.readers.resize(p.buffers.size());
  u.pinned.assign(p.buffers.size(), false);
  u.updated.assign(p.buffers.size(), false);
  auto pin = [&](BufferId b) { u.pinned[memory_of(p, b).index] = true; };
  for (uint32_t b = 0; b < p.buffers.size(); ++b) {
    if (p.buffers[BufferId(b)].kind != Buffer::Kind::Temp) pin(BufferId(b));
  }
  for (uint32_t s = 0; s < p.steps.size(); ++s) {
    if (const loops::Call* e = call_of(p.steps[s])) {
      for (BufferId b : e->reads) pin(b);
      for (BufferId b : e->writes) {
        if (b.valid()) u.writer[b.index] = static_cast<int32_t>(s);
      }
      continue;
    }
    for (const Inst& i : std::get<Loop>(p.steps[s]).body) {
      if (!i.buffer.valid()) continue;
      uint32_t b = memory_of(p, i.buffer).index;
      if (i.op != LoopOp::Load) u.writer[b] = static_cast<int32_t>(s);
      if (i.op == LoopOp::StoreAdd) u.updated[b] = true;
      auto& readers = u.readers[b];
      if (i.op != LoopOp::Store && (readers.empty() || readers.back() != s)) readers.push_back(s);
    }
  }
  if (p.graph) {
    for (const ir::Mutation& m : p.graph->mutations) {
      if (auto it = p.buffer_of.find(m.value); it != p.buffer_of.end()) pin(it->second);
    }
  }
  return u;
}

void remove_dead_loops(loops::Program& p) {
  std::vector<bool> needed = buffer_uses(p).pinned;
  std::vector<bool> keep(p.steps.size(), true);
  for (size_t s = p.steps.size(); s-- > 0;) {
    const auto* l = std::get_if<Loop>(&p.steps[s]);
    if (!l) continue;
    keep[s] = false;
    for (const Inst& i : l->body) {
      if (i.op == LoopOp::Store || i.op == LoopOp::StoreAdd)
        keep[s] = keep[s] || needed[memory_of(p, i.buffer).index];
    }
    if (!keep[s]) continue;
    for (const Inst& i : l->body) {
      if (i.op == LoopOp::Load) needed[memory_of(p, i.buffer).index] = true;
    }
  }
  size_t kept = 0;
  for (size_t s = 0; s < p.steps.size(); ++s) {
    if (!keep[s]) continue;
    if (kept != s) p.steps[kept] = std::move(p.steps[s]);
    ++kept;
  }
  p.steps.resize(kept);
}

}  // namespace oxy::schedule
