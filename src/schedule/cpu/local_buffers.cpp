// Decides which buffers become values or local memory.
#include "schedule/cpu/local_buffers.h"

#include <algorithm>
#include <map>

#include "schedule/cost.h"

namespace oxy::schedule {

namespace {

struct Place {
  size_t phase = 0;
  Nest* nest = nullptr;
  Inst* inst = nullptr;
};

struct Traffic {
  std::vector<Place> stores, loads;
};

// At least as many as there are at any iteration; 0 where that is not known.
Expr upper(Expr size) {
  const int64_t most = sym::range_of(size).hi;
  if (most != INT64_MAX) return most;
  return loops::is_size(size) && hinted(size) ? size : Expr(0);
}

// One variable of a private index: its stride in memory and its place in the local buffer.
struct Digit {
  Expr var, stride, local;
  Expr size = 0;
};

struct PrivateIndex {
  bool linear = true;
  std::vector<Digit> digits;
  Expr rest = 0, constant = 0;
};

PrivateIndex private_index(const Place& at, const std::vector<Axis>& parallel) {
  PrivateIndex out;
  out.rest = at.inst->index[0];
  for (const Axis& g : parallel) {
    if (auto l = sym::linear_in(out.rest, g.var)) out.rest = l->second;
  }
  auto l = linear(out.rest, at.nest->axes);
  out.linear = l.has_value();
  if (!l) return out;
  for (auto [var, stride] : l->terms) {
    auto axis = std::find_if(at.nest->axes.begin(), at.nest->axes.end(),
                             [&](const Axis& a) { return a.var == var; });
    out.digits.push_back({var, stride, 0, upper(axis->size)});
  }
  out.constant = l->rest;
  return out;
}

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
    bool in_no_loop = std::all_of(w.nest->axes.begin(), w.nest->axes.end(), [&](const Axis& a) {
      return a.reduction || has_axis(arrangement_.parallel, a.var);
    });
    return std::all_of(t.loads.begin(), t.loads.end(), [&](const Place& r) {
      return r.inst->index[0] == w.inst->index[0] && (r.phase == w.phase || in_no_loop);
    });
  }

  void localise(BufferId buffer, Traffic& t) {
    PrivateIndex w = private_index(t.stores[0], arrangement_.parallel);
    if (!w.linear) return;
    std::ranges::sort(w.digits, std::greater<>(), [](const Digit& d) {
      return std::pair(hinted(d.stride).value_or(INT64_MAX), d.stride);
    });
    Expr elements = 1, span = 1;
    for (size_t k = w.digits.size(); k-- > 0;) {
      Digit& d = w.digits[k];
      if (d.size.is_const(0)) return;
      d.local = elements;
      span = span + d.stride * (d.size - 1);
      elements *= d.size;
    }
    int64_t bytes = *hinted(elements) * ir::byte_size(program_.buffers[buffer].type.dtype);
    if (bytes > left_) return;
    std::vector<Expr> indices;
    bool exact = true;
    for (const Place& r : t.loads) exact &= exact_index(w, r, indices);
    if (!exact) {
      if (span != elements) return;
      indices.clear();
      for (const Place& r : t.loads)
        indices.push_back(private_index(r, arrangement_.parallel).rest - w.constant);
    }
    Expr store = 0;
    for (const Digit& d : w.digits) store = store + d.var * d.local;
    if (!exact) store = private_index(t.stores[0], arrangement_.parallel).rest - w.constant;
    t.stores[0].inst->index = {store};
    for (size_t k = 0; k < indices.size(); ++k) t.loads[k].inst->index = {indices[k]};
    arrangement_.locals.emplace(buffer, elements);
    left_ -= bytes;
  }

  // The local index of a read that walks the writer's axes, each at its own stride.
  bool exact_index(const PrivateIndex& w, const Place& read, std::vector<Expr>& out) const {
    PrivateIndex r = private_index(read, arrangement_.parallel);
    if (!r.linear || !(r.constant == w.constant)) return false;
    Expr index = 0;
    for (const Digit& d : r.digits) {
      auto same = std::find_if(w.digits.begin(), w.digits.end(),
                               [&](const Digit& x) { return x.stride == d.stride; });
      if (same == w.digits.end()) return false;
      index = index + d.var * same->local;
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

void localise_buffers(const loops::Program& p, Arrangement& a, const std::vector<bool>& needed,
                      int64_t cache_bytes) {
  Localiser(p, a, needed, cache_bytes).run();
}

}  // namespace oxy::schedule
