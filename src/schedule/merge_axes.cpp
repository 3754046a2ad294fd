// Joins axes that are walked as one, and sorts the rest by stride.
#include "schedule/merge_axes.h"

#include <algorithm>

#include "schedule/cost.h"
#include "schedule/split_reductions.h"

namespace oxy::schedule {

namespace {

// Sizes of checks and names of symbols are no places in memory.
bool has_place(const Inst& i) {
  return !i.index.empty() && i.op != LoopOp::Check && i.op != LoopOp::Symbol;
}

int64_t stride_of(Expr var, const std::vector<Nest*>& nests) {
  int64_t largest = 0;
  for (const Nest* n : nests) {
    bool reduces = find_reduce(*n) != nullptr;
    for (const Inst& i : n->body) {
      if (i.op != (reduces ? LoopOp::Load : LoopOp::Store)) continue;
      auto c = coefficient(i.index[0], var);
      if (!c) continue;
      int64_t value = std::abs(hinted(*c).value_or(INT64_MAX));
      largest = std::max(largest, value);
      if (!reduces && value > 0) return value;
    }
  }
  return largest;
}

}  // namespace

bool mergeable(const std::vector<Nest*>& nests, Expr outer, Expr inner, Expr inner_size) {
  for (const Nest* n : nests) {
    for (const Inst& i : n->body) {
      if (!has_place(i)) continue;
      for (Expr e : i.index) {
        auto co = coefficient(e, outer), ci = coefficient(e, inner);
        if (!co || !ci || !(*co == *ci * inner_size)) return false;
      }
    }
    for (const Axis& a : n->axes) {
      if (sym::contains(a.size, outer) || sym::contains(a.size, inner)) return false;
    }
  }
  return true;
}

void merge_axes(const std::vector<Nest*>& nests, Expr outer, Expr inner, Expr merged) {
  for (Nest* n : nests) {
    replace(*n, {{outer, 0}, {inner, merged}});
    auto at =
        std::find_if(n->axes.begin(), n->axes.end(), [&](const Axis& a) { return a.var == outer; });
    if (at == n->axes.end()) continue;
    Expr outer_size = at->size;
    n->axes.erase(at);
    for (Axis& a : n->axes) {
      if (a.var == inner) a = {merged, outer_size * a.size, a.reduction};
    }
  }
}

void sort_by_stride(std::vector<Axis>& axes, const std::vector<Nest*>& nests) {
  std::vector<std::pair<int64_t, Axis>> keyed;
  for (const Axis& a : axes) keyed.emplace_back(stride_of(a.var, nests), a);
  // The sort keeps the order of equal strides; the lists are short.
  for (size_t i = 1; i < keyed.size(); ++i) {
    for (size_t j = i; j > 0 && keyed[j - 1].first < keyed[j].first; --j)
      std::swap(keyed[j - 1], keyed[j]);
  }
  for (size_t i = 0; i < axes.size(); ++i) axes[i] = keyed[i].second;
}

}  // namespace oxy::schedule
