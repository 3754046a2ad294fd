// Shrinks loops to where a store changes something, and divides a kernel by that.
#include "schedule/changed_part.h"

#include <algorithm>
#include <map>

#include "schedule/cost.h"
#include "schedule/kernel_access.h"

namespace oxy::schedule {
namespace {

bool is_memory(LoopOp op) {
  return op == LoopOp::Load || op == LoopOp::Store || op == LoopOp::StoreAdd;
}

// Statements that the kept stores need, found from the end.
class Sweeper {
 public:
  explicit Sweeper(const Kernel& k) : live_(k.value_count, false), folded_(k.acc_count, false) {}

  void run(Block& block) {
    for (size_t i = block.size(); i-- > 0;) {
      bool keep = std::visit([&](auto& s) { return is_live(s); }, block[i].v);
      if (!keep) block.erase(block.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }

 private:
  bool is_live(For& f) {
    run(f.body);
    return !f.body.empty();
  }
  bool is_live(const Hint&) const { return true; }
  bool is_live(Compute& c) {
    bool effect = c.op == LoopOp::Store || c.op == LoopOp::StoreAdd || c.op == LoopOp::Check;
    // A symbol is used by name: few, and cheap.
    if (!effect && c.op != LoopOp::Symbol && !live_[c.value]) return false;
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
void for_each_statement(Block& block, const Fn& f) {
  for (Stmt& s : block) {
    if (auto* c = std::get_if<Compute>(&s.v)) f(*c);
    if (auto* loop = std::get_if<For>(&s.v)) for_each_statement(loop->body, f);
  }
}

// Entries that nothing touches any more go; the others say anew how they are used.
void tidy_buffers(Kernel& k) {
  std::vector<bool> loaded(k.buffers.size(), false), stored(k.buffers.size(), false);
  for_each_statement(k.body, [&](const Compute& c) {
    if (!is_memory(c.op)) return;
    if (c.op != LoopOp::Store) loaded[c.buffer] = true;
    if (c.op != LoopOp::Load) stored[c.buffer] = true;
  });
  std::vector<uint32_t> place(k.buffers.size());
  std::vector<KernelBuffer> kept;
  for (size_t b = 0; b < k.buffers.size(); ++b) {
    place[b] = static_cast<uint32_t>(kept.size());
    if (!loaded[b] && !stored[b]) continue;
    kept.push_back(std::move(k.buffers[b]));
    if (kept.back().kind == KernelBuffer::Kind::Local) continue;
    kept.back().kind = !stored[b]  ? KernelBuffer::Kind::Read
                       : loaded[b] ? KernelBuffer::Kind::ReadWrite
                                   : KernelBuffer::Kind::Write;
  }
  k.buffers = std::move(kept);
  for_each_statement(k.body, [&](Compute& c) {
    if (is_memory(c.op)) c.buffer = place[c.buffer];
  });
}

void erase_stores(Block& block, const std::function<bool(const Compute&)>& wanted) {
  std::erase_if(block, [&](const Stmt& s) {
    const auto* c = std::get_if<Compute>(&s.v);
    return c && c->op == LoopOp::Store && !wanted(*c);
  });
  for (Stmt& s : block) {
    if (auto* f = std::get_if<For>(&s.v)) erase_stores(f->body, wanted);
  }
}

bool folds(const Block& block) {
  return std::any_of(block.begin(), block.end(), [](const Stmt& s) {
    const auto* f = std::get_if<For>(&s.v);
    return f ? folds(f->body) : !std::holds_alternative<Compute>(s.v);
  });
}

// lo <= variable < hi
struct Interval {
  int64_t lo = INT64_MIN, hi = INT64_MAX;
};
using Box = std::map<Expr, Interval>;

// A kernel with a single store, whose loops shrink to where the store changes something.
class Narrower {
 public:
  Narrower(Kernel& k, uint32_t old) : k_(k), old_(old) {}

  bool run() {
    bool changed = false;
    for (;;) {
      look();
      std::optional<uint32_t> inside = condition();
      Box box;
      if (!inside || !gather(*inside, box) || !shrink(box)) return changed;
      assume(*inside);
      changed = true;
    }
  }

 private:
  void look() {
    defined_.assign(k_.value_count, nullptr);
    loops_.clear();
    for_each_compute(k_, [&](const Compute& c, const Path& path) {
      if (c.op == LoopOp::Store) {
        store_ = &c;
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

  bool is_old(uint32_t value, uint32_t condition) const {
    const Compute* c = defined_[value];
    if (c && c->op == LoopOp::Load && c->args.empty())
      return c->buffer == old_ && c->index == store_->index;
    auto other = choice(value);
    return other && other->first == condition && is_old(other->second, condition);
  }

  // What must hold where the stored value is not the old one.
  std::optional<uint32_t> condition() const {
    auto chosen = choice(store_->args[0]);
    if (!chosen || !is_old(chosen->second, chosen->first)) return std::nullopt;
    return chosen->first;
  }

  std::optional<Expr> number(uint32_t value) const {
    const Compute* c = defined_[value];
    if (c && c->op == LoopOp::Index) return c->index;
    if (c && c->op == LoopOp::Const && ir::is_integral(c->dtype, false)) return Expr(c->integer);
    return std::nullopt;
  }

  // A conjunction of bounds of single loop variables.
  bool gather(uint32_t condition, Box& box) const {
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
    return false;
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
    for (const For* f : loops_) {
      if (!f->annotations.empty() || !f->size.is_const()) return false;
      auto it = box.find(f->var);
      if (it == box.end()) continue;
      Interval& i = it->second;
      i = {std::max<int64_t>(i.lo, 0), std::min(i.hi, f->size.value())};
      if (i.lo >= i.hi) return false;
    }
    for (const auto& [var, interval] : box) shrink(k_.body, var, interval);
    return true;
  }

  static void shrink(Block& block, Expr var, Interval to) {
    for (size_t i = 0; i < block.size(); ++i) {
      auto* f = std::get_if<For>(&block[i].v);
      if (!f) continue;
      if (!(f->var == var)) {
        shrink(f->body, var, to);
        continue;
      }
      bool single = to.hi - to.lo == 1;
      Expr place = single ? Expr(to.lo) : var + to.lo;
      for_each_statement(f->body, [&](Compute& c) {
        c.index = sym::substitute(c.index, [&](Expr s) { return s == var ? place : s; });
      });
      f->size = to.hi - to.lo;
      if (!single) continue;
      Block body = std::move(f->body);
      block.erase(block.begin() + static_cast<std::ptrdiff_t>(i));
      block.insert(block.begin() + static_cast<std::ptrdiff_t>(i),
                   std::make_move_iterator(body.begin()), std::make_move_iterator(body.end()));
      return;
    }
  }

  // The condition holds wherever the loops still go.
  void assume(uint32_t condition) {
    std::map<uint32_t, uint32_t> same;
    for_each_statement(k_.body, [&](Compute& c) {
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
  uint32_t old_;
  const Compute* store_ = nullptr;
  Path loops_;
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
  erase_stores(out.body, wanted);
  Sweeper(out).run(out.body);
  forget_folds(out.body);
  return out;
}

bool uses(const Block& block, Expr var) {
  return std::any_of(block.begin(), block.end(), [&](const Stmt& s) {
    if (const auto* f = std::get_if<For>(&s.v)) {
      return sym::contains(f->size, var) || uses(f->body, var);
    }
    const auto* c = std::get_if<Compute>(&s.v);
    return c && sym::contains(c->index, var);
  });
}

// Loops that do the same each time do it once.
void drop_idle_loops(Block& block) {
  for (size_t i = 0; i < block.size(); ++i) {
    auto* f = std::get_if<For>(&block[i].v);
    if (!f) continue;
    drop_idle_loops(f->body);
    if (uses(f->body, f->var) || !f->size.is_const() || f->size.is_const(0)) continue;
    Block body = std::move(f->body);
    block.erase(block.begin() + static_cast<std::ptrdiff_t>(i));
    block.insert(block.begin() + static_cast<std::ptrdiff_t>(i),
                 std::make_move_iterator(body.begin()), std::make_move_iterator(body.end()));
  }
}

void drop_checks(Block& block) {
  std::erase_if(block, [](const Stmt& s) {
    const auto* c = std::get_if<Compute>(&s.v);
    return c && c->op == LoopOp::Check;
  });
  for (Stmt& s : block) {
    if (auto* f = std::get_if<For>(&s.v)) drop_checks(f->body);
  }
}

}  // namespace

std::optional<Kernel> checks_of(const Kernel& k) {
  if (!has_check(k)) return std::nullopt;
  Kernel out = with_stores(k, [](const Compute&) { return false; });
  out.name = cat(k.name, "_check");
  drop_idle_loops(out.body);
  tidy_buffers(out);
  out.cost = iteration_cost(out);
  return out;
}

void drop_checks(Kernel& k) { drop_checks(k.body); }

std::optional<Kernel> without_stores(const Kernel& k, uint32_t written) {
  Kernel out = with_stores(k, [&](const Compute& c) { return c.buffer != written; });
  if (out.body.empty()) return std::nullopt;
  tidy_buffers(out);
  out.cost = iteration_cost(out);
  return out;
}

std::optional<ChangedPart> changed_part(const Kernel& k, uint32_t old, uint32_t written) {
  bool local = std::any_of(k.buffers.begin(), k.buffers.end(), [](const KernelBuffer& b) {
    return b.kind == KernelBuffer::Kind::Local;
  });
  if (local || has_check(k) || store_count(k, written) != 1) return std::nullopt;
  if (k.buffers[written].kind != KernelBuffer::Kind::Write ||
      k.buffers[old].kind != KernelBuffer::Kind::Read)
    return std::nullopt;
  bool others = false, adds = false;
  for_each_compute(k, [&](const Compute& c, const Path&) {
    others |= c.op == LoopOp::Store && c.buffer != written;
    adds |= c.op == LoopOp::StoreAdd;
  });
  if (adds) return std::nullopt;
  ChangedPart out{with_stores(k, [&](const Compute& c) { return c.buffer == written; }), {}};
  if (folds(out.part.body) || !Narrower(out.part, old).run()) return std::nullopt;
  tidy_buffers(out.part);
  out.part.cost = iteration_cost(out.part);
  if (!others) return out;
  out.part.name = cat(k.name, "_part");
  out.rest = with_stores(k, [&](const Compute& c) { return c.buffer != written; });
  tidy_buffers(*out.rest);
  out.rest->cost = iteration_cost(*out.rest);
  return out;
}

}  // namespace oxy::schedule
