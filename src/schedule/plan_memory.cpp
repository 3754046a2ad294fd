// Lifetimes, the best gap of the arena for each buffer, and frees.
#include <algorithm>
#include <map>

#include "schedule/cost.h"
#include "schedule/kernel_access.h"
#include "schedule/pass_list.h"
#include "schedule/uses.h"

namespace oxy::schedule {

namespace {

constexpr int64_t kAlign = 64;

// The first and the last step that touch a buffer.
struct Life {
  size_t first = 0, last = 0;
  bool meets(const Life& o) const { return first <= o.last && o.first <= last; }
};

std::map<BufferId, Life> lifetimes(const Schedule& s) {
  std::map<BufferId, Life> out;
  for (size_t i = 0; i < s.steps.size(); ++i) {
    const StepUses uses = uses_of(s, s.steps[i]);
    for (const auto* list : {&uses.reads, &uses.writes}) {
      for (BufferId b : *list) out.try_emplace(b, Life{i, i}).first->second.last = i;
    }
  }
  for (BufferId b : escaping(s.program)) {
    if (auto it = out.find(b); it != out.end()) it->second.last = SIZE_MAX;
  }
  return out;
}

// Temps and results that take over the memory of a temp that their kernel reads for the last time:
// heir to predecessor.
std::map<BufferId, BufferId> inheritances(const Schedule& s,
                                          const std::map<BufferId, Life>& lives) {
  std::map<BufferId, BufferId> from;
  std::set<BufferId> taken;
  for (size_t i = 0; i < s.steps.size(); ++i) {
    const auto* call = std::get_if<KernelCall>(&s.steps[i]);
    if (!call) continue;
    const Kernel& k = s.kernels[call->kernel];
    auto kind = [&](const KernelBuffer& b) { return s.program.buffers[b.buffer].kind; };
    auto is_heir = [&](const KernelBuffer& b) {
      return b.kind == KernelBuffer::Kind::Write &&
             (kind(b) == Buffer::Kind::Temp || kind(b) == Buffer::Kind::Output) &&
             lives.at(b.buffer).first == i && !is_late(s.program.buffers[b.buffer].type);
    };
    auto dies = [&](const KernelBuffer& b) {
      return b.kind == KernelBuffer::Kind::Read && kind(b) == Buffer::Kind::Temp &&
             lives.at(b.buffer).last == i && !is_late(s.program.buffers[b.buffer].type);
    };
    auto bytes = [&](const KernelBuffer& b) {
      return loops::byte_extent(s.program.buffers[b.buffer].type);
    };
    for (uint32_t w = 0; w < k.buffers.size(); ++w) {
      const KernelBuffer& heir = k.buffers[w];
      if (!is_heir(heir)) continue;
      for (uint32_t r = 0; r < k.buffers.size(); ++r) {
        const KernelBuffer& old = k.buffers[r];
        if (!dies(old) || taken.contains(old.buffer) || old.dtype != heir.dtype ||
            bytes(old) != bytes(heir) || !may_overwrite(k, static_cast<int32_t>(r), w))
          continue;
        from[heir.buffer] = old.buffer;
        taken.insert(old.buffer);
        break;
      }
    }
  }
  return from;
}

// Temps whose last heir is a result lie in its memory, and what lay in theirs.
void lie_in_results(loops::Program& p, const std::map<BufferId, BufferId>& predecessor) {
  std::map<BufferId, BufferId> result;
  for (const auto& [heir, _] : predecessor) {
    if (p.buffers[heir].kind != Buffer::Kind::Output) continue;
    for (auto it = predecessor.find(heir); it != predecessor.end();
         it = predecessor.find(it->second))
      result.emplace(it->second, heir);
  }
  for (const auto& [temp, heir] : result) {
    p.buffers[temp].kind = Buffer::Kind::View;
    p.buffers[temp].base = heir;
  }
  for (Buffer& b : p.buffers) {
    if (b.kind != Buffer::Kind::View) continue;
    if (const auto it = result.find(b.base); it != result.end()) b.base = it->second;
  }
}

// A kernel whose result lies where its predecessor lay writes what changes: a loop that fills a
// tensor piece by piece makes a new one with each piece.
void write_changes(Schedule& s, const std::map<BufferId, BufferId>& predecessor) {
  if (predecessor.empty()) return;
  for (Kernel& k : s.kernels) {
    for (size_t w = 0; w < k.buffers.size(); ++w) {
      const auto old = predecessor.find(k.buffers[w].buffer);
      if (k.buffers[w].kind != KernelBuffer::Kind::Write || old == predecessor.end()) continue;
      const int32_t read = entry_of(k, old->second);
      if (read < 0) continue;
      auto cut = changed_part(k, *s.program.variables, static_cast<uint32_t>(read),
                              static_cast<uint32_t>(w));
      if (!cut || cut->rest || cut->parts.size() > 1) continue;
      Kernel& part = cut->parts[0];
      if (!may_overwrite(part, entry_of(part, old->second),
                         static_cast<uint32_t>(entry_of(part, old->first))))
        continue;
      k = std::move(part);
      walk<Compute>(k.body, [](Compute& c) { c.annotations = {}; });  // said of the whole
      break;
    }
  }
}

// A buffer of constant size in the arena.
struct Placed {
  BufferId buffer;
  Life life;
  int64_t bytes = 0, offset = 0;
};

int64_t best_gap(std::span<const Placed> placed, const Placed& next) {
  std::vector<std::pair<int64_t, int64_t>> taken;  // begin, end of what is alive at the same time
  for (const Placed& p : placed) {
    if (p.life.meets(next.life)) taken.emplace_back(p.offset, p.offset + p.bytes);
  }
  std::ranges::sort(taken);
  int64_t end = 0, best = -1, best_size = INT64_MAX;
  for (auto [b, e] : taken) {
    int64_t gap = b - end;
    if (gap >= next.bytes && gap < best_size) {
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
      const bool free =
          std::ranges::none_of(p.lives, [&](const Life& other) { return other.meets(life); });
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

void plan_memory(Schedule& s) {
  MemoryPlan& plan = s.memory;
  std::vector<Placed> constant;
  SymbolicPlaces symbolic;
  std::map<BufferId, Life> lives = lifetimes(s);
  const std::map<BufferId, BufferId> predecessor = inheritances(s, lives);
  auto founder = [&](BufferId b) {
    for (auto it = predecessor.find(b); it != predecessor.end(); it = predecessor.find(b))
      b = it->second;
    return b;
  };
  write_changes(s, predecessor);
  lie_in_results(s.program, predecessor);
  for (const auto& [heir, old] : predecessor) {
    Life& whole = lives.at(founder(heir));
    whole.last = std::max(whole.last, lives.at(heir).last);
  }
  for (const auto& [b, life] : lives) {
    const Buffer& buffer = s.program.buffers[b];
    if (buffer.kind != Buffer::Kind::Temp || predecessor.contains(b) || is_late(buffer.type))
      continue;
    Expr bytes = loops::byte_extent(s.program.buffers[b].type);
    if (bytes.is_const())
      constant.push_back({b, life, (bytes.value() + kAlign - 1) / kAlign * kAlign});
    else
      symbolic.add(b, life, bytes);
  }
  // The largest first: small ones fit between them.
  std::ranges::stable_sort(constant, std::greater<>(), &Placed::bytes);
  int64_t end = 0;
  for (size_t i = 0; i < constant.size(); ++i) {
    Placed& next = constant[i];
    plan.offset[next.buffer] = next.offset = best_gap(std::span(constant).first(i), next);
    end = std::max(end, next.offset + next.bytes);
  }
  plan.arena_bytes = symbolic.place(end, plan);
  for (const auto& [heir, old] : predecessor)
    if (s.program.buffers[heir].kind == Buffer::Kind::Temp)
      plan.offset[heir] = plan.offset.at(founder(heir));
}

void insert_frees(Schedule& s) {
  std::map<size_t, std::vector<BufferId>> after;
  for (const auto& [b, life] : lifetimes(s)) {
    const Buffer& buffer = s.program.buffers[b];
    const bool own = buffer.kind == Buffer::Kind::Extern ||
                     (buffer.kind == Buffer::Kind::Temp && is_late(buffer.type));
    if (own && life.last != SIZE_MAX) after[life.last].push_back(b);
  }
  std::vector<ScheduledStep> steps;
  for (size_t i = 0; i < s.steps.size(); ++i) {
    steps.push_back(std::move(s.steps[i]));
    for (BufferId b : after[i]) steps.push_back(Free{b});
  }
  s.steps = std::move(steps);
}

}  // namespace oxy::schedule
