// Joins nests with equal private axes and orders the phases by what they read.
#include "schedule/cpu/phases.h"

#include <algorithm>
#include <set>

#include "schedule/split_reductions.h"

namespace oxy::schedule {

namespace {

using VarSet = std::set<Expr>;

struct Slot {
  VarSet axes, folded;
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
  s.reduces = find_reduce(n) != nullptr;
  return s;
}

bool fits(const Slot& phase, const Slot& nest) {
  if (phase.axes != nest.axes) return false;
  return !phase.reduces || !nest.reduces || phase.folded == nest.folded;
}

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

}  // namespace oxy::schedule
