// Finds the loop whose iterations compute most alike, then writes what differs once for each of a
// few of them.
#include "schedule/cost.h"
#include "schedule/cpu/annotations.h"
#include "schedule/cpu/pass_list.h"
#include "schedule/kernel_access.h"
#include "support/tuning.h"

namespace oxy::schedule {
namespace {

class InvariantSharer {
 public:
  InvariantSharer(Kernel& k, loops::Variables& variables, const ScheduleOptions& options)
      : kernel_(k), scope_(variables), threads_(options.machine.threads) {}

  void run() {
    if (!find_nest()) return;
    size_t best = 0;
    int64_t most = 0;
    for (size_t i = 0; i + 1 < nest_.size(); ++i) {
      const int64_t shared = shared_cost(i);
      if (shared > most) most = shared, best = i;
    }
    if (most > 0) jam(best);
  }

 private:
  // Loops directly inside of each other, the innermost of vectors, with nothing else but
  // statements.
  bool find_nest() {
    for (Block* block = &kernel_.body;;) {
      For* inner = nullptr;
      for (Stmt& s : *block) {
        const Compute* c = std::get_if<Compute>(&s.v);
        For* loop = std::get_if<For>(&s.v);
        if (inner != nullptr || (c ? !is_plain(*c) : loop == nullptr)) return false;
        if (loop) inner = loop;
      }
      if (inner == nullptr) return !nest_.empty() && nest_.back()->kind == ForKind::Vector;
      const bool plain = inner->kind == ForKind::Parallel || inner->kind == ForKind::Serial ||
                         inner->kind == ForKind::Vector;
      if (!plain || !inner->annotations.empty()) return false;
      nest_.push_back(inner);
      block = &inner->body;
    }
  }

  bool is_plain(const Compute& c) const {
    return c.op != LoopOp::StoreAdd &&
           !(touches_memory(c.op) && kernel_.buffers[c.buffer].is_local());
  }

  // How many iterations become one.
  static int64_t factor(const For& loop) {
    for (int64_t n = tuning::shared_iterations; n > 1; --n)
      if (loop.size.is_const() && loop.size.value() % n == 0) return n;
    return 1;
  }

  // By value: whether it differs among iterations of the loop.
  std::vector<bool> dependents(size_t loop) const {
    std::vector<bool> out(kernel_.value_count);
    const Expr var = nest_[loop]->var;
    walk<Compute>(nest_[loop]->body, [&](const Compute& c) {
      if (sets_value(c.op)) out[c.value] = differs(c, var, out);
    });
    return out;
  }
  static bool differs(const Compute& c, Expr var, const std::vector<bool>& dependents) {
    return sym::contains(c.index, var) ||
           std::ranges::any_of(c.args, [&](uint32_t a) { return dependents[a]; });
  }

  // What an iteration of the innermost loop computes alike in all iterations of this one; 0 where
  // sharing that does not pay, or cannot be.
  int64_t shared_cost(size_t i) const {
    const For& loop = *nest_[i];
    const int64_t n = factor(loop);
    const auto runs = [&](const For* f) { return sym::contains(f->size, loop.var); };
    if (n == 1 || std::any_of(nest_.begin(), nest_.end(), runs)) return 0;
    const bool leaves_too_few = threads_ > 1 && parallel_iterations() / n < 2 * threads_;
    if (loop.kind == ForKind::Parallel && leaves_too_few) return 0;
    const std::vector<bool> dependent = dependents(i);
    int64_t shared = 0, own = 0;
    size_t statements = 0;
    bool possible = true;
    walk<Compute>(loop.body, [&](const Compute& c) {
      const bool moves = differs(c, loop.var, dependent);
      statements += moves;
      possible &= !moves || !is_any(c.op, LoopOp::Symbol, LoopOp::Check);
    });
    walk<Compute>(nest_.back()->body, [&](const Compute& c) {
      (differs(c, loop.var, dependent) ? own : shared) += cost_of(c.op);
    });
    const bool pays = shared >= own && shared >= tuning::shared_least &&
                      statements * static_cast<size_t>(n) <= tuning::shared_longest_body;
    return possible && pays ? shared : 0;
  }

  int64_t parallel_iterations() const {
    int64_t all = 1;
    for (const For* f : nest_)
      if (f->kind == ForKind::Parallel) all *= count_of(f->size);
    return all;
  }

  void jam(size_t i) {
    For& loop = *nest_[i];
    const int64_t n = factor(loop);
    const std::vector<bool> dependent = dependents(i);
    walk<For>(kernel_.body, [&](const For& f) { scope_.take(f.var); });
    const Expr whole = loop.var, count = sym::floordiv(loop.size, n);
    const Expr var = count.is_const(1) ? Expr(0) : scope_.get('p', count);
    const uint32_t values = kernel_.value_count;
    for (size_t k = i; k < nest_.size(); ++k) {
      Block out;
      for (Stmt& s : nest_[k]->body) {
        const Compute* c = std::get_if<Compute>(&s.v);
        if (c == nullptr || !differs(*c, whole, dependent)) {
          out.push_back(std::move(s));
          continue;
        }
        for (int64_t r = 0; r < n; ++r) {
          Compute made = *c;
          const auto first = static_cast<uint32_t>(r) * values;
          made.index = replace(c->index, {{whole, var * n + r}});
          for (uint32_t& a : made.args)
            if (dependent[a]) a += first;
          if (sets_value(c->op)) made.value += first;
          out.push_back(Stmt{std::move(made)});
        }
      }
      // The next loop has moved with its statement.
      nest_[k]->body = std::move(out);
      if (k + 1 < nest_.size()) nest_[k + 1] = std::get_if<For>(&nest_[k]->body.back().v);
    }
    if (count.is_const(1)) {
      Block& around = i == 0 ? kernel_.body : nest_[i - 1]->body;
      Block body = std::move(loop.body);
      around.pop_back();
      std::ranges::move(body, std::back_inserter(around));
    } else {
      loop.var = var;
      loop.size = count;
    }
    kernel_.value_count = values * static_cast<uint32_t>(n);
    kernel_.cost = iteration_cost(kernel_);
  }

  Kernel& kernel_;
  loops::VariableScope scope_;
  const int64_t threads_;
  std::vector<For*> nest_;  // outermost first
};

}  // namespace

void share_invariants(Kernel& k, loops::Variables& variables, const ScheduleOptions& options) {
  InvariantSharer(k, variables, options).run();
}

}  // namespace oxy::schedule
