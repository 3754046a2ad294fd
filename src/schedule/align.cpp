// Matches axes by their strides in shared memory, splits them where it must, checks dependences.
#include "schedule/align.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "support/check.h"

namespace oxy::schedule {

namespace {

struct Access {
  const Nest* nest;
  const Inst* inst;
};

// Loads and stores of each buffer, in order.
using AccessMap = std::unordered_map<BufferId, std::vector<Access>>;

AccessMap accesses(const Group& g, bool stores) {
  AccessMap out;
  for (const Nest& n : g.nests) {
    for (const Inst& i : n.body) {
      if (touches_memory(i.op) && (i.op != LoopOp::Load) == stores) {
        out[i.buffer].push_back({&n, &i});
      }
    }
  }
  return out;
}

const Axis& axis_of(const Nest& n, Expr var) {
  auto it = std::find_if(n.axes.begin(), n.axes.end(), [&](const Axis& a) { return a.var == var; });
  OXY_CHECK(it != n.axes.end(), "no axis ", var);
  return *it;
}

// Pairs of accesses to one buffer, dependences first, then shared reads.
template <class Fn>
bool for_each_pair(const Group& a, const Group& b, bool shared_reads, Fn&& f) {
  AccessMap a_stores = accesses(a, true), a_loads = accesses(a, false);
  auto match = [&](const AccessMap& of_a, bool b_stores) {
    for (const Nest& n : b.nests) {
      for (const Inst& i : n.body) {
        if (!touches_memory(i.op) || (i.op != LoopOp::Load) != b_stores) continue;
        auto it = of_a.find(i.buffer);
        if (it == of_a.end()) continue;
        for (const Access& x : it->second) {
          if (f(*x.nest, *x.inst, n, i)) return true;
        }
      }
    }
    return false;
  };
  if (match(a_stores, false) || match(a_loads, true)) return true;
  return shared_reads && match(a_loads, false);
}

struct Digit {
  Expr var, stride, size;
};

std::vector<Digit> digits(const Nest& n, const Inst& i) {
  std::vector<Digit> out;
  auto l = linear(i.index[0], n.axes);
  if (!l) return out;
  for (auto [var, stride] : l->terms) out.push_back({var, stride, axis_of(n, var).size});
  return out;
}

class Aligner {
 public:
  Aligner(loops::Program& p, Group& a, Group& b) : program_(p), a_(a), b_(b) {}

  void run() {
    for (int round = 0; round < 8 && split_once(); ++round) {}
    match_by_memory();
    match_by_size();
    rename();
  }

 private:
  bool split_once();
  bool split_against(const std::vector<Digit>& coarse, const std::vector<Digit>& fine, Group& g);
  void split(Group& g, Expr var, int64_t inner);
  void match_by_memory();
  void match_by_size();
  void rename();
  void rename_loaded_indices(Substitution& subst);
  void bind(Expr from, Expr to) {
    to_a_.emplace(from, to);
    taken_.insert(to);
  }
  std::vector<Axis> all_axes(const Group& g) const;

  loops::Program& program_;
  Group &a_, &b_;
  std::unordered_map<Expr, Expr> to_a_;
  std::unordered_set<Expr> taken_;
};

std::vector<Axis> Aligner::all_axes(const Group& g) const {
  std::vector<Axis> out;
  std::unordered_set<Expr> seen;
  for (const Nest& n : g.nests) {
    for (const Axis& x : n.axes) {
      if (seen.insert(x.var).second) out.push_back(x);
    }
  }
  return out;
}

void Aligner::split(Group& g, Expr var, int64_t inner) {
  loops::VariableScope scope(*program_.variables);
  for (const Axis& x : all_axes(g)) scope.take(x.var);
  Expr outer_var = 0, inner_var = 0;
  auto split_list = [&](std::vector<Axis>& axes) {
    for (size_t k = 0; k < axes.size(); ++k) {
      if (!(axes[k].var == var)) continue;
      Axis old = axes[k];
      axes[k] = {outer_var, sym::floordiv(old.size, inner), old.reduction};
      axes.insert(axes.begin() + k + 1, {inner_var, inner, old.reduction});
      return;
    }
  };
  for (Nest& n : g.nests) {
    if (!has_axis(n.axes, var)) continue;
    if (outer_var.is_const()) {
      outer_var = scope.get('p', sym::floordiv(axis_of(n, var).size, inner));
      inner_var = scope.get('p', inner);
    }
    size_t at = 0;
    while (!(n.axes[at].var == var)) ++at;
    split_axis(n, at, outer_var, inner_var, inner);
  }
  split_list(g.parallel);
}

// A digit (stride s, size n) of `coarse` is two digits (s, m) and (s*m, n/m) of `fine`: split it
// there.
bool Aligner::split_against(const std::vector<Digit>& coarse, const std::vector<Digit>& fine,
                            Group& g) {
  for (const Digit& c : coarse) {
    if (!c.size.is_const()) continue;
    for (const Digit& f : fine) {
      if (!(f.stride == c.stride) || !f.size.is_const()) continue;
      int64_t m = f.size.value(), n = c.size.value();
      if (m <= 1 || m >= n || n % m != 0) continue;
      bool next = std::any_of(fine.begin(), fine.end(),
                              [&](const Digit& d) { return d.stride == f.stride * m; });
      if (!next) continue;
      split(g, c.var, m);
      return true;
    }
  }
  return false;
}

bool Aligner::split_once() {
  return for_each_pair(a_, b_, false,
                       [&](const Nest& na, const Inst& ia, const Nest& nb, const Inst& ib) {
                         std::vector<Digit> da = digits(na, ia), db = digits(nb, ib);
                         return split_against(da, db, a_) || split_against(db, da, b_);
                       });
}

void Aligner::match_by_memory() {
  for_each_pair(a_, b_, true, [&](const Nest& na, const Inst& ia, const Nest& nb, const Inst& ib) {
    std::vector<Digit> da = digits(na, ia);
    for (const Digit& d : digits(nb, ib)) {
      if (to_a_.contains(d.var)) continue;
      for (const Digit& e : da) {
        if (taken_.contains(e.var) || !(e.stride == d.stride) || !(e.size == d.size)) continue;
        bind(d.var, e.var);
        break;
      }
    }
    return false;
  });
}

void Aligner::match_by_size() {
  std::vector<Axis> of_a = all_axes(a_);
  for (const Axis& x : all_axes(b_)) {
    if (to_a_.contains(x.var)) continue;
    for (const Axis& y : of_a) {
      if (taken_.contains(y.var) || !(x.size == y.size)) continue;
      bind(x.var, y.var);
      break;
    }
  }
}

// Symbols bound to loaded integers are names of one nest: no two nests of a group may share one.
void Aligner::rename_loaded_indices(Substitution& subst) {
  std::unordered_set<Expr> taken;
  auto symbols = [](const Group& g, auto&& f) {
    for (const Nest& n : g.nests) {
      for (const Inst& i : n.body) {
        if (i.op == LoopOp::Symbol) f(i.index[0]);
      }
    }
  };
  symbols(a_, [&](Expr s) { taken.insert(s); });
  if (taken.empty()) return;
  std::unordered_set<Expr> of_a = taken;
  symbols(b_, [&](Expr s) { taken.insert(s); });
  loops::VariableScope scope(*program_.variables);
  symbols(b_, [&](Expr s) {
    if (!of_a.contains(s)) return;
    int64_t last = sym::range_of(s).hi;
    Expr to = s;
    while (!taken.insert(to).second) to = scope.get('i', last == INT64_MAX ? s : Expr(last + 1));
    subst.emplace_back(s, to);
  });
}

void Aligner::rename() {
  std::unordered_set<Expr> used;
  for (const Axis& x : all_axes(a_)) used.insert(x.var);
  loops::VariableScope scope(*program_.variables);
  Substitution subst;
  for (const Axis& x : all_axes(b_)) {
    auto it = to_a_.find(x.var);
    Expr to = it != to_a_.end() ? it->second : x.var;
    while (it == to_a_.end() && !used.insert(to).second)
      to = scope.get(x.reduction ? 'r' : 'p', x.size);
    if (!(to == x.var)) subst.emplace_back(x.var, to);
  }
  rename_loaded_indices(subst);
  if (subst.empty()) return;
  auto rename_list = [&](std::vector<Axis>& axes) {
    for (Axis& x : axes) {
      x.var = replace(x.var, subst);
      x.size = replace(x.size, subst);
    }
  };
  for (Nest& n : b_.nests) {
    replace(n, subst);
    rename_list(n.axes);
  }
  rename_list(b_.parallel);
}

// What an access does besides its parallel axes.
struct Private {
  std::vector<Digit> digits;
  Expr rest = 0;  // all but the parallel axes' terms, digits included
  Expr constant = 0;
};

Private private_part(const Nest& n, const Inst& i, const std::vector<Axis>& parallel) {
  Private out;
  out.rest = i.index[0];
  for (const Axis& g : parallel) {
    if (auto l = sym::linear_in(out.rest, g.var)) out.rest = l->second;
  }
  auto l = linear(out.rest, n.axes);
  if (!l) {
    out.constant = out.rest;
    return out;
  }
  for (auto [var, stride] : l->terms) out.digits.push_back({var, stride, axis_of(n, var).size});
  out.constant = l->rest;
  return out;
}

// Whether the private parts of a read stay within what the writer wrote at the same iteration.
bool reads_own_iteration(const Private& write, const Private& read, const Nest& writer,
                         const Inst& store, const std::vector<Axis>& parallel) {
  bool exact = read.constant == write.constant;
  std::vector<bool> used(write.digits.size(), false);
  for (const Digit& d : read.digits) {
    bool found = false;
    for (size_t k = 0; k < write.digits.size() && !found; ++k) {
      const Digit& w = write.digits[k];
      bool fits = w.size == d.size || sym::known_less(d.size, w.size).value_or(false);
      if (used[k] || !(w.stride == d.stride) || !fits) continue;
      used[k] = found = true;
    }
    exact &= found;
  }
  if (exact) return true;
  // The writer's private elements of one iteration are one block, and the iterations' blocks do not
  // overlap.
  Expr span = 1;
  for (const Digit& w : write.digits) span = span + w.stride * (w.size - 1);
  if (!span.is_const()) return false;
  int64_t elements = 1;
  for (const Digit& w : write.digits) {
    if (!w.size.is_const()) return false;
    elements *= w.size.value();
  }
  if (elements != span.value()) return false;
  for (const Axis& g : parallel) {
    auto c = coefficient(store.index[0], g.var);
    if (!c || !c->is_const() || c->value() < span.value()) return false;
    OXY_CHECK(has_axis(writer.axes, g.var), "parallel axis ", g.var);
  }
  sym::Range r = sym::range_of(read.rest - write.constant);
  return r.lo >= 0 && r.hi < span.value();
}

bool is_common_axis(const Group& a, const Group& b, Expr var) {
  auto in_all = [&](const Group& g) {
    return std::all_of(g.nests.begin(), g.nests.end(), [&](const Nest& n) {
      return std::any_of(n.axes.begin(), n.axes.end(),
                         [&](const Axis& x) { return x.var == var && !x.reduction; });
    });
  };
  return in_all(a) && in_all(b);
}

}  // namespace

void align_groups(loops::Program& p, Group& a, Group& b) { Aligner(p, a, b).run(); }

std::optional<std::vector<Axis>> common_parallel_axes(const Group& a, const Group& b,
                                                      std::string& why) {
  std::vector<Axis> common;
  for (const Axis& x : a.parallel) {
    if (has_axis(b.parallel, x.var) && is_common_axis(a, b, x.var)) common.push_back(x);
  }
  for_each_pair(a, b, false, [&](const Nest&, const Inst& ia, const Nest&, const Inst& ib) {
    std::erase_if(common, [&](const Axis& g) {
      auto ca = coefficient(ia.index[0], g.var), cb = coefficient(ib.index[0], g.var);
      return !ca || !cb || !(*ca == *cb);
    });
    return false;
  });
  bool bad = for_each_pair(
      a, b, false, [&](const Nest& na, const Inst& ia, const Nest& nb, const Inst& ib) {
        bool a_writes = ia.op != LoopOp::Load;
        Private pa = private_part(na, ia, common), pb = private_part(nb, ib, common);
        return a_writes ? !reads_own_iteration(pa, pb, na, ia, common)
                        : !reads_own_iteration(pb, pa, nb, ib, common);
      });
  if (bad) {
    why = "an element is read at another iteration than where it is written";
    return std::nullopt;
  }
  return common;
}

bool share_reads(const Group& a, const Group& b) {
  AccessMap loads = accesses(a, false);
  for (const Nest& n : b.nests) {
    for (const Inst& i : n.body) {
      if (i.op != LoopOp::Load) continue;
      auto it = loads.find(i.buffer);
      if (it == loads.end()) continue;
      for (const Access& x : it->second) {
        if (x.inst->index[0] == i.index[0]) return true;
      }
    }
  }
  return false;
}

}  // namespace oxy::schedule
