// Strip-mines a loop of vectors into the runs of iterations in which a quotient stays the same.
#include "schedule/cost.h"
#include "schedule/cpu/annotations.h"
#include "schedule/cpu/pass_list.h"

namespace oxy::schedule {
namespace {

// (loop variable + rest) by divisor, both the same at all iterations of the loop.
struct Quotient {
  Expr rest = 0, divisor = 0;
};

class StripMiner {
 public:
  StripMiner(Kernel& k, loops::Variables& variables) : kernel_(k), scope_(variables) {
    walk<For>(k.body, [&](const For& f) { scope_.take(f.var); });
  }

  void run() {
    block(kernel_.body);
    if (changed_) kernel_.cost = iteration_cost(kernel_);
  }

 private:
  void block(Block& b) {
    for (Stmt& s : b) {
      For* loop = std::get_if<For>(&s.v);
      if (!loop) continue;
      if (std::optional<Quotient> q = quotient_of(*loop)) {
        s = Stmt{strips(*loop, *q)};
        changed_ = true;
        loop = std::get_if<For>(&s.v);
      }
      around_.push_back(loop->var);
      block(loop->body);
      around_.pop_back();
    }
  }

  // What the loop divides its variable by.
  std::optional<Quotient> quotient_of(const For& loop) const {
    if (!is_lanes(loop) || is_tiled(loop)) return std::nullopt;
    std::optional<Quotient> found;
    for (const Stmt& s : loop.body) {
      if (std::holds_alternative<For>(s.v)) return std::nullopt;
      if (const Compute* c = std::get_if<Compute>(&s.v); c && !found)
        found = quotient_in(c->index, loop.var);
    }
    return found;
  }
  static bool is_lanes(const For& f) {
    return f.kind == ForKind::Vector || f.kind == ForKind::VectorReduce;
  }

  std::optional<Quotient> quotient_in(Expr e, Expr var) const {
    if (e.is_const() || e.kind() == sym::Kind::Symbol || !sym::contains(e, var))
      return std::nullopt;
    for (const Expr operand : e.operands())
      if (const auto q = quotient_in(operand, var)) return q;
    if (e.kind() != sym::Kind::FloorDiv && e.kind() != sym::Kind::Mod) return std::nullopt;
    const Expr divisor = e.operands()[1], rest = e.operands()[0] - var;
    const bool fits = (!divisor.is_const() || divisor.value() >= tuning::strip_shortest) &&
                      loops::is_size(divisor) && is_fixed(rest);
    return fits ? std::optional(Quotient{rest, divisor}) : std::nullopt;
  }

  // The same at all iterations of the loop that is looked at.
  bool is_fixed(Expr e) const {
    return std::ranges::all_of(symbols_of(e), [&](Expr s) {
      return loops::is_size(s) || std::ranges::find(around_, s) != around_.end();
    });
  }

  // The first and the last strip may begin and end within a run.
  For strips(const For& loop, const Quotient& q) {
    // Where the divisor is 0 there are no iterations.
    const bool divides_any = sym::certain_less(0, q.divisor) == true;
    const Expr divisor = divides_any ? q.divisor : sym::max(q.divisor, 1);
    const Expr first = sym::floordiv(q.rest, divisor);
    const Expr count = sym::floordiv(q.rest + loop.size - 1, divisor) - first + 1;
    const bool folds = loop.kind == ForKind::VectorReduce;
    const char prefix = folds ? 'r' : 'p';
    const Expr strip = scope_.get(prefix, count), quotient = first + strip;
    const Expr run = quotient * divisor - q.rest;
    const bool whole = q.rest.is_const(0) && divides(q.divisor, loop.size);
    const Expr begin = whole ? run : sym::max(run, 0), skipped = whole ? 0 : sym::max(-run, 0);
    const Expr size = whole ? q.divisor : sym::min(run + divisor, loop.size) - begin;
    For inner{loop.kind, scope_.get(prefix, size), size, loop.annotations, {}};
    const Substitution known{{loop.var, begin + inner.var},
                             {sym::floordiv(loop.var + q.rest, q.divisor), quotient},
                             {sym::mod(loop.var + q.rest, q.divisor), skipped + inner.var}};
    const auto in_strip = [&](Expr e) { return replaced(e, loop.var, known); };
    for (const Stmt& s : loop.body) {
      Stmt made = s;
      if (auto* c = std::get_if<Compute>(&made.v)) c->index = in_strip(c->index);
      if (auto* a = std::get_if<Accumulate>(&made.v)) a->index = in_strip(a->index);
      if (auto* h = std::get_if<Hint>(&made.v)) h->index = in_strip(h->index);
      inner.body.push_back(std::move(made));
    }
    For out{folds ? ForKind::Reduce : ForKind::Serial, strip, count, {}, {}};
    out.body.push_back(Stmt{std::move(inner)});
    return out;
  }

  static Expr replaced(Expr e, Expr var, const Substitution& known) {
    for (const auto& [from, to] : known)
      if (e == from) return to;
    if (e.is_const() || !sym::contains(e, var)) return e;
    const auto parts = e.operands();
    Expr out = replaced(parts[0], var, known);
    for (const Expr part : parts.subspan(1))
      out = sym::combine(e.kind(), out, replaced(part, var, known));
    return out;
  }

  Kernel& kernel_;
  loops::VariableScope scope_;
  std::vector<Expr> around_;  // variables of the loops around
  bool changed_ = false;
};

}  // namespace

void strip_mine(Kernel& k, loops::Variables& variables) { StripMiner(k, variables).run(); }

}  // namespace oxy::schedule
