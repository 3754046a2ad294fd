// Finds the loads that stream, and puts hints in front of them.
#include <algorithm>
#include <map>

#include "schedule/cost.h"
#include "schedule/cpu/annotations.h"
#include "schedule/cpu/pass_list.h"
#include "schedule/kernel_access.h"

namespace oxy::schedule {
namespace {

class Prefetcher {
 public:
  Prefetcher(Kernel& k, loops::Variables& variables, const ScheduleOptions& options)
      : kernel_(k),
        scope_(variables),
        machine_(options.machine),
        large_(options.large_bytes()),
        parallel_(parallel_loops(k)) {}

  void run() {
    if (parallel_.empty()) return;
    iteration_ = &parallel_.back()->body;
    std::vector<For*> loops;
    for (Stmt& s : *iteration_) {
      if (For* f = std::get_if<For>(&s.v)) loops.push_back(f);
    }
    if (loops.empty() || !is_lanes(*loops[0])) return;
    walk<For>(kernel_.body, [&](const For& f) { scope_.take(f.var); });
    walk<Compute>(kernel_.body, [&](const Compute& c) {
      if (c.op == LoopOp::Symbol) scope_.take(c.index);
    });
    auto fits = [&](const For* f) { return is_lanes(*f) && f->size == loops[0]->size; };
    if (loops.size() == 1) {
      within(*loops[0]);
      next_iteration(*loops[0], loops, true);
    } else if (fits(loops[1])) {
      std::vector<For*> later;
      std::copy_if(loops.begin() + 1, loops.end(), std::back_inserter(later), fits);
      next_iteration(*loops[0], later, false);
    }
  }

 private:
  static bool is_lanes(const For& f) {
    return (f.kind == ForKind::Vector || f.kind == ForKind::VectorReduce) && !is_tiled(f) &&
           hinted(whole_trips(f));
  }

  // The iterations of all but the last piece, where the loop goes through a piece of something:
  // min(piece, rest).
  static Expr whole_trips(const For& f) {
    if (f.size.is_const() || f.size.kind() != sym::Kind::Min) return f.size;
    const auto piece = std::ranges::find_if(f.size.operands(), [](Expr e) { return e.is_const(); });
    return piece == f.size.operands().end() ? f.size : *piece;
  }

  static bool streams(const For& f) {
    return std::ranges::any_of(f.body, [](const Stmt& s) {
      const Compute* c = std::get_if<Compute>(&s.v);
      return c && c->op == LoopOp::Store && is_streaming(*c);
    });
  }

  static bool only_reads(const For& f) {
    return std::ranges::none_of(f.body, [](const Stmt& s) {
      const Compute* c = std::get_if<Compute>(&s.v);
      return c && is_any(c->op, LoopOp::Store, LoopOp::StoreAdd);
    });
  }

  // The loads of large buffers that lie along the loop, each place once.
  std::vector<const Compute*> loads(const For& f) const {
    std::vector<const Compute*> found;
    for (const Stmt& s : f.body) {
      const Compute* c = std::get_if<Compute>(&s.v);
      if (!c || c->op != LoopOp::Load || !c->args.empty() || !is_large(kernel_.buffers[c->buffer]))
        continue;
      const auto along = coefficient(c->index, f.var);
      const bool known = std::ranges::any_of(
          found, [&](const Compute* x) { return x->buffer == c->buffer && x->index == c->index; });
      if (along && along->is_const(1) && !known) found.push_back(c);
    }
    if (found.size() > tuning::prefetch_most) found.clear();
    return found;
  }

  bool is_large(const KernelBuffer& b) const {
    return !b.is_local() && hinted(b.elements).value_or(0) * ir::byte_size(b.dtype) >= large_;
  }

  // Whether what the loop reads lies together, and so much of it, or with what comes next behind
  // it.
  bool runs_on(const Compute& c, const For& f) const {
    Expr run = whole_trips(f);
    for (size_t k = parallel_.size(); k-- > 0;) {
      const auto step = coefficient(c.index, parallel_[k]->var);
      if (!step || *step != run || !hinted(parallel_[k]->size)) break;
      run *= parallel_[k]->size;
    }
    return *hinted(run) * ir::byte_size(c.dtype) >= tuning::prefetch_run_bytes(machine_);
  }

  void within(For& f) {
    if (!streams(f) && !(only_reads(f) && tuning::prefetches_reads(machine_))) return;
    Block prefetches;
    const int64_t ahead = tuning::prefetch_ahead_bytes(machine_);
    for (const Compute* c : loads(f)) {
      if (runs_on(*c, f))
        prefetches.push_back(hint(c->buffer, c->index + ahead / ir::byte_size(c->dtype)));
    }
    f.body.insert(f.body.begin(), prefetches.begin(), prefetches.end());
  }

  // In the loops `later`, what the first one will load in the next iteration: a share each, since a
  // burst would wait for memory. Rows at loaded indices are touched an iteration earlier still:
  // their pages have to be found. `at_indices`: no others.
  void next_iteration(const For& first, const std::vector<For*>& later, bool at_indices) {
    const Expr iteration = parallel_.back()->var;
    const auto shares = static_cast<int64_t>(later.size());
    const Expr trips = whole_trips(first);
    std::vector<Block> prefetches(later.size());
    Block touches;
    int64_t bytes = 0;
    for (const Compute* c : loads(first)) {
      const auto step = coefficient(c->index, iteration);
      Substitution next{{iteration, iteration + 1}};
      if (!step || !foresee(c->index, 1, next)) continue;
      const bool at_index = next.size() > 1;
      if (!at_index && (at_indices || step->is_const(0))) continue;
      bytes += *hinted(trips) * ir::byte_size(c->dtype);
      for (int64_t j = 0; j < shares; ++j) {
        const auto at = static_cast<size_t>(j);
        const Expr share = sym::floordiv(trips * j + later[at]->var, shares);
        prefetches[at].push_back(prefetch_of(*c, next, first, share));
      }
      if (!at_index) continue;
      Substitution after{{iteration, iteration + 2}};
      foresee(c->index, 2, after);
      touches.push_back(prefetch_of(*c, after, first, 0));
      touches.push_back(prefetch_of(*c, after, first, trips - 1));
    }
    if (bytes > tuning::prefetch_row_bytes(machine_)) return;
    for (size_t j = 0; j < later.size(); ++j)
      later[j]->body.insert(later[j]->body.begin(), prefetches[j].begin(), prefetches[j].end());
    lead_.insert(lead_.end(), touches.begin(), touches.end());
    const auto before = std::ranges::find_if(
        *iteration_, [&](const Stmt& s) { return std::get_if<For>(&s.v) == later[0]; });
    iteration_->insert(before, lead_.begin(), lead_.end());
  }

  static Stmt hint(uint32_t buffer, Expr index) {
    return Stmt{Hint{std::string(kPrefetch), buffer, index}};
  }

  static Stmt prefetch_of(const Compute& load, Substitution iteration, const For& loop, Expr at) {
    iteration.emplace_back(loop.var, at);
    return hint(load.buffer, replace(load.index, iteration));
  }

  // Adds what the symbols of an index, which the iteration has loaded, will be `ahead` iterations
  // later; false where that takes more than loads at known places.
  bool foresee(Expr index, int64_t ahead, Substitution& next) {
    for (Expr s : symbols_of(index)) {
      for (size_t i = 0; i < iteration_->size(); ++i) {
        const Compute* c = std::get_if<Compute>(&(*iteration_)[i].v);
        if (!c || c->op != LoopOp::Symbol || !(c->index == s)) continue;
        if (!is_foreseeable(c->args[0])) return false;
        next.emplace_back(s, later_symbol(*c, ahead));
      }
    }
    return true;
  }

  const Stmt* definition(uint32_t value) const {
    for (const Stmt& s : *iteration_) {
      const Compute* c = std::get_if<Compute>(&s.v);
      const Result* r = std::get_if<Result>(&s.v);
      if ((c && sets_value(c->op) && c->value == value) || (r && r->value == value)) return &s;
    }
    return nullptr;
  }

  bool is_foreseeable(uint32_t value) const {
    const Stmt* s = definition(value);
    if (!s) return true;  // of all iterations
    const Compute* c = std::get_if<Compute>(&s->v);
    if (!c || c->op == LoopOp::Symbol) return false;
    if (c->op == LoopOp::Load && kernel_.buffers[c->buffer].kind != KernelBuffer::Kind::Read)
      return false;
    auto is_iteration = [&](Expr e) {
      return std::ranges::find(parallel_, e, &For::var) != parallel_.end();
    };
    return std::ranges::all_of(symbols_of(c->index), is_iteration) &&
           std::ranges::all_of(c->args, [&](uint32_t a) { return is_foreseeable(a); });
  }

  Expr later_symbol(const Compute& symbol, int64_t ahead) {
    const auto [it, fresh] = symbols_.try_emplace({symbol.index, ahead}, 0);
    if (!fresh) return it->second;
    Compute c = symbol;
    c.index = it->second = another_index(scope_, symbol.index);
    c.value = kernel_.value_count++;
    c.args = {later_value(symbol.args[0], ahead)};
    lead_.push_back(Stmt{std::move(c)});
    return it->second;
  }

  // What a value will be so many iterations later; behind the last one, in that again.
  uint32_t later_value(uint32_t value, int64_t ahead) {
    const Stmt* s = definition(value);
    if (!s) return value;
    const auto [it, fresh] = values_.try_emplace({value, ahead}, 0);
    if (!fresh) return it->second;
    const For& inner = *parallel_.back();
    Compute c = std::get<Compute>(s->v);
    for (uint32_t& a : c.args) a = later_value(a, ahead);
    c.index = replace(c.index, {{inner.var, sym::min(inner.var + ahead, inner.size - 1)}});
    const uint32_t made = c.value = values_[{value, ahead}] = kernel_.value_count++;
    lead_.push_back(Stmt{std::move(c)});
    return made;
  }

  Kernel& kernel_;
  loops::VariableScope scope_;
  const Machine& machine_;
  const int64_t large_;
  const std::vector<For*> parallel_;
  Block* iteration_ = nullptr;
  // By how many iterations ahead: loaded indices, and what they are computed from.
  std::map<std::pair<Expr, int64_t>, Expr> symbols_;
  std::map<std::pair<uint32_t, int64_t>, uint32_t> values_;
  Block lead_;  // the statements of these
};

}  // namespace

void prefetch(Kernel& k, loops::Variables& variables, const ScheduleOptions& options) {
  Prefetcher(k, variables, options).run();
}

}  // namespace oxy::schedule
