// Checks that rows can be interleaved, then writes each statement once a row.
#include "schedule/cost.h"
#include "schedule/cpu/pass_list.h"
#include "schedule/kernel_access.h"

namespace oxy::schedule {
namespace {

constexpr int64_t kRows = tuning::jammed_rows;

class UnrollAndJam {
 public:
  UnrollAndJam(Kernel& k, loops::Variables& variables, const ScheduleOptions& options)
      : kernel_(k),
        scope_(variables),
        large_(options.large_bytes()),
        shortest_row_(tuning::jam_row_bytes(options.machine)) {}

  void run() {
    if (!find_loop() || !fits()) return;
    const Expr whole = iteration_->var, count = sym::floordiv(iteration_->size, kRows);
    walk<For>(kernel_.body, [&](const For& f) { scope_.take(f.var); });
    const Expr var = scope_.get('p', count);
    for (int64_t r = 0; r < kRows; ++r) rows_.push_back({{whole, var * kRows + r}});
    iteration_->body = jammed(iteration_->body);
    iteration_->var = var;
    iteration_->size = count;
    kernel_.value_count *= kRows;
    kernel_.acc_count *= kRows;
    kernel_.cost *= kRows;
  }

 private:
  // The innermost parallel loop.
  bool find_loop() {
    int64_t iterations = 1;
    for (For* f : parallel_loops(kernel_)) {
      iterations *= count_of(f->size);
      iteration_ = f;
    }
    return iteration_ && sym::divisible(iteration_->size, kRows) &&
           iterations / kRows >= tuning::jam_fewest_iterations;
  }

  // Only reductions of rows, at least one of them of a large buffer and cheap enough to wait for
  // memory.
  bool fits() const {
    bool pays = false;
    for (const Stmt& s : iteration_->body) {
      if (const Compute* c = std::get_if<Compute>(&s.v); c && !is_simple(*c)) return false;
      const For* f = std::get_if<For>(&s.v);
      if (!f) continue;
      if (f->kind != ForKind::VectorReduce || f->body.size() > tuning::jam_longest_body)
        return false;
      for (const Stmt& inner : f->body) {
        if (std::holds_alternative<Accumulate>(inner.v)) continue;
        const Compute* c = std::get_if<Compute>(&inner.v);
        if (!c || c->op == LoopOp::Store || !is_simple(*c) || cost_of(c->op) > 1) return false;
        pays = pays || (c->op == LoopOp::Load && is_long_row(*c, *f));
      }
    }
    return pays;
  }

  bool is_simple(const Compute& c) const {
    if (is_any(c.op, LoopOp::Symbol, LoopOp::Check, LoopOp::StoreAdd)) return false;
    return !touches_memory(c.op) || !kernel_.buffers[c.buffer].is_local();
  }

  bool is_long_row(const Compute& c, const For& row) const {
    const KernelBuffer& b = kernel_.buffers[c.buffer];
    const int64_t size = ir::byte_size(b.dtype);
    const auto along = coefficient(c.index, row.var),
               across = coefficient(c.index, iteration_->var);
    return along && along->is_const(1) && across && !across->is_const(0) &&
           hinted(row.size).value_or(0) * size >= shortest_row_ &&
           hinted(b.elements).value_or(0) * size >= large_;
  }

  // Each statement once for every row.
  Block jammed(const Block& block) const {
    Block out;
    for (const Stmt& s : block) {
      if (const For* f = std::get_if<For>(&s.v)) {
        out.push_back(Stmt{For{f->kind, f->var, f->size, f->annotations, jammed(f->body)}});
        continue;
      }
      for (int64_t r = 0; r < kRows; ++r) out.push_back(of_row(s, static_cast<uint32_t>(r)));
    }
    return out;
  }

  Stmt of_row(const Stmt& s, uint32_t r) const {
    const auto value = [&](uint32_t v) { return r * kernel_.value_count + v; };
    const auto acc = [&](uint32_t a) { return r * kernel_.acc_count + a; };
    Stmt out = s;
    if (auto* c = std::get_if<Compute>(&out.v)) {
      if (c->op != LoopOp::Store) c->value = value(c->value);
      for (uint32_t& a : c->args) a = value(a);
      c->index = replace(c->index, rows_[r]);
    } else if (auto* init = std::get_if<Init>(&out.v)) {
      init->acc = acc(init->acc);
    } else if (auto* a = std::get_if<Accumulate>(&out.v)) {
      *a = {acc(a->acc), value(a->value), replace(a->index, rows_[r])};
    } else {
      Result& result = std::get<Result>(out.v);  // no Hint before prefetch
      result = {value(result.value), acc(result.acc)};
    }
    return out;
  }

  Kernel& kernel_;
  loops::VariableScope scope_;
  const int64_t large_, shortest_row_;
  For* iteration_ = nullptr;
  std::vector<Substitution> rows_;
};

}  // namespace

void unroll_and_jam(Kernel& k, loops::Variables& variables, const ScheduleOptions& options) {
  UnrollAndJam(k, variables, options).run();
}

}  // namespace oxy::schedule
