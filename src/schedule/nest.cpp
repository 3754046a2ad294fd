// Flattens loops to offsets in memory, and splits axes where indices ask for it.
#include "schedule/nest.h"

#include <algorithm>
#include <unordered_set>

namespace oxy::schedule {

using sym::Kind;

Expr replace(Expr e, const Substitution& subst) {
  if (e.is_const() || subst.empty()) return e;
  return sym::substitute(e, [&](Expr s) {
    for (const auto& [from, to] : subst) {
      if (from == s) return to;
    }
    return s;
  });
}

void replace(Nest& n, const Substitution& subst) {
  if (subst.empty()) return;
  for (Inst& i : n.body) {
    for (Expr& e : i.index) e = replace(e, subst);
  }
}

void split_axis(Nest& n, size_t at, Expr outer_var, Expr inner_var, int64_t inner) {
  Axis old = n.axes[at];
  replace(n, {{old.var, outer_var * inner + inner_var}});
  n.axes[at] = {outer_var, sym::floordiv(old.size, inner), old.reduction};
  n.axes.insert(n.axes.begin() + at + 1, {inner_var, inner, old.reduction});
}

std::optional<Expr> coefficient(Expr index, Expr var) {
  if (index.is_const() || !sym::contains(index, var)) return Expr(0);
  auto l = sym::linear_in(index, var);
  if (!l) return std::nullopt;
  return l->first;
}

std::optional<Linear> linear(Expr index, const std::vector<Axis>& axes) {
  Linear out;
  out.rest = index;
  for (const Axis& a : axes) {
    if (out.rest.is_const()) break;
    if (!sym::contains(out.rest, a.var)) continue;
    auto l = sym::linear_in(out.rest, a.var);
    if (!l) return std::nullopt;
    if (!l->first.is_const(0)) out.terms.emplace_back(a.var, l->first);
    out.rest = l->second;
  }
  return out;
}

namespace {

// A split that an expression asks for: variable // k or variable % k with k dividing the axis.
struct Wanted {
  Expr var;
  int64_t k;
};

class SplitFinder {
 public:
  explicit SplitFinder(const Nest& n) : nest_(n) {}

  std::optional<Wanted> find() {
    for (const Inst& i : nest_.body) {
      if (i.op == LoopOp::Check || i.op == LoopOp::Symbol) continue;
      for (Expr e : i.index) {
        if (auto w = visit(e)) return w;
      }
    }
    return std::nullopt;
  }

 private:
  std::optional<Wanted> visit(Expr e) {
    if (e.is_const() || e.kind() == Kind::Symbol || !seen_.insert(e).second) return std::nullopt;
    for (Expr o : e.operands()) {
      if (auto w = visit(o)) return w;
    }
    if (e.kind() != Kind::FloorDiv && e.kind() != Kind::Mod) return std::nullopt;
    Expr k = e.operands()[1];
    if (!k.is_const()) return std::nullopt;
    std::vector<Expr> symbols;
    sym::collect_symbols(e.operands()[0], symbols);
    for (Expr s : symbols) {
      if (auto w = wanted(e.operands()[0], s, k.value())) return w;
    }
    return std::nullopt;
  }

  // (c*v + rest) // k or % k: splitting v at k/c frees the part that k decides, whatever the rest
  // is.
  std::optional<Wanted> wanted(Expr dividend, Expr var, int64_t k) {
    auto axis = std::find_if(nest_.axes.begin(), nest_.axes.end(),
                             [&](const Axis& a) { return a.var == var; });
    if (axis == nest_.axes.end() || !axis->size.is_const()) return std::nullopt;
    auto l = sym::linear_in(dividend, var);
    if (!l || !l->first.is_const() || l->first.value() <= 0 || k % l->first.value() != 0)
      return std::nullopt;
    int64_t at = k / l->first.value();
    if (at <= 1 || at >= axis->size.value() || axis->size.value() % at != 0) return std::nullopt;
    return Wanted{var, at};
  }

  const Nest& nest_;
  std::unordered_set<Expr> seen_;
};

class Splitter {
 public:
  Splitter(Nest& n, loops::Variables& all) : nest_(n), scope_(all) {
    for (const Axis& a : n.axes) scope_.take(a.var);
  }

  void run() {
    for (int round = 0; round < 16; ++round) {
      auto w = SplitFinder(nest_).find();
      if (!w) return;
      size_t at = 0;
      while (!(nest_.axes[at].var == w->var)) ++at;
      const Axis& a = nest_.axes[at];
      char prefix = a.reduction ? 'r' : 'p';
      Expr outer = scope_.get(prefix, sym::floordiv(a.size, w->k));
      Expr inner = scope_.get(prefix, w->k);
      split_axis(nest_, at, outer, inner, w->k);
    }
  }

 private:
  Nest& nest_;
  loops::VariableScope scope_;
};

// What an ArgMax or ArgMin gives: the place among the folded elements, row by row.
void set_positions(Nest& n) {
  Expr position = 0;
  for (const Axis& a : n.axes) {
    if (a.reduction) position = position * a.size + a.var;
  }
  for (Inst& i : n.body) {
    bool arg = i.op == LoopOp::Reduce &&
               (i.reduce == ops::ReduceKind::ArgMax || i.reduce == ops::ReduceKind::ArgMin);
    if (arg) i.index = {position};
  }
}

}  // namespace

bool has_axis(const std::vector<Axis>& axes, Expr var) {
  return std::ranges::any_of(axes, [&](const Axis& a) { return a.var == var; });
}

Nest flatten(const loops::Program& p, const loops::Loop& l) {
  Nest n;
  n.name = l.name;
  n.origins = l.origins;
  n.body = l.body;
  Substitution ones;
  for (const Axis& a : l.axes) {
    if (a.size.is_const(1))
      ones.emplace_back(a.var, 0);
    else
      n.axes.push_back(a);
  }
  for (Inst& i : n.body) {
    if (!touches_memory(i.op)) continue;
    i.index = {flat_offset(p.buffers[i.buffer], i.index)};
    i.buffer = memory_of(p, i.buffer);
  }
  set_positions(n);
  replace(n, ones);
  Splitter(n, *p.variables).run();
  return n;
}

}  // namespace oxy::schedule
