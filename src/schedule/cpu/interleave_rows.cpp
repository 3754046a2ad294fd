// Checks that a Serial loop is short and walks memory that its Vector loop steps over, then writes
// the vector's statements once for each of its iterations. A Vector loop whose variable is divided
// by a small constant becomes such a pair first, and a loop for what the constant leaves.
#include <bit>

#include "schedule/cost.h"
#include "schedule/cpu/annotations.h"
#include "schedule/cpu/pass_list.h"

namespace oxy::schedule {
namespace {

class RowInterleaver {
 public:
  RowInterleaver(Kernel& k, loops::Variables& variables) : kernel_(k), scope_(variables) {
    walk<For>(k.body, [&](const For& f) { scope_.take(f.var); });
  }

  void run() { block(kernel_.body); }

 private:
  void block(Block& b) {
    for (size_t i = 0; i < b.size(); ++i) {
      For* loop = std::get_if<For>(&b[i].v);
      if (!loop) continue;
      if (const For* vector = steps_over(*loop)) {
        b[i] = Stmt{interleaved(*loop, *vector)};
      } else if (const int64_t k = divided_by(*loop); k != 0) {
        For rest = remainder(*loop, k);
        const For pieces = in_steps(*loop, k);
        b[i] = Stmt{interleaved(pieces, std::get<For>(pieces.body.front().v))};
        if (!rest.size.is_const(0)) b.insert(b.begin() + ++i, Stmt{std::move(rest)});
      } else {
        block(loop->body);
      }
    }
  }

  // The one small constant that a loop of vectors divides its variable by; 0 where there is none,
  // or where the statements cannot be written several times.
  static int64_t divided_by(const For& loop) {
    const bool folds = loop.kind == ForKind::VectorReduce;
    if ((loop.kind != ForKind::Vector && !folds) || is_tiled(loop)) return 0;
    int64_t divisor = 0;
    bool one = true;
    for (const Stmt& s : loop.body) {
      const Accumulate* a = folds ? std::get_if<Accumulate>(&s.v) : nullptr;
      if (a && a->index.is_const(0)) continue;  // no position
      const Compute* c = std::get_if<Compute>(&s.v);
      if (!c || is_any(c->op, LoopOp::StoreAdd, LoopOp::Check, LoopOp::Symbol)) return 0;
      one &= take_divisors(c->index, loop.var, divisor);
    }
    const bool fits = one && divisor >= 2 && divisor <= tuning::most_neighbours &&
                      loop.body.size() * divisor <= 2 * tuning::unrolled_body;
    return fits ? divisor : 0;
  }
  static bool take_divisors(Expr e, Expr var, int64_t& divisor) {
    if (e.is_const() || e.kind() == sym::Kind::Symbol || !sym::contains(e, var)) return true;
    if (e.kind() == sym::Kind::FloorDiv || e.kind() == sym::Kind::Mod) {
      const auto along = sym::linear_in(e.operands()[0], var);
      const Expr by = e.operands()[1];
      if (!along || !along->first.is_const(1) || !by.is_const()) return false;
      if (divisor != 0 && divisor != by.value()) return false;
      divisor = by.value();
      return true;
    }
    return std::ranges::all_of(e.operands(),
                               [&](Expr o) { return take_divisors(o, var, divisor); });
  }

  // The loop as one over the steps of k, inside of one over the places in a step.
  For in_steps(const For& loop, int64_t k) {
    const Expr steps = sym::floordiv(loop.size, k);
    For vector{loop.kind, scope_.get('p', steps), steps, loop.annotations, loop.body};
    For out{ForKind::Serial, scope_.get('p', k), k, {}, {}};
    move_to(vector.body, loop.var, vector.var * k + out.var);
    out.body.push_back(Stmt{std::move(vector)});
    return out;
  }
  // What is behind them, of statements of its own.
  For remainder(const For& loop, int64_t k) {
    const Expr size = sym::divisible(loop.size, k) ? Expr(0) : sym::mod(loop.size, k);
    For out{loop.kind, loop.var, size, loop.annotations, loop.body};
    if (size.is_const(0)) return out;
    out.var = scope_.get('p', size);
    move_to(out.body, loop.var, sym::floordiv(loop.size, k) * k + out.var);
    std::unordered_map<uint32_t, uint32_t> values;
    const auto renamed = [&](uint32_t value) {
      const auto known = values.find(value);
      return known == values.end() ? value : known->second;
    };
    for (Stmt& s : out.body) {
      if (auto* a = std::get_if<Accumulate>(&s.v)) a->value = renamed(a->value);
      auto* c = std::get_if<Compute>(&s.v);
      if (!c) continue;
      for (uint32_t& a : c->args) a = renamed(a);
      if (sets_value(c->op)) c->value = values[c->value] = kernel_.value_count++;
    }
    return out;
  }
  static void move_to(Block& body, Expr var, Expr place) {
    for (Stmt& s : body)
      if (auto* c = std::get_if<Compute>(&s.v)) c->index = replace(c->index, {{var, place}});
  }

  // The Vector loop that a short loop ends with, where it stores what lies along the short loop.
  static const For* steps_over(const For& loop) {
    if (loop.kind != ForKind::Serial || !loop.size.is_const() || loop.body.empty()) return nullptr;
    const For* vector = std::get_if<For>(&loop.body.back().v);
    if (!vector || vector->kind != ForKind::Vector || sym::contains(vector->size, loop.var))
      return nullptr;
    const int64_t n = loop.size.value();
    const size_t statements = loop.body.size() - 1 + vector->body.size();
    if (n < 2 || n > tuning::most_neighbours || statements * n > 2 * tuning::unrolled_body)
      return nullptr;
    bool along = false;
    for (const Block* body : {&loop.body, &vector->body}) {
      for (const Stmt& s : *body) {
        const Compute* c = std::get_if<Compute>(&s.v);
        if (!c && &s == &loop.body.back()) continue;
        if (!c || is_any(c->op, LoopOp::StoreAdd, LoopOp::Check, LoopOp::Symbol)) return nullptr;
        if (c->op != LoopOp::Store) continue;
        if (body == &loop.body) return nullptr;
        const auto by_short = sym::linear_in(c->index, loop.var),
                   by_lane = sym::linear_in(c->index, vector->var);
        if (!by_short || !by_lane || by_lane->first.is_const(0)) return nullptr;
        along |= by_short->first.is_const(1) && !by_lane->first.is_const(1);
      }
    }
    return along ? vector : nullptr;
  }

  For interleaved(const For& loop, const For& vector) {
    For out{vector.kind, vector.var, vector.size, vector.annotations, {}};
    for (int64_t k = 0; k < loop.size.value(); ++k) {
      std::unordered_map<uint32_t, uint32_t> values;
      for (const Block* body : {&loop.body, &vector.body}) {
        for (const Stmt& s : *body) {
          if (const auto* a = std::get_if<Accumulate>(&s.v)) {
            const auto known = values.find(a->value);
            const uint32_t value = known == values.end() ? a->value : known->second;
            out.body.push_back(Stmt{Accumulate{a->acc, value, a->index}});
          }
          const Compute* c = std::get_if<Compute>(&s.v);
          if (!c) continue;
          Compute made = *c;
          made.index = replace(c->index, {{loop.var, k}});
          for (uint32_t& a : made.args)
            if (const auto known = values.find(a); known != values.end()) a = known->second;
          if (sets_value(c->op)) {
            const Compute* same = equal_in(out.body, made);
            made.value = values[c->value] = same ? same->value : kernel_.value_count++;
            if (same) continue;
          }
          out.body.push_back(Stmt{std::move(made)});
        }
      }
    }
    return out;
  }

  // A statement that gives the same value; of loads, while nothing has been stored to the buffer.
  static const Compute* equal_in(const Block& body, const Compute& made) {
    const Compute* found = nullptr;
    for (const Stmt& s : body) {
      const Compute* c = std::get_if<Compute>(&s.v);
      if (!c) continue;
      if (c->op == LoopOp::Store) {
        if (made.op == LoopOp::Load && c->buffer == made.buffer) return nullptr;
      } else if (c->op == made.op && c->dtype == made.dtype && c->args == made.args &&
                 c->buffer == made.buffer && c->index == made.index &&
                 std::bit_cast<uint64_t>(c->number) == std::bit_cast<uint64_t>(made.number) &&
                 c->integer == made.integer) {
        found = c;
      }
    }
    return found;
  }

  Kernel& kernel_;
  loops::VariableScope scope_;
};

}  // namespace

void interleave_rows(Kernel& k, loops::Variables& variables) { RowInterleaver(k, variables).run(); }

}  // namespace oxy::schedule
