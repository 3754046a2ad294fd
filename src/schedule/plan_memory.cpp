// Lifetimes, the best gap of the arena for each buffer, and frees.
#include "schedule/plan_memory.h"

#include <algorithm>
#include <map>
#include <set>

#include "schedule/cost.h"
#include "schedule/kernel_access.h"
#include "schedule/step_uses.h"

namespace oxy::schedule {

using loops::Buffer;
using loops::BufferId;

namespace {

constexpr int64_t kAlign = 64;

template <class Fn>
void for_each_buffer(const Schedule& s, const ScheduledStep& step, Fn&& f) {
  const StepUses uses = uses_of(s, step);
  for (const auto* list : {&uses.reads, &uses.writes}) std::ranges::for_each(*list, f);
}

}  // namespace

std::set<BufferId> escaping(const Schedule& s) {
  std::set<BufferId> out;
  if (!s.program.graph) return out;
  auto add = [&](ir::ValueId v) {
    auto it = s.program.buffer_of.find(v);
    if (it != s.program.buffer_of.end()) out.insert(memory_of(s.program, it->second));
  };
  for (const ir::OutputSpec& o : s.program.graph->outputs) {
    if (o.kind == ir::OutputSpec::Kind::Value && o.value.valid()) add(o.value);
  }
  for (const ir::Mutation& m : s.program.graph->mutations) add(m.value);
  return out;
}

namespace {

struct Life {
  size_t first = SIZE_MAX, last = 0;
};

std::map<BufferId, Life> lifetimes(const Schedule& s) {
  std::map<BufferId, Life> out;
  for (size_t i = 0; i < s.steps.size(); ++i) {
    for_each_buffer(s, s.steps[i], [&](BufferId b) {
      Life& l = out[b];
      l.first = std::min(l.first, i);
      l.last = std::max(l.last, i);
    });
  }
  for (BufferId b : escaping(s)) {
    if (auto it = out.find(b); it != out.end()) it->second.last = SIZE_MAX;
  }
  return out;
}

struct Placed {
  Life life;
  int64_t offset, bytes;
};

// Temps that take over the memory of one that their kernel reads for the last time: heir to
// predecessor.
std::map<BufferId, BufferId> inheritances(const Schedule& s,
                                          const std::map<BufferId, Life>& lives) {
  std::map<BufferId, BufferId> from;
  std::set<BufferId> taken;
  for (size_t i = 0; i < s.steps.size(); ++i) {
    const auto* call = std::get_if<KernelCall>(&s.steps[i]);
    if (!call) continue;
    const Kernel& k = s.kernels[call->kernel];
    auto temp = [&](const KernelBuffer& b, KernelBuffer::Kind kind) {
      return b.kind == kind && s.program.buffers[b.buffer].kind == Buffer::Kind::Temp;
    };
    auto type = [&](const KernelBuffer& b) { return s.program.buffers[b.buffer].type; };
    for (uint32_t w = 0; w < k.buffers.size(); ++w) {
      const KernelBuffer& heir = k.buffers[w];
      if (!temp(heir, KernelBuffer::Kind::Write) || lives.at(heir.buffer).first != i) continue;
      for (uint32_t r = 0; r < k.buffers.size(); ++r) {
        const KernelBuffer& old = k.buffers[r];
        bool dies = temp(old, KernelBuffer::Kind::Read) && lives.at(old.buffer).last == i;
        if (!dies || taken.contains(old.buffer) || old.dtype != heir.dtype) continue;
        if (loops::byte_extent(type(old)) != loops::byte_extent(type(heir))) continue;
        if (!may_overwrite(k, static_cast<int32_t>(r), w)) continue;
        from[heir.buffer] = old.buffer;
        taken.insert(old.buffer);
        break;
      }
    }
  }
  return from;
}

int64_t best_gap(const std::vector<Placed>& placed, const Life& life, int64_t bytes) {
  std::vector<std::pair<int64_t, int64_t>> taken;  // begin, end of what is alive at the same time
  for (const Placed& p : placed) {
    if (p.life.first <= life.last && life.first <= p.life.last)
      taken.emplace_back(p.offset, p.offset + p.bytes);
  }
  std::sort(taken.begin(), taken.end());
  int64_t end = 0, best = -1, best_size = INT64_MAX;
  for (auto [b, e] : taken) {
    int64_t gap = b - end;
    if (gap >= bytes && gap < best_size) {
      best = end;
      best_size = gap;
    }
    end = std::max(end, e);
  }
  return best >= 0 ? best : end;
}

// Buffers of symbolic size, behind those of constant size: sizes cannot be compared, so each lies
// in a place that is as large as the largest buffer of all that have it in turn.
class SymbolicPlaces {
 public:
  void add(BufferId b, const Life& life, Expr bytes) {
    Place* best = nullptr;
    for (Place& p : places_) {
      const bool free = std::ranges::none_of(p.lives, [&](const Life& other) {
        return other.first <= life.last && life.first <= other.last;
      });
      if (free && (!best || growth(p.bytes, bytes) < growth(best->bytes, bytes))) best = &p;
    }
    if (!best) best = &places_.emplace_back();
    best->bytes = sym::max(best->bytes, bytes);
    best->lives.push_back(life);
    best->buffers.push_back(b);
  }

  // Where all of them end.
  Expr place(Expr begin, MemoryPlan& plan) const {
    for (const Place& p : places_) {
      for (BufferId b : p.buffers) plan.offset[b] = begin;
      begin = begin + sym::ceildiv(p.bytes, kAlign) * kAlign;
    }
    return begin;
  }

 private:
  struct Place {
    Expr bytes = 0;
    std::vector<Life> lives;
    std::vector<BufferId> buffers;
  };

  // What is wasted, at the hints, when a buffer takes the place of others.
  static int64_t growth(Expr place, Expr bytes) {
    return place == bytes ? -1 : std::abs(count_of(place) - count_of(bytes));
  }

  std::vector<Place> places_;
};

}  // namespace

MemoryPlan plan_memory(const Schedule& s) {
  MemoryPlan plan;
  struct Request {
    BufferId buffer;
    Life life;
    int64_t bytes;
  };
  std::vector<Request> requests;
  SymbolicPlaces symbolic;
  std::map<BufferId, Life> lives = lifetimes(s);
  const std::map<BufferId, BufferId> predecessor = inheritances(s, lives);
  auto founder = [&](BufferId b) {
    for (auto it = predecessor.find(b); it != predecessor.end(); it = predecessor.find(b))
      b = it->second;
    return b;
  };
  for (const auto& [heir, old] : predecessor) {
    Life& whole = lives.at(founder(heir));
    whole.last = std::max(whole.last, lives.at(heir).last);
  }
  for (const auto& [b, life] : lives) {
    if (s.program.buffers[b].kind != Buffer::Kind::Temp || predecessor.contains(b)) continue;
    Expr bytes = loops::byte_extent(s.program.buffers[b].type);
    if (bytes.is_const())
      requests.push_back({b, life, (bytes.value() + kAlign - 1) / kAlign * kAlign});
    else
      symbolic.add(b, life, bytes);
  }
  // The largest first: small ones fit between them.
  std::stable_sort(requests.begin(), requests.end(),
                   [](const Request& a, const Request& b) { return a.bytes > b.bytes; });
  std::vector<Placed> placed;
  int64_t end = 0;
  for (const Request& r : requests) {
    int64_t at = best_gap(placed, r.life, r.bytes);
    placed.push_back({r.life, at, r.bytes});
    plan.offset[r.buffer] = at;
    end = std::max(end, at + r.bytes);
  }
  plan.arena_bytes = symbolic.place(end, plan);
  for (const auto& [heir, old] : predecessor) plan.offset[heir] = plan.offset.at(founder(heir));
  return plan;
}

void insert_frees(Schedule& s) {
  std::map<size_t, std::vector<BufferId>> after;
  for (const auto& [b, life] : lifetimes(s)) {
    if (s.program.buffers[b].kind == Buffer::Kind::Extern && life.last != SIZE_MAX)
      after[life.last].push_back(b);
  }
  std::vector<ScheduledStep> steps;
  for (size_t i = 0; i < s.steps.size(); ++i) {
    steps.push_back(std::move(s.steps[i]));
    if (auto it = after.find(i); it != after.end()) {
      for (BufferId b : it->second) steps.push_back(Free{b});
    }
  }
  s.steps = std::move(steps);
}

}  // namespace oxy::schedule
