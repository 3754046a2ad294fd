// Matches axes by their strides in shared memory, splits them where it must, checks dependences.
#include <algorithm>
#include <unordered_set>

#include "schedule/nest.h"

namespace oxy::schedule {

namespace {

struct Access {
  const Nest* nest;
  const Inst* inst;
};

// Loads or stores of each buffer, in order.
using AccessMap = std::unordered_map<BufferId, std::vector<Access>>;

bool is_access(const Inst& i, bool store) {
  return touches_memory(i.op) && (i.op != LoopOp::Load) == store;
}

AccessMap accesses(const Group& g, bool stores) {
  AccessMap out;
  for (const Nest& n : g.nests) {
    for (const Inst& i : n.body) {
      if (is_access(i, stores)) out[i.buffer].push_back({&n, &i});
    }
  }
  return out;
}

// Pairs of accesses to one buffer, dependences first, then shared reads; until f is true.
template <class Fn>
bool any_pair(const Group& a, const Group& b, bool shared_reads, Fn&& f) {
  AccessMap a_stores = accesses(a, true), a_loads = accesses(a, false);
  auto match = [&](const AccessMap& of_a, bool b_stores) {
    for (const Nest& n : b.nests) {
      for (const Inst& i : n.body) {
        auto it = is_access(i, b_stores) ? of_a.find(i.buffer) : of_a.end();
        if (it == of_a.end()) continue;
        for (const Access& x : it->second) {
          if (f(*x.nest, *x.inst, n, i)) return true;
        }
      }
    }
    return false;
  };
  return match(a_stores, false) || match(a_loads, true) || (shared_reads && match(a_loads, false));
}

std::vector<Digit> digits(const Nest& n, const Inst& i) { return private_index(n, i, {}).digits; }

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
  void split(Group& g, Expr var, Expr inner);
  void match_by_memory();
  void match_by_size();
  void rename();
  void rename_loaded_indices(Substitution& subst);
  void bind(Expr from, Expr to) {
    to_a_.emplace(from, to);
    taken_.insert(to);
  }

  loops::Program& program_;
  Group &a_, &b_;
  std::unordered_map<Expr, Expr> to_a_;
  std::unordered_set<Expr> taken_;
};

std::vector<Axis> all_axes(const Group& g) {
  std::vector<Axis> out;
  for (const Nest& n : g.nests) {
    for (const Axis& x : n.axes) {
      if (!has_axis(out, x.var)) out.push_back(x);
    }
  }
  return out;
}

void Aligner::split(Group& g, Expr var, Expr inner) {
  const std::vector<Axis> all = all_axes(g);
  loops::VariableScope scope(*program_.variables);
  for (const Axis& x : all) scope.take(x.var);
  const Expr outer_var = scope.get('p', sym::floordiv(all[place_of(all, var)].size, inner));
  const Expr inner_var = scope.get('p', inner);
  for (Nest& n : g.nests) {
    replace(n, {{var, outer_var * inner + inner_var}});
    split_axis(n.axes, var, outer_var, inner_var, inner);
    simplify_divisions(n);
  }
  split_axis(g.parallel, var, outer_var, inner_var, inner);
}

// A digit (stride s, size n) of `coarse` is two digits (s, m) and (s*m, n/m) of `fine`: split it
// there.
bool Aligner::split_against(const std::vector<Digit>& coarse, const std::vector<Digit>& fine,
                            Group& g) {
  for (const Digit& c : coarse) {
    for (const Digit& f : fine) {
      if (f.stride != c.stride) continue;
      const Expr m = f.size, n = c.size;
      if (m.is_const(0) || m.is_const(1) || m == n || !divides(m, n)) continue;
      if (std::ranges::find(fine, f.stride * m, &Digit::stride) == fine.end()) continue;
      split(g, c.var, m);
      return true;
    }
  }
  return false;
}

bool Aligner::split_once() {
  return any_pair(a_, b_, false,
                  [&](const Nest& na, const Inst& ia, const Nest& nb, const Inst& ib) {
                    std::vector<Digit> da = digits(na, ia), db = digits(nb, ib);
                    return split_against(da, db, a_) || split_against(db, da, b_);
                  });
}

void Aligner::match_by_memory() {
  any_pair(a_, b_, true, [&](const Nest& na, const Inst& ia, const Nest& nb, const Inst& ib) {
    std::vector<Digit> da = digits(na, ia);
    for (const Digit& d : digits(nb, ib)) {
      if (to_a_.contains(d.var)) continue;
      const auto same = std::ranges::find_if(da, [&](const Digit& e) {
        return !taken_.contains(e.var) && e.stride == d.stride && e.size == d.size;
      });
      if (same != da.end()) bind(d.var, same->var);
    }
    return false;
  });
}

void Aligner::match_by_size() {
  std::vector<Axis> of_a = all_axes(a_);
  for (const Axis& x : all_axes(b_)) {
    if (to_a_.contains(x.var)) continue;
    const auto same = std::ranges::find_if(
        of_a, [&](const Axis& y) { return !taken_.contains(y.var) && x.size == y.size; });
    if (same != of_a.end()) bind(x.var, same->var);
  }
}

// Symbols bound to loaded integers are names of one nest: no two nests of a group may share one.
void Aligner::rename_loaded_indices(Substitution& subst) {
  auto symbols = [](const Group& g) {
    std::vector<Expr> out;
    for (const Inst& i : instructions(g.nests)) {
      if (i.op == LoopOp::Symbol) out.push_back(i.index[0]);
    }
    return out;
  };
  const std::vector<Expr> in_a = symbols(a_), in_b = symbols(b_);
  const std::unordered_set<Expr> of_a(in_a.begin(), in_a.end());
  std::unordered_set<Expr> taken = of_a;
  taken.insert(in_b.begin(), in_b.end());
  loops::VariableScope scope(*program_.variables);
  for (Expr s : in_b) {
    if (!of_a.contains(s)) continue;
    Expr to = s;
    while (!taken.insert(to).second) to = another_index(scope, s);
    subst.emplace_back(s, to);
  }
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
    if (to != x.var) subst.emplace_back(x.var, to);
  }
  rename_loaded_indices(subst);
  if (subst.empty()) return;
  auto rename_list = [&](std::vector<Axis>& axes) {
    for (Axis& x : axes) x = {replace(x.var, subst), replace(x.size, subst), x.reduction};
  };
  for (Nest& n : b_.nests) {
    replace(n, subst);
    rename_list(n.axes);
  }
  rename_list(b_.parallel);
}

// Whether the private parts of a read stay within what the writer's store wrote at the same
// iteration.
bool reads_own_iteration(const PrivateIndex& write, const PrivateIndex& read, const Inst& store,
                         const std::vector<Axis>& parallel) {
  bool exact = read.constant == write.constant;
  std::vector<Digit> left = write.digits;
  for (const Digit& d : read.digits) {
    const auto same = std::ranges::find_if(left, [&](const Digit& w) {
      return w.stride == d.stride && (w.size == d.size || sym::known_less(d.size, w.size) == true);
    });
    exact &= same != left.end();
    if (same != left.end()) left.erase(same);
  }
  if (exact) return true;
  // The writer's private elements of one iteration are one block, and the iterations' blocks do not
  // overlap.
  Expr span = 1, elements = 1;
  for (const Digit& w : write.digits) {
    span += w.stride * (w.size - 1);
    elements *= w.size;
  }
  if (!span.is_const() || span != elements) return false;
  for (const Axis& g : parallel) {
    auto c = coefficient(store.index[0], g.var);
    if (!c || !c->is_const() || c->value() < span.value()) return false;
  }
  sym::Range r = sym::range_of(read.rest - write.constant);
  return r.lo >= 0 && r.hi < span.value();
}

}  // namespace

void align_groups(loops::Program& p, Group& a, Group& b) { Aligner(p, a, b).run(); }

std::optional<std::vector<Axis>> common_parallel_axes(const Group& a, const Group& b) {
  std::vector<Axis> common;
  for (const Axis& x : a.parallel) {
    auto keeps = [&](const Nest& n) {
      return has_axis(n.axes, x.var) && !is_reduction_axis(n, x.var);
    };
    if (has_axis(b.parallel, x.var) && std::ranges::all_of(a.nests, keeps) &&
        std::ranges::all_of(b.nests, keeps))
      common.push_back(x);
  }
  any_pair(a, b, false, [&](const Nest&, const Inst& ia, const Nest&, const Inst& ib) {
    std::erase_if(common, [&](const Axis& g) {
      auto ca = coefficient(ia.index[0], g.var), cb = coefficient(ib.index[0], g.var);
      return !ca || ca != cb;
    });
    return false;
  });
  const bool bad =
      any_pair(a, b, false, [&](const Nest& na, const Inst& ia, const Nest& nb, const Inst& ib) {
        const PrivateIndex pa = private_index(na, ia, common), pb = private_index(nb, ib, common);
        return ia.op != LoopOp::Load ? !reads_own_iteration(pa, pb, ia, common)
                                     : !reads_own_iteration(pb, pa, ib, common);
      });
  return bad ? std::nullopt : std::optional(std::move(common));
}

bool share_reads(const Group& a, const Group& b) {
  const AccessMap loads = accesses(a, false);
  return std::ranges::any_of(instructions(b.nests), [&](const Inst& i) {
    auto it = i.op == LoopOp::Load ? loads.find(i.buffer) : loads.end();
    return it != loads.end() && std::ranges::any_of(it->second, [&](const Access& x) {
             return x.inst->index[0] == i.index[0];
           });
  });
}

}  // namespace oxy::schedule
