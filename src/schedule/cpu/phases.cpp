// What one parallel iteration does: joins nests with equal private axes to phases, orders them by
// what they read, and decides which buffers become values or local memory.
#include <algorithm>
#include <map>
#include <set>

#include "schedule/cost.h"
#include "schedule/cpu/arrange_loops.h"

namespace oxy::schedule {

namespace {

struct Slot {
  std::set<Expr> axes, folded;
  bool reduces = false;
};

struct Written {
  size_t phase = 0;
  Expr index = 0;
  bool complete_at_once = true;  // not the result of a reduction
};

Slot slot_of(const Nest& n, const std::vector<Axis>& parallel) {
  Slot s;
  for (const Axis& a : n.axes) {
    if (has_axis(parallel, a.var)) continue;
    s.axes.insert(a.var);
    if (a.reduction) s.folded.insert(a.var);
  }
  s.reduces = find_inst(n, LoopOp::Reduce);
  return s;
}

bool fits(const Slot& phase, const Slot& nest) {
  if (phase.axes != nest.axes) return false;
  return !phase.reduces || !nest.reduces || phase.folded == nest.folded;
}

struct Place {
  size_t phase = 0;
  Nest* nest = nullptr;
  Inst* inst = nullptr;
};

struct Traffic {
  std::vector<Place> stores, loads;
};

class Localiser {
 public:
  Localiser(const loops::Program& p, Arrangement& a, const std::vector<bool>& needed,
            int64_t cache_bytes)
      : program_(p), arrangement_(a), needed_(needed), left_(cache_bytes) {}

  void run() {
    for (size_t k = 0; k < arrangement_.phases.size(); ++k) {
      for (Nest& n : arrangement_.phases[k].nests) {
        for (Inst& i : n.body) {
          if (i.op == LoopOp::Store) traffic_[i.buffer].stores.push_back({k, &n, &i});
          if (i.op == LoopOp::Load) traffic_[i.buffer].loads.push_back({k, &n, &i});
        }
      }
    }
    for (auto& [buffer, t] : traffic_) {
      if (t.stores.size() != 1 || arrangement_.locals.contains(buffer) || needed_[buffer.index])
        continue;
      if (!forwarded(t)) localise(buffer, t);
    }
  }

 private:
  // Every load sees the stored value itself.
  bool forwarded(const Traffic& t) const {
    const Place& w = t.stores[0];
    const bool anywhere = in_no_loop(*w.nest, arrangement_.parallel);
    return std::ranges::all_of(t.loads, [&](const Place& r) {
      return r.inst->index[0] == w.inst->index[0] && (r.phase == w.phase || anywhere);
    });
  }

  PrivateIndex index_of(const Place& at) const {
    return private_index(*at.nest, *at.inst, arrangement_.parallel);
  }

  void localise(BufferId buffer, Traffic& t) {
    PrivateIndex w = index_of(t.stores[0]);
    if (!w.linear) return;
    std::ranges::sort(w.digits, std::greater<>(), [](const Digit& d) {
      return std::pair(hinted(d.stride).value_or(INT64_MAX), d.stride);
    });
    Expr elements = 1, span = 1, store = 0;
    std::vector<Expr> places(w.digits.size());  // by digit: its stride in the local buffer
    for (size_t k = w.digits.size(); k-- > 0;) {
      const Digit& d = w.digits[k];
      const Expr size = most_iterations(d.size);
      if (size.is_const(0)) return;
      places[k] = elements;
      store += d.var * elements;
      span += d.stride * (size - 1);
      elements *= size;
    }
    int64_t bytes = *hinted(elements) * ir::byte_size(program_.buffers[buffer].type.dtype);
    if (bytes > left_) return;
    std::vector<Expr> indices;
    bool exact = true;
    for (const Place& r : t.loads) exact &= exact_index(w, places, r, indices);
    if (!exact) {
      if (span != elements) return;
      indices.clear();
      for (const Place& r : t.loads) indices.push_back(index_of(r).rest - w.constant);
      store = w.rest - w.constant;
    }
    t.stores[0].inst->index = {store};
    for (size_t k = 0; k < indices.size(); ++k) t.loads[k].inst->index = {indices[k]};
    arrangement_.locals.emplace(buffer, elements);
    left_ -= bytes;
  }

  // The local index of a read that walks the writer's axes, each at its own stride.
  bool exact_index(const PrivateIndex& w, const std::vector<Expr>& places, const Place& read,
                   std::vector<Expr>& out) const {
    PrivateIndex r = index_of(read);
    if (!r.linear || r.constant != w.constant) return false;
    Expr index = 0;
    for (const Digit& d : r.digits) {
      const auto same = std::ranges::find(w.digits, d.stride, &Digit::stride);
      if (same == w.digits.end()) return false;
      index += d.var * places[same - w.digits.begin()];
    }
    out.push_back(index);
    return true;
  }

  const loops::Program& program_;
  Arrangement& arrangement_;
  const std::vector<bool>& needed_;
  int64_t left_;
  std::map<BufferId, Traffic> traffic_;
};

}  // namespace

std::vector<Phase> make_phases(std::vector<Nest> nests, const std::vector<Axis>& parallel) {
  std::vector<Phase> phases;
  std::vector<Slot> slots;
  std::unordered_map<BufferId, Written> written;
  for (Nest& n : nests) {
    Slot slot = slot_of(n, parallel);
    size_t first = 0;
    for (const Inst& i : n.body) {
      if (i.op != LoopOp::Load) continue;
      auto it = written.find(i.buffer);
      if (it == written.end()) continue;
      const Written& w = it->second;
      bool at_once = w.complete_at_once && w.index == i.index[0] && fits(slots[w.phase], slot);
      first = std::max(first, w.phase + !at_once);
    }
    size_t at = first;
    while (at < phases.size() && !fits(slots[at], slot)) ++at;
    if (at == phases.size()) {
      phases.emplace_back();
      slots.push_back(slot);
    }
    slots[at].reduces |= slot.reduces;
    slots[at].folded.insert(slot.folded.begin(), slot.folded.end());
    for (const Inst& i : n.body) {
      if (i.op == LoopOp::Store) written[i.buffer] = {at, i.index[0], !slot.reduces};
    }
    phases[at].nests.push_back(std::move(n));
  }
  return phases;
}

void localise_buffers(const loops::Program& p, Arrangement& a, const std::vector<bool>& needed,
                      int64_t cache_bytes) {
  Localiser(p, a, needed, cache_bytes).run();
}

}  // namespace oxy::schedule
