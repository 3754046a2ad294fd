// Flattens loops to offsets in memory, splits axes where indices ask for it, joins those that are
// walked as one; what folds are made of.
#include "schedule/nest.h"

#include <algorithm>
#include <limits>
#include <unordered_map>
#include <unordered_set>

#include "schedule/cost.h"
#include "support/check.h"

namespace oxy::schedule {

Group group_of(Nest n) {
  Group g;
  if (!find_inst(n, LoopOp::StoreAdd))
    std::ranges::copy_if(n.axes, std::back_inserter(g.parallel), std::logical_not<>(),
                         &Axis::reduction);
  g.nests.push_back(std::move(n));
  return g;
}

const Inst* find_inst(const Nest& n, LoopOp op) {
  const auto at = std::ranges::find(n.body, op, &Inst::op);
  return at != n.body.end() ? &*at : nullptr;
}

size_t place_of(const std::vector<Axis>& axes, Expr var) {
  return static_cast<size_t>(std::ranges::find(axes, var, &Axis::var) - axes.begin());
}

bool has_axis(const std::vector<Axis>& axes, Expr var) { return place_of(axes, var) < axes.size(); }

bool is_reduction_axis(const Nest& n, Expr var) {
  const size_t at = place_of(n.axes, var);
  return at < n.axes.size() && n.axes[at].reduction;
}

// Whether an index depends on the axis, also through indices that are loaded.
static bool depends(const Nest& n, Expr index, Expr axis) {
  if (sym::contains(index, axis)) return true;
  auto loaded = [&](const Inst& symbol) {
    std::vector<uint32_t> open = symbol.args;
    while (!open.empty()) {
      const Inst& i = n.body[open.back()];
      open.pop_back();
      open.insert(open.end(), i.args.begin(), i.args.end());
      if (std::ranges::any_of(i.index, [&](Expr e) { return depends(n, e, axis); })) return true;
    }
    return false;
  };
  return std::ranges::any_of(n.body, [&](const Inst& i) {
    return i.op == LoopOp::Symbol && sym::contains(index, i.index[0]) && loaded(i);
  });
}

Expr contiguous_axis(const Nest& n) {
  constexpr int64_t kMostVotes = int64_t{1} << 31;
  const bool reduces = find_inst(n, LoopOp::Reduce);
  const LoopOp voter = reduces ? LoopOp::Load : LoopOp::Store;
  const int64_t farthest = reduces ? 8 : 1;  // elements apart that share lines
  Expr best = 0;
  int64_t most = 0;
  for (const Axis& a : n.axes) {
    int64_t votes = 0;
    for (const Inst& i : n.body) {
      if (i.op != voter) continue;
      auto c = coefficient(i.index[0], a.var);
      if (!c || !c->is_const() || c->value() < 1 || c->value() > farthest) continue;
      // As many votes as elements, so that small operands do not decide; a size that is not known
      // counts as 1024.
      int64_t elements = 1;
      for (const Axis& b : n.axes)
        if (elements < kMostVotes && depends(n, i.index[0], b.var))
          elements *= hinted(b.size).value_or(1024);
      votes += std::max<int64_t>(std::min(elements, kMostVotes) / c->value(), 1);
    }
    if (votes > most) {
      most = votes;
      best = a.var;
    }
  }
  return best;
}

Expr replace(Expr e, const Substitution& subst) {
  if (e.is_const() || subst.empty()) return e;
  return sym::substitute(e, [&](Expr s) {
    const auto at = std::ranges::find(subst, s, &std::pair<Expr, Expr>::first);
    return at != subst.end() ? at->second : s;
  });
}

void replace(Nest& n, const Substitution& subst) {
  if (subst.empty()) return;
  for (Inst& i : n.body) {
    for (Expr& e : i.index) e = replace(e, subst);
  }
}

namespace {

class DivisionSimplifier {
 public:
  explicit DivisionSimplifier(const std::vector<Axis>& axes) : axes_(axes) {}

  Expr operator()(Expr e) {
    if (e.is_const() || e.kind() == sym::Kind::Symbol) return e;
    if (const auto it = done_.find(e); it != done_.end()) return it->second;
    const Expr made = simplified(e);
    done_.emplace(e, made);
    return made;
  }

 private:
  Expr simplified(Expr e) {
    const std::span<const Expr> operands = e.operands();
    Expr out = (*this)(operands[0]);
    for (const Expr x : operands.subspan(1)) out = combined(e.kind(), out, (*this)(x));
    return out;
  }

  Expr combined(sym::Kind kind, Expr a, Expr b) const {
    switch (kind) {
      case sym::Kind::FloorDiv:
        return stays_below(a, b) ? Expr(0) : sym::floordiv(a, b);
      case sym::Kind::Mod:
        return stays_below(a, b) ? a : sym::mod(a, b);
      default:
        return sym::combine(kind, a, b);
    }
  }

  // 0 <= e < end at all iterations.
  bool stays_below(Expr e, Expr end) const {
    if (sym::range_of(e).lo < 0) return false;
    for (const Axis& a : axes_) {
      if (!sym::contains(e, a.var) || !loops::is_size(a.size)) continue;
      const auto line = sym::linear_in(e, a.var);
      if (line && sym::range_of(line->first).lo >= 0) e = line->first * (a.size - 1) + line->second;
    }
    return sym::range_of(end - e).lo > 0;
  }

  const std::vector<Axis>& axes_;
  std::unordered_map<Expr, Expr> done_;
};

}  // namespace

void simplify_divisions(Nest& n) {
  const bool varies = std::ranges::any_of(n.axes, [](const Axis& a) { return !a.size.is_const(); });
  if (!varies) return;
  DivisionSimplifier simplify(n.axes);
  for (Inst& i : n.body) {
    if (i.op == LoopOp::Symbol) continue;
    for (Expr& e : i.index) e = simplify(e);
  }
}

void split_axis(std::vector<Axis>& axes, Expr var, Expr outer_var, Expr inner_var, Expr inner) {
  const size_t at = place_of(axes, var);
  if (at == axes.size()) return;
  const Axis old = axes[at];
  axes[at] = {outer_var, sym::floordiv(old.size, inner), old.reduction};
  axes.insert(axes.begin() + at + 1, {inner_var, inner, old.reduction});
}

bool walks_as_one(Expr e, Expr outer, Expr inner, Expr inner_size) {
  if (e.is_const() || (!sym::contains(e, outer) && !sym::contains(e, inner))) return true;
  Expr line = e;
  if (e.kind() != sym::Kind::Symbol && !sym::linear_in(e, inner)) {
    for (const Expr part : e.operands()) {
      if (e.kind() == sym::Kind::Add && sym::linear_in(part, inner)) continue;
      if (!walks_as_one(part, outer, inner, inner_size)) return false;
      line -= part;
    }
    if (e.kind() != sym::Kind::Add) return true;
  }
  const auto co = coefficient(line, outer), ci = coefficient(line, inner);
  return co && ci && *co == *ci * inner_size;
}

bool mergeable(const std::vector<Nest>& nests, Expr outer, Expr inner, Expr inner_size) {
  // Sizes of checks and names of symbols are no places in memory.
  for (const Inst& i : instructions(nests)) {
    if (i.op == LoopOp::Check || i.op == LoopOp::Symbol) continue;
    if (!std::ranges::all_of(i.index,
                             [&](Expr e) { return walks_as_one(e, outer, inner, inner_size); }))
      return false;
  }
  return std::ranges::none_of(
      nests | std::views::transform(&Nest::axes) | std::views::join,
      [&](const Axis& a) { return sym::contains(a.size, outer) || sym::contains(a.size, inner); });
}

void merge_axes(std::vector<Nest>& nests, Expr outer, Expr inner, Expr merged) {
  for (Nest& n : nests) {
    replace(n, {{outer, 0}, {inner, merged}});
    const size_t at = place_of(n.axes, outer);
    if (at == n.axes.size()) continue;
    Expr outer_size = n.axes[at].size;
    n.axes.erase(n.axes.begin() + at);
    for (Axis& a : n.axes) {
      if (a.var == inner) a = {merged, outer_size * a.size, a.reduction};
    }
  }
}

static int64_t stride_of(Expr var, const std::vector<Nest>& nests) {
  int64_t largest = 0;
  for (const Nest& n : nests) {
    const bool reduces = find_inst(n, LoopOp::Reduce);
    for (const Inst& i : n.body) {
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

void sort_by_stride(std::vector<Axis>& axes, const std::vector<Nest>& nests) {
  std::vector<std::pair<int64_t, Axis>> keyed;
  for (const Axis& a : axes) keyed.emplace_back(stride_of(a.var, nests), a);
  std::ranges::stable_sort(keyed, std::greater<>(), [](const auto& k) { return k.first; });
  for (size_t i = 0; i < axes.size(); i++) axes[i] = keyed[i].second;
}

std::optional<Expr> coefficient(Expr index, Expr var) {
  if (index.is_const() || !sym::contains(index, var)) return Expr(0);
  auto l = sym::linear_in(index, var);
  return l ? std::optional(l->first) : std::nullopt;
}

PrivateIndex private_index(const Nest& n, const Inst& i, const std::vector<Axis>& parallel) {
  PrivateIndex out{.rest = i.index[0]};
  for (const Axis& g : parallel) {
    if (auto l = sym::linear_in(out.rest, g.var)) out.rest = l->second;
  }
  out.constant = out.rest;
  for (const Axis& a : n.axes) {
    if (out.constant.is_const()) break;
    if (!sym::contains(out.constant, a.var)) continue;
    auto l = sym::linear_in(out.constant, a.var);
    if (!l) return {.linear = false, .rest = out.rest, .constant = out.rest};
    if (!l->first.is_const(0)) out.digits.push_back({a.var, l->first, a.size});
    out.constant = l->second;
  }
  return out;
}

Pieces cut_axis(loops::VariableScope& scope, Expr size, int64_t piece) {
  const Expr count = sym::ceildiv(size, piece), outer = scope.get('p', count);
  const Expr length =
      sym::divisible(size, piece) ? Expr(piece) : sym::min(piece, size - outer * piece);
  const Expr inner = scope.get('p', length);
  return {{outer, count}, {inner, length}, outer * piece + inner};
}

Expr another_index(loops::VariableScope& scope, Expr old) {
  const int64_t last = sym::range_of(old).hi;
  return scope.get('i', last == INT64_MAX ? old : Expr(last + 1));
}

namespace {

// A split that an expression asks for: variable // k or variable % k with k dividing the axis.
struct Wanted {
  size_t axis;
  Expr k;
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
    if (e.is_const() || e.kind() == sym::Kind::Symbol || !seen_.insert(e).second)
      return std::nullopt;
    for (Expr o : e.operands()) {
      if (auto w = visit(o)) return w;
    }
    if (e.kind() != sym::Kind::FloorDiv && e.kind() != sym::Kind::Mod) return std::nullopt;
    Expr dividend = e.operands()[0], k = e.operands()[1];
    if (!loops::is_size(k)) return std::nullopt;
    for (Expr s : symbols_of(dividend)) {
      if (auto w = wanted(dividend, s, k)) return w;
    }
    return std::nullopt;
  }

  // (c*v + rest) // k or % k: splitting v at k/c frees the part that k decides, whatever the rest
  // is.
  std::optional<Wanted> wanted(Expr dividend, Expr var, Expr k) const {
    const size_t axis = place_of(nest_.axes, var);
    if (axis == nest_.axes.size()) return std::nullopt;
    auto l = sym::linear_in(dividend, var);
    if (!l || !loops::is_size(l->first) || !divides(l->first, k)) return std::nullopt;
    const Expr at = sym::floordiv(k, l->first), size = nest_.axes[axis].size;
    if (at.is_const(1) || at == size || !divides(at, size) || sym::floordiv(size, at).is_const(0))
      return std::nullopt;
    return Wanted{axis, at};
  }

  const Nest& nest_;
  std::unordered_set<Expr> seen_;
};

void split_where_wanted(Nest& n, loops::Variables& all) {
  loops::VariableScope scope(all);
  for (const Axis& a : n.axes) scope.take(a.var);
  for (int round = 0; round < 16; ++round) {
    simplify_divisions(n);
    auto w = SplitFinder(n).find();
    if (!w) return;
    const Axis a = n.axes[w->axis];
    const char prefix = a.reduction ? 'r' : 'p';
    const Expr outer = scope.get(prefix, sym::floordiv(a.size, w->k));
    const Expr inner = scope.get(prefix, w->k);
    replace(n, {{a.var, outer * w->k + inner}});
    split_axis(n.axes, a.var, outer, inner, w->k);
  }
}

// What an ArgMax or ArgMin gives: the place among the folded elements, row by row.
void set_positions(Nest& n) {
  Expr position = 0;
  for (const Axis& a : n.axes) {
    if (a.reduction) position = position * a.size + a.var;
  }
  for (Inst& i : n.body) {
    if (i.op == LoopOp::Reduce && gives_position(i.reduce)) i.index = {position};
  }
}

}  // namespace

Nest flatten(const loops::Program& p, const loops::Loop& l) {
  Nest n{l.name, {}, l.body, l.origins, {}};
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
  split_where_wanted(n, *p.variables);
  return n;
}

LoopOp fold_of(ReduceKind kind, DType dtype) {
  const bool b8 = dtype == DType::B8;
  switch (kind) {
    case ReduceKind::Sum:
      return b8 ? LoopOp::Or : LoopOp::Add;
    case ReduceKind::Prod:
      return b8 ? LoopOp::And : LoopOp::Mul;
    case ReduceKind::Max:
      return b8 ? LoopOp::Or : LoopOp::Max;
    case ReduceKind::Min:
      return b8 ? LoopOp::And : LoopOp::Min;
    case ReduceKind::Any:
      return LoopOp::Or;
    case ReduceKind::All:
      return LoopOp::And;
    case ReduceKind::LogSumExp:
      return LoopOp::LogAddExp;
    default:
      OXY_FAIL("no fold of two values for ", ops::name(kind));
  }
}

Inst identity_of(ReduceKind kind, DType dtype) {
  Inst c{.op = LoopOp::Const, .dtype = dtype};
  bool one = kind == ReduceKind::Prod || kind == ReduceKind::All;
  bool low = kind == ReduceKind::Max || kind == ReduceKind::LogSumExp;
  bool extreme = low || kind == ReduceKind::Min;
  if (ir::is_floating(dtype)) {
    double inf = std::numeric_limits<double>::infinity();
    c.number = extreme ? (low ? -inf : inf) : one;
  } else if (!extreme || dtype == DType::B8) {
    c.integer = one || kind == ReduceKind::Min;
  } else {
    const bool is_unsigned = ir::name(dtype)[0] == 'u';
    const uint64_t all = UINT64_MAX >> (64 - ir::byte_size(dtype) * 8);
    const auto top = static_cast<int64_t>(is_unsigned ? all : all / 2);
    c.integer = low ? (is_unsigned ? 0 : -top - 1) : top;
  }
  return c;
}

}  // namespace oxy::schedule
