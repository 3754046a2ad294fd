// Shrinks loops to where a store changes something, and divides a kernel by that.
#include <algorithm>
#include <map>
#include <unordered_set>

#include "schedule/cost.h"
#include "schedule/kernel_access.h"
#include "schedule/nest.h"
#include "support/tuning.h"

namespace oxy::schedule {
namespace {

// Statements that the kept stores need, found from the end.
class Sweeper {
 public:
  explicit Sweeper(const Kernel& k) : live_(k.value_count, false), folded_(k.acc_count, false) {}

  void run(Block& block) {
    for (size_t i = block.size(); i-- > 0;) {
      bool keep = std::visit([&](auto& s) { return is_live(s); }, block[i].v);
      if (!keep) block.erase(block.begin() + i);
    }
  }

 private:
  bool is_live(For& f) {
    run(f.body);
    return !f.body.empty();
  }
  bool is_live(const Hint&) const { return true; }
  bool is_live(Compute& c) {
    // A symbol is used by name: few, and cheap.
    if (sets_value(c.op) && c.op != LoopOp::Symbol && !live_[c.value]) return false;
    for (uint32_t a : c.args) live_[a] = true;
    return true;
  }
  bool is_live(Result& r) {
    if (live_[r.value]) folded_[r.acc] = true;
    return live_[r.value];
  }
  bool is_live(Accumulate& a) {
    if (folded_[a.acc]) live_[a.value] = true;
    return folded_[a.acc];
  }
  bool is_live(Init& i) { return folded_[i.acc]; }

  std::vector<bool> live_, folded_;
};

template <class Fn>
void erase_computes(Block& block, const Fn& gone) {
  std::erase_if(block, [&](const Stmt& s) {
    const auto* c = std::get_if<Compute>(&s.v);
    return c && gone(*c);
  });
  for (Stmt& s : block) {
    if (auto* f = std::get_if<For>(&s.v)) erase_computes(f->body, gone);
  }
}

void drop_hints(Block& block) {
  std::erase_if(block, [](const Stmt& s) { return std::holds_alternative<Hint>(s.v); });
  for (Stmt& s : block)
    if (auto* f = std::get_if<For>(&s.v)) drop_hints(f->body);
}

// Puts what a loop of the block does in its place.
void unwrap_loop(Block& block, size_t at) {
  Block body = std::move(std::get<For>(block[at].v).body);
  block.erase(block.begin() + at);
  block.insert(block.begin() + at, std::make_move_iterator(body.begin()),
               std::make_move_iterator(body.end()));
}

// lo <= variable < hi
struct Interval {
  int64_t lo = INT64_MIN, hi = INT64_MAX;
};
using Box = std::map<Expr, Interval>;

// A kernel whose stores stand in one loop, and whose loops shrink to where the stores change
// something.
class Narrower {
 public:
  Narrower(Kernel& k, loops::Variables& variables, uint32_t old)
      : k_(k), variables_(variables), old_(old) {}

  // Of the values stored one after the other: what must hold for each of them, the last one first.
  std::vector<uint32_t> conditions() {
    look();
    std::vector<uint32_t> out;
    if (stores_.size() != 1) return out;
    uint32_t value = stores_[0]->args[0];
    while (const auto chosen = choice(value)) {
      if (std::ranges::find(out, chosen->first) == out.end()) out.push_back(chosen->first);
      value = chosen->second;
    }
    const Compute* c = defined_[value];
    const bool old = c && c->op == LoopOp::Load && c->args.empty() && c->buffer == old_ &&
                     c->index == stores_[0]->index;
    return old ? out : std::vector<uint32_t>();
  }

  // The loops go where this one holds, whatever else does, but where one of `others` alone says
  // where they need not begin or end. False: not known; nothing is left where the body is empty.
  bool run_where(uint32_t condition, std::span<const uint32_t> others) {
    for (;;) {
      look();
      Box box;
      if (gather(condition, box)) {
        if (!shrink(box)) return false;
        break;
      }
      if (!join_tiles(k_.body)) return false;
    }
    for (const uint32_t other : others) leave_out(other);
    fold_comparisons();
    narrow();
    divide_again();
    return true;
  }

  // Stores of what is there go; says whether there were any.
  bool drop_idle_stores() {
    look();
    std::unordered_set<const Compute*> gone;
    for (const Compute* store : stores_)
      if (is_there(*store, store->args[0], {})) gone.insert(store);
    if (gone.empty()) return false;
    erase_computes(k_.body, [&](const Compute& c) { return gone.contains(&c); });
    Sweeper(k_).run(k_.body);
    return true;
  }

  // `changed`: there were more stores.
  bool run(bool changed) {
    changed |= narrow();
    if (changed) divide_again();
    return changed;
  }

 private:
  bool narrow() {
    bool changed = false;
    for (;;) {
      look();
      const std::optional<uint32_t> inside = condition();
      if (!inside) return changed;
      Box box;
      if (!gather(*inside, box)) {
        if (join_tiles(k_.body)) continue;
        return changed;
      }
      if (!shrink(box)) return changed;
      assume(*inside);
      fold_comparisons();
      changed = true;
    }
  }

  void look() {
    defined_.assign(k_.value_count, nullptr);
    stores_.clear();
    loops_.clear();
    diagonal_.reset();
    for_each_compute(k_, [&](const Compute& c, const Path& path) {
      if (c.op == LoopOp::Store) {
        stores_.push_back(&c);
        loops_ = path;
      } else {
        defined_[c.value] = &c;
      }
    });
  }

  // Of a choice or a masked load: the condition and what the value is otherwise.
  std::optional<std::pair<uint32_t, uint32_t>> choice(uint32_t value) const {
    const Compute* c = defined_[value];
    if (c && c->op == LoopOp::Where) return std::pair(c->args[0], c->args[2]);
    if (c && c->op == LoopOp::Load && c->args.size() == 2) return std::pair(c->args[0], c->args[1]);
    return std::nullopt;
  }

  bool is_old(const Compute& store, uint32_t value, uint32_t condition) const {
    const Compute* c = defined_[value];
    if (c && c->op == LoopOp::Load && c->args.empty())
      return c->buffer == old_ && c->index == store.index;
    auto other = choice(value);
    return other && other->first == condition && is_old(store, other->second, condition);
  }

  // The old value, whatever is chosen. `held`: conditions that hold.
  bool is_there(const Compute& store, uint32_t value, std::vector<uint32_t> held) const {
    const Compute* c = defined_[value];
    if (!c) return false;
    if (c->op == LoopOp::Load)
      return c->buffer == old_ && is_zero(c->index - store.index, held) &&
             (c->args.empty() || holds(c->args[0], held) || is_there(store, c->args[1], held));
    if (c->op != LoopOp::Where || !is_there(store, c->args[2], held)) return false;
    held.push_back(c->args[0]);
    return is_there(store, c->args[1], std::move(held));
  }

  bool holds(uint32_t condition, std::span<const uint32_t> held) const {
    const Compute* c = defined_[condition];
    return std::ranges::find(held, condition) != held.end() ||
           (c && c->op == LoopOp::And && holds(c->args[0], held) && holds(c->args[1], held));
  }

  // Whether a difference is 0 where these hold: it is a multiple of another that is.
  bool is_zero(Expr difference, std::span<const uint32_t> held) const {
    if (difference.is_const()) return difference.is_const(0);
    return std::ranges::any_of(held, [&](uint32_t v) {
      const Compute* c = defined_[v];
      if (c && c->op == LoopOp::And) return is_zero(difference, c->args);
      if (!c || c->op != LoopOp::Eq) return false;
      const auto a = number(c->args[0]), b = number(c->args[1]);
      if (!a || !b) return false;
      return std::ranges::any_of(loops_, [&](const For* f) {
        const auto zero = sym::linear_in(*a - *b, f->var),
                   other = sym::linear_in(difference, f->var);
        if (!zero || !other || !zero->first.is_const() || !other->first.is_const() ||
            zero->first.is_const(0) || other->first.value() % zero->first.value() != 0)
          return false;
        const int64_t times = other->first.value() / zero->first.value();
        return (difference - (*a - *b) * times).is_const(0);
      });
    });
  }

  // What must hold where the stored values are not the old ones.
  std::optional<uint32_t> condition() const {
    const auto chosen = choice(stores_[0]->args[0]);
    if (!chosen) return std::nullopt;
    for (const Compute* store : stores_) {
      const auto its = choice(store->args[0]);
      if (!its || its->first != chosen->first || !is_old(*store, its->second, its->first))
        return std::nullopt;
    }
    return chosen->first;
  }

  std::optional<Expr> number(uint32_t value) const {
    const Compute* c = defined_[value];
    if (c && c->op == LoopOp::Index) return c->index;
    if (c && c->op == LoopOp::Const && ir::is_integral(c->dtype, false)) return Expr(c->integer);
    return std::nullopt;
  }

  // A conjunction of bounds of single loop variables, or that two go together.
  bool gather(uint32_t condition, Box& box) {
    const Compute* c = defined_[condition];
    if (!c) return false;
    if (c->op == LoopOp::And) return gather(c->args[0], box) && gather(c->args[1], box);
    if (c->args.size() != 2) return false;
    auto a = number(c->args[0]), b = number(c->args[1]);
    if (!a || !b) return false;
    for (const For* f : loops_) {
      auto split = sym::linear_in(*a - *b, f->var);
      if (!split || !split->first.is_const(1) || !split->second.is_const()) continue;
      return bound(c->op, -split->second.value(), box[f->var]);
    }
    return c->op == LoopOp::Eq && !diagonal_ && find_diagonal(*a - *b);
  }

  // A difference of two loop variables that is 0: of the inner loop only one iteration is left.
  bool find_diagonal(Expr difference) {
    for (size_t i = loops_.size(); i-- > 0;) {
      const auto along = sym::linear_in(difference, loops_[i]->var);
      if (!along || !(along->first.is_const(1) || along->first.is_const(-1))) continue;
      const Expr place = along->first.is_const(1) ? -along->second : along->second;
      for (size_t o = 0; o < i; ++o) {
        const auto by_outer = sym::linear_in(place, loops_[o]->var);
        if (!by_outer || !by_outer->first.is_const(1) || !by_outer->second.is_const()) continue;
        diagonal_ = {loops_[o], loops_[i], by_outer->second.value()};
        return true;
      }
    }
    return false;
  }

  // The outer loop's interval where the inner one has such an iteration.
  bool shrink_to_diagonal(Box& box) const {
    const auto& [outer, inner, shift] = *diagonal_;
    if (!outer->size.is_const() || !inner->size.is_const() || !inner->annotations.empty())
      return false;
    Interval of_inner{0, inner->size.value()};
    if (const auto it = box.find(inner->var); it != box.end()) {
      of_inner = {std::max(of_inner.lo, it->second.lo), std::min(of_inner.hi, it->second.hi)};
      box.erase(it);
    }
    Interval& i = box[outer->var];
    i = {std::max(i.lo, of_inner.lo - shift), std::min(i.hi, of_inner.hi - shift)};
    return true;
  }

  // A loop over tiles and the one inside of it, as one, where all that they do goes by their place
  // in the whole. One of vectors is not for several threads then.
  bool join_tiles(Block& block) {
    for (Stmt& s : block) {
      auto* outer = std::get_if<For>(&s.v);
      if (!outer) continue;
      if (join_tiles(outer->body)) return true;
      if (std::ranges::count_if(outer->body, is_loop) != 1) continue;
      const auto at = std::ranges::find_if(outer->body, is_loop);
      For inner = std::get<For>(at->v);
      const auto tile = outer->annotations.empty() && inner.annotations.empty()
                            ? tile_of(*outer, inner)
                            : std::nullopt;
      if (!tile) continue;
      bool joint = true;
      walk<Compute>(outer->body, [&](const Compute& c) {
        joint &= walks_as_one(c.index, outer->var, inner.var, tile->first);
      });
      if (!joint) continue;
      loops::VariableScope scope(variables_);
      walk<For>(k_.body, [&](const For& f) { scope.take(f.var); });
      const Expr whole = scope.get('p', tile->second), old = outer->var;
      if (inner.kind == ForKind::Vector)
        joined_ = Joined{whole, old, inner.var, tile->first, outer->kind};
      outer->kind = inner.kind == ForKind::Vector ? ForKind::Vector : outer->kind;
      outer->var = whole;
      outer->size = tile->second;
      Block body = std::move(inner.body);
      outer->body.insert(outer->body.erase(at), std::make_move_iterator(body.begin()),
                         std::make_move_iterator(body.end()));
      walk<Compute>(outer->body, [&](Compute& c) {
        c.index = replace(c.index, {{old, 0}, {inner.var, whole}});
      });
      return true;
    }
    return false;
  }
  static bool is_loop(const Stmt& s) { return std::holds_alternative<For>(s.v); }

  // Vectors that several threads went through are tiles again, where they are more than one.
  void divide_again() {
    if (!joined_) return;
    walk<For>(k_.body, [&](For& f) {
      if (f.var != joined_->var || count_of(f.size) <= joined_->tile) return;
      const Expr begin = joined_->tile * joined_->outer;
      const Expr within = joined_->inner;
      For inner{
          ForKind::Vector, within, sym::min(joined_->tile, f.size - begin), {}, std::move(f.body)};
      walk<Compute>(inner.body,
                    [&](Compute& c) { c.index = replace(c.index, {{f.var, within + begin}}); });
      f = For{joined_->kind, joined_->outer, sym::ceildiv(f.size, joined_->tile), {}, {}};
      f.body.push_back(Stmt{std::move(inner)});
    });
  }

  // variable op at
  static bool bound(LoopOp op, int64_t at, Interval& i) {
    bool from = op == LoopOp::Ge || op == LoopOp::Eq, after = op == LoopOp::Gt;
    bool to = op == LoopOp::Le || op == LoopOp::Eq, before = op == LoopOp::Lt;
    if (from || after) i.lo = std::max(i.lo, after ? at + 1 : at);
    if (to || before) i.hi = std::min(i.hi, to ? at + 1 : at);
    return from || after || to || before;
  }

  bool shrink(Box& box) {
    if (diagonal_ && !shrink_to_diagonal(box)) return false;
    for (const For* f : loops_) {
      if (!f->annotations.empty()) return false;
      auto it = box.find(f->var);
      if (it == box.end()) continue;
      Interval& i = it->second;
      const int64_t least = sym::range_of(f->size).lo;  // as long as it is at any time
      if (!f->size.is_const() && i.hi > least) return false;
      i = {std::max<int64_t>(i.lo, 0), std::min(i.hi, f->size.is_const() ? f->size.value() : i.hi)};
      if (i.lo >= i.hi) return false;
    }
    if (diagonal_)
      move_loop(k_.body, diagonal_->inner->var, diagonal_->outer->var + diagonal_->shift, 1);
    for (const auto& [var, to] : box) {
      const int64_t steps = to.hi - to.lo;
      move_loop(k_.body, var, steps == 1 ? Expr(to.lo) : var + to.lo, steps);
    }
    return true;
  }

  // The loops do not go where a bound of one of them holds at its begin or end.
  void leave_out(uint32_t condition) {
    look();
    Box box;
    if (!gather(condition, box) || diagonal_ || box.size() != 1) return;
    const auto [var, at] = *box.begin();
    const auto loop = std::ranges::find(loops_, var, [](const For* f) { return f->var; });
    if (!(*loop)->size.is_const() || !(*loop)->annotations.empty()) return;
    const int64_t size = (*loop)->size.value();
    if (at.lo <= 0 && 0 < at.hi && at.hi < size)
      move_loop(k_.body, var, var + at.hi, size - at.hi);
    else if (at.hi >= size && 0 < at.lo && at.lo < size)
      move_loop(k_.body, var, var, at.lo);
  }

  // The least and the largest value of a sum of loop variables.
  std::optional<Interval> range_of(Expr e, const Path& path) const {
    Interval out{0, 0};
    for (const For* f : path) {
      const auto along = sym::linear_in(e, f->var);
      if (along && along->first.is_const(0)) continue;
      if (!along || !along->first.is_const() || !f->size.is_const()) return std::nullopt;
      const int64_t reach = along->first.value() * (f->size.value() - 1);
      (reach < 0 ? out.lo : out.hi) += reach;
      e = along->second;
    }
    if (!e.is_const()) return std::nullopt;
    return Interval{out.lo + e.value(), out.hi + e.value()};
  }

  // What a comparison comes to at all iterations.
  std::optional<bool> compared(const Compute& c, const Path& path) const {
    if (c.args.size() != 2) return std::nullopt;
    const auto a = number(c.args[0]), b = number(c.args[1]);
    const auto gap = a && b ? range_of(*a - *b, path) : std::nullopt;  // both ends included
    if (!gap) return std::nullopt;
    return schedule::compared(c.op, gap->lo, gap->hi);
  }

  // Comparisons that are so at all iterations, and what is chosen by them.
  void fold_comparisons() {
    look();
    std::map<uint32_t, bool> known;
    std::map<uint32_t, uint32_t> same;
    const auto is = [&](uint32_t v, bool b) {
      const auto it = known.find(v);
      return it != known.end() && it->second == b;
    };
    for_each_compute(k_, [&](const Compute& c, const Path& path) {
      if (const auto holds = compared(c, path)) known[c.value] = *holds;
    });
    walk<Compute>(k_.body, [&](Compute& c) {
      for (uint32_t& a : c.args)
        if (const auto it = same.find(a); it != same.end()) a = it->second;
      if (c.dtype == DType::B8 && (c.op == LoopOp::And || c.op == LoopOp::Or)) {
        const bool decides = c.op == LoopOp::Or;
        if (is(c.args[0], decides) || is(c.args[1], decides))
          known[c.value] = decides;
        else if (is(c.args[0], !decides) || is(c.args[1], !decides))
          same[c.value] = c.args[is(c.args[0], !decides) ? 1 : 0];
      } else if (c.op == LoopOp::Where || (c.op == LoopOp::Load && c.args.size() == 2)) {
        const bool loads = c.op == LoopOp::Load;
        if (is(c.args[0], false))
          same[c.value] = c.args[loads ? 1 : 2];
        else if (is(c.args[0], true) && !loads)
          same[c.value] = c.args[1];
        else if (is(c.args[0], true))
          c.args.clear();
      }
    });
    Sweeper(k_).run(k_.body);
  }

  // The loop of this variable goes so many steps, and is at `place` then; of one step nothing is
  // left but what it does.
  static void move_loop(Block& block, Expr var, Expr place, int64_t steps) {
    for (size_t i = 0; i < block.size(); ++i) {
      auto* f = std::get_if<For>(&block[i].v);
      if (!f) continue;
      if (f->var != var) {
        move_loop(f->body, var, place, steps);
        continue;
      }
      walk<Compute>(f->body, [&](Compute& c) { c.index = replace(c.index, {{var, place}}); });
      f->size = steps;
      if (steps == 1) return unwrap_loop(block, i);
    }
  }

  // The condition holds wherever the loops still go.
  void assume(uint32_t condition) {
    std::map<uint32_t, uint32_t> same;
    walk<Compute>(k_.body, [&](Compute& c) {
      for (uint32_t& a : c.args) {
        if (auto it = same.find(a); it != same.end()) a = it->second;
      }
      if (c.args.empty() || c.args[0] != condition) return;
      if (c.op == LoopOp::Where) same[c.value] = c.args[1];
      if (c.op == LoopOp::Load) c.args.clear();
    });
    Sweeper(k_).run(k_.body);
  }

  Kernel& k_;
  loops::Variables& variables_;
  uint32_t old_;
  // The inner variable is the outer one and so much.
  struct Diagonal {
    const For *outer = nullptr, *inner = nullptr;
    int64_t shift = 0;
  };

  std::vector<const Compute*> stores_;
  Path loops_;
  std::optional<Diagonal> diagonal_;
  // A loop of vectors that was one over tiles and one of `tile` iterations.
  struct Joined {
    Expr var, outer, inner;
    int64_t tile = 0;
    ForKind kind = ForKind::Parallel;
  };
  std::optional<Joined> joined_;
  std::vector<const Compute*> defined_;
};

// Loops that folded something in the whole kernel, and no longer do.
bool forget_folds(Block& block) {
  bool any = false;
  for (Stmt& s : block) {
    any |= std::holds_alternative<Accumulate>(s.v);
    auto* f = std::get_if<For>(&s.v);
    if (!f) continue;
    const bool inside = forget_folds(f->body);
    any |= inside;
    if (!inside && f->kind == ForKind::Reduce) f->kind = ForKind::Serial;
    if (!inside && f->kind == ForKind::VectorReduce) f->kind = ForKind::Vector;
  }
  return any;
}

Kernel with_stores(const Kernel& k, const std::function<bool(const Compute&)>& wanted) {
  Kernel out = k;
  erase_computes(out.body, [&](const Compute& c) { return c.op == LoopOp::Store && !wanted(c); });
  Sweeper(out).run(out.body);
  forget_folds(out.body);
  return out;
}

bool uses(const Block& block, Expr var) {
  bool found = false;
  walk<For>(block, [&](const For& f) { found |= sym::contains(f.size, var); });
  walk<Compute>(block, [&](const Compute& c) { found |= sym::contains(c.index, var); });
  return found;
}

// Loops that do the same each time do it once.
void drop_idle_loops(Block& block) {
  for (size_t i = 0; i < block.size(); ++i) {
    auto* f = std::get_if<For>(&block[i].v);
    if (!f) continue;
    drop_idle_loops(f->body);
    if (!uses(f->body, f->var) && f->size.is_const() && !f->size.is_const(0)) unwrap_loop(block, i);
  }
}

}  // namespace

void tidy(Kernel& k) {
  std::vector<bool> loaded(k.buffers.size(), false), stored(k.buffers.size(), false);
  walk<Compute>(k.body, [&](const Compute& c) {
    if (!touches_memory(c.op)) return;
    if (c.op != LoopOp::Store) loaded[c.buffer] = true;
    if (c.op != LoopOp::Load) stored[c.buffer] = true;
  });
  std::vector<uint32_t> place(k.buffers.size());
  std::vector<KernelBuffer> kept;
  for (size_t b = 0; b < k.buffers.size(); ++b) {
    place[b] = static_cast<uint32_t>(kept.size());
    if (!loaded[b] && !stored[b]) continue;
    kept.push_back(std::move(k.buffers[b]));
    if (kept.back().is_local()) continue;
    kept.back().kind = !stored[b]  ? KernelBuffer::Kind::Read
                       : loaded[b] ? KernelBuffer::Kind::ReadWrite
                                   : KernelBuffer::Kind::Write;
  }
  k.buffers = std::move(kept);
  walk<Compute>(k.body, [&](Compute& c) {
    if (touches_memory(c.op)) c.buffer = place[c.buffer];
  });
  k.cost = iteration_cost(k);
}

std::optional<Kernel> checks_of(const Kernel& k) {
  if (!has_check(k)) return std::nullopt;
  Kernel out = with_stores(k, [](const Compute&) { return false; });
  out.name = cat(k.name, "_check");
  drop_idle_loops(out.body);
  tidy(out);
  return out;
}

void drop_checks(Kernel& k) {
  erase_computes(k.body, [](const Compute& c) { return c.op == LoopOp::Check; });
}

std::optional<Kernel> without_stores(const Kernel& k, uint32_t written) {
  Kernel out = with_stores(k, [&](const Compute& c) { return c.buffer != written; });
  if (out.body.empty()) return std::nullopt;
  tidy(out);
  return out;
}

namespace {

// A kernel for each loop that stores.
std::vector<Kernel> by_loop(const Kernel& k) {
  std::vector<std::pair<Path, std::vector<size_t>>> loops;  // and the numbers of their stores
  size_t stores = 0;
  for_each_compute(k, [&](const Compute& c, const Path& path) {
    if (c.op != LoopOp::Store) return;
    auto it = std::ranges::find(loops, path, &std::pair<Path, std::vector<size_t>>::first);
    if (it == loops.end()) it = loops.insert(it, {path, {}});
    it->second.push_back(stores++);
  });
  if (loops.size() == 1) return {k};
  std::vector<Kernel> out;
  for (const auto& [path, kept] : loops) {
    Kernel& one = out.emplace_back(k);
    std::unordered_set<const Compute*> gone;
    size_t number = 0;
    for_each_compute(one, [&](const Compute& c, const Path&) {
      if (c.op == LoopOp::Store && std::ranges::count(kept, number++) == 0) gone.insert(&c);
    });
    erase_computes(one.body, [&](const Compute& c) { return gone.contains(&c); });
    Sweeper(one).run(one.body);
  }
  return out;
}

// Parts for conditions, each of which stores its last value wherever its condition holds. The last
// condition decides, where several hold.
bool add_parts(const Kernel& whole, loops::Variables& variables, uint32_t old,
               std::vector<Kernel>& parts) {
  Kernel copy = whole;
  const std::vector<uint32_t> conditions = Narrower(copy, variables, old).conditions();
  if (conditions.size() < 2 || conditions.size() > tuning::most_changed_parts) return false;
  for (size_t i = 0; i < conditions.size(); ++i) {
    parts.push_back(whole);
    const std::span others = std::span(conditions).first(i);
    if (!Narrower(parts.back(), variables, old).run_where(conditions[i], others)) return false;
  }
  return true;
}

// Which parts read what one in front of them has written.
std::vector<bool> readers_of_written(const std::vector<Kernel>& parts, uint32_t old) {
  std::vector<std::optional<Places>> stored;
  std::vector<bool> out;
  for (const Kernel& part : parts) {
    bool apart = true;
    for_each_compute(part, [&](const Compute& c, const Path& path) {
      if (c.op != LoopOp::Load || c.buffer != old) return;
      const auto read = places_of(c.index, path);
      for (const auto& other : stored) apart &= never_meet(read, other);
    });
    out.push_back(!apart);
    for_each_compute(part, [&](const Compute& c, const Path& path) {
      if (c.op == LoopOp::Store) stored.push_back(places_of(c.index, path));
    });
  }
  return out;
}

// In the order in which the fewest do.
void order(ChangedPart& changed, uint32_t old) {
  changed.reads_written = readers_of_written(changed.parts, old);
  std::vector<Kernel> reversed(changed.parts.rbegin(), changed.parts.rend());
  std::vector<bool> readers = readers_of_written(reversed, old);
  if (std::ranges::count(readers, true) >= std::ranges::count(changed.reads_written, true)) return;
  changed.parts = std::move(reversed);
  changed.reads_written = std::move(readers);
}

}  // namespace

std::optional<ChangedPart> changed_part(const Kernel& k, loops::Variables& variables, uint32_t old,
                                        uint32_t written) {
  if (std::ranges::any_of(k.buffers, &KernelBuffer::is_local) || has_check(k) ||
      k.buffers[written].kind != KernelBuffer::Kind::Write ||
      k.buffers[old].kind != KernelBuffer::Kind::Read)
    return std::nullopt;
  bool others = false, adds = false, folds = false;
  walk<Compute>(k.body, [&](const Compute& c) {
    others |= c.op == LoopOp::Store && c.buffer != written;
    adds |= c.op == LoopOp::StoreAdd;
  });
  if (adds) return std::nullopt;
  Kernel part = with_stores(k, [&](const Compute& c) { return c.buffer == written; });
  drop_hints(part.body);  // of the whole
  walk<Stmt>(part.body, [&](const Stmt& s) {
    folds |= !std::holds_alternative<For>(s.v) && !std::holds_alternative<Compute>(s.v);
  });
  if (folds) return std::nullopt;
  const bool fewer = Narrower(part, variables, old).drop_idle_stores();
  ChangedPart out;
  const std::vector<Kernel> loops = by_loop(part);
  for (const Kernel& loop : loops) {
    Kernel one = loop;
    if (Narrower(one, variables, old).run(fewer))
      out.parts.push_back(std::move(one));
    else if (!add_parts(loop, variables, old, out.parts))
      return std::nullopt;
    if (out.parts.size() > tuning::most_changed_parts) return std::nullopt;
  }
  if (out.parts.empty()) return std::nullopt;
  order(out, old);
  for (Kernel& p : out.parts) {
    tidy(p);
    if (others || out.parts.size() > 1) p.name = cat(k.name, "_part");
  }
  if (others) out.rest = without_stores(k, written);
  return out;
}

namespace {

// Loads in front of the store what it stores.
bool load_stored(Block& block, uint32_t written, const Compute& load) {
  for (size_t i = 0; i < block.size(); ++i) {
    if (auto* f = std::get_if<For>(&block[i].v)) {
      if (load_stored(f->body, written, load)) return true;
      continue;
    }
    auto* c = std::get_if<Compute>(&block[i].v);
    if (!c || c->op != LoopOp::Store || c->buffer != written) continue;
    c->args = {load.value};
    block.insert(block.begin() + static_cast<std::ptrdiff_t>(i), Stmt{load});
    return true;
  }
  return false;
}

std::pair<Expr, std::optional<Places>> place_of_store(const Kernel& k, uint32_t written) {
  std::pair<Expr, std::optional<Places>> out;
  for_each_compute(k, [&](const Compute& c, const Path& path) {
    if (c.op == LoopOp::Store && c.buffer == written) out = {c.index, places_of(c.index, path)};
  });
  return out;
}

}  // namespace

std::optional<int64_t> extent_of_store(const Kernel& k, uint32_t written) {
  const auto places = place_of_store(k, written).second;
  if (!places || store_count(k, written) != 1) return std::nullopt;
  int64_t extent = 1;
  for (const Places::Term& t : places->terms) extent += t.stride * (t.count - 1);
  return extent;
}

std::pair<Kernel, Kernel> stage(const Kernel& k, uint32_t written, const KernelBuffer& buffer) {
  const auto [index, places] = place_of_store(k, written);
  const Expr place = index - places->first;
  std::pair<Kernel, Kernel> out{k, k};
  auto& [compute, copy] = out;
  compute.buffers[written] = buffer;
  compute.buffers[written].kind = KernelBuffer::Kind::Write;
  walk<Compute>(compute.body, [&](Compute& c) {
    if (c.op == LoopOp::Store && c.buffer == written) c.index = place, c.annotations = {};
  });
  const Compute load{.value = copy.value_count++,
                     .op = LoopOp::Load,
                     .dtype = buffer.dtype,
                     .buffer = static_cast<uint32_t>(copy.buffers.size()),
                     .index = place};
  copy.buffers.push_back(buffer);
  load_stored(copy.body, written, load);
  Sweeper(copy).run(copy.body);
  copy.name += "_write";
  tidy(compute);
  tidy(copy);
  return out;
}

}  // namespace oxy::schedule
