// Costs of single operations, sizes at their hints, and sums over loops.
#include "schedule/cost.h"

#include <algorithm>

#include "schedule/kernel_access.h"
#include "symbolic/facts.h"
namespace oxy::schedule {

int cost_of(LoopOp op) {
  using enum LoopOp;
  if (is_any(op, Const, Index, Load, Store, StoreAdd, Symbol, Check, Reduce, Scan, Bitcast))
    return 0;
  if (is_any(op, Div, Sqrt, Reciprocal)) return 4;
  if (is_any(op, FloorDiv, Mod, Fmod, Rsqrt)) return 8;
  if (is_any(op, Floor, Ceil, Round, Trunc, CopySign)) return 1;
  const ops::LoopClass cls = ops::class_of(op);
  return cls == ops::LoopClass::Iterated ? 200 : cls == ops::LoopClass::Math ? 16 : 1;
}

int cost_of(const loops::Body& body) {
  int sum = 0;
  for (const loops::Inst& i : body) sum += cost_of(i.op);
  return sum;
}

static bool has_hint(Expr symbol) { return sym::symbol_hint(symbol).has_value(); }

std::optional<int64_t> hinted(Expr e) {
  if (e.is_const()) return e.value();
  if (!std::ranges::all_of(symbols_of(e), has_hint)) return std::nullopt;
  return sym::hint(e);
}

int64_t count_of(Expr e) {
  if (e.is_const()) return e.value();
  if (std::ranges::any_of(symbols_of(e), has_hint)) {
    return std::max<int64_t>(
        1, sym::evaluate(e, [](Expr s) {
          return sym::symbol_hint(s).value_or(std::max<int64_t>(0, sym::range_of(s).lo));
        }));
  }
  sym::Range r = sym::range_of(e);
  return r.hi != INT64_MAX ? std::max<int64_t>(r.hi, 1) : 4096;
}

bool may_be_empty(Expr size) {
  return sym::range_of(size).lo < 1 && !std::ranges::all_of(symbols_of(size), loops::is_variable);
}

bool is_late(const ir::TensorType& type) {
  return sym::origin_of(loops::byte_extent(type)) == sym::Origin::Data;
}

Expr most_iterations(Expr size) {
  const int64_t most = sym::range_of(size).hi;
  if (most != INT64_MAX) return most;
  return loops::is_size(size) && hinted(size) ? size : Expr(0);
}

int64_t iterations(const std::vector<loops::Axis>& axes) {
  int64_t n = 1;
  for (const loops::Axis& a : axes) n *= count_of(a.size);
  return n;
}

// `count` of a loop's iterations.
template <class N, class F>
static N cost_of_block(const Block& body, const F& count) {
  N sum = 0;
  for (const Stmt& s : body) {
    if (const auto* f = std::get_if<For>(&s.v))
      sum +=
          cost_of_block<N>(f->body, count) * (f->kind == ForKind::Parallel ? N(1) : count(f->size));
    else if (const auto* c = std::get_if<Compute>(&s.v))
      sum += touches_memory(c->op) ? ir::byte_size(c->dtype) : cost_of(c->op);
    else
      sum += 1;
  }
  return sum;
}

int64_t iteration_cost(const Kernel& k) { return cost_of_block<int64_t>(k.body, count_of); }

Expr varying_cost(const Kernel& k) {
  return cost_of_block<Expr>(k.body, [](Expr size) -> Expr {
    return std::ranges::any_of(symbols_of(size), loops::is_variable) ? Expr(count_of(size)) : size;
  });
}

// How many elements one statement comes to: the iterations of the loops that its index depends on,
// or of all of them where the index was loaded.
static int64_t touched(const Compute& c, const Path& path) {
  std::vector<Expr> variables = symbols_of(c.index);
  std::erase_if(variables, [](Expr s) { return !loops::is_variable(s); });
  size_t found = 0;
  int64_t some = 1, all = 1;
  for (const For* f : path) {
    const int64_t size = count_of(f->size);
    all *= size;
    if (std::ranges::find(variables, f->var) == variables.end()) continue;
    some *= size;
    ++found;
  }
  return found == variables.size() ? some : all;
}

int64_t moved_bytes(const Kernel& k) {
  struct Counts {
    int64_t loads = 0, stores = 0;
  };
  std::vector<Counts> counts(k.buffers.size());
  for_each_compute(k, [&](const Compute& c, const Path& path) {
    if (!touches_memory(c.op)) return;
    Counts& of = counts[c.buffer];
    if (c.op != LoopOp::Store) of.loads += touched(c, path);
    if (c.op != LoopOp::Load) of.stores += touched(c, path);
  });
  int64_t bytes = 0;
  for (size_t i = 0; i < k.buffers.size(); ++i) {
    const KernelBuffer& b = k.buffers[i];
    if (b.is_local()) continue;
    const int64_t elements = count_of(b.elements);
    bytes += (std::min(counts[i].loads, elements) + std::min(counts[i].stores, elements)) *
             ir::byte_size(b.dtype);
  }
  return bytes;
}

}  // namespace oxy::schedule
