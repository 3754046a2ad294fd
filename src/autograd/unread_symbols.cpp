// As pipeline/size_slots.h solves for symbols: one reading each, linear in it, all others known.
#include "autograd/unread_symbols.h"

#include <algorithm>

#include "ir/specialize.h"
#include "ops/op_table.h"

namespace oxy::autograd {
namespace {

using ir::Expr;
using ir::Graph;
using ir::ValueId;

bool is_zero_possible(Expr e) {
  const sym::Range r = sym::range_of(e);
  return r.lo <= 0 && r.hi >= 0;
}

void add_readings(const ir::Type& t, std::vector<Expr>& out) {
  if (t.kind == ir::Type::Kind::Int) out.push_back(t.expr);
  if (!t.is_tensor()) return;
  out.insert(out.end(), t.tensor.sizes.begin(), t.tensor.sizes.end());
  out.insert(out.end(), t.tensor.strides.begin(), t.tensor.strides.end());
  out.push_back(t.tensor.offset);
}

class Known {
 public:
  void add(Expr symbol) {
    if (!has(symbol)) symbols_.push_back(symbol);
  }
  bool has(Expr symbol) const { return std::ranges::find(symbols_, symbol) != symbols_.end(); }

  void solve(const std::vector<Expr>& readings) {
    for (bool found = true; found;) {
      found = false;
      for (Expr e : readings) found |= solve(e);
    }
  }

 private:
  bool solve(Expr e) {
    std::vector<Expr> symbols;
    sym::collect_symbols(e, symbols);
    std::erase_if(symbols, [&](Expr s) { return has(s); });
    if (symbols.size() != 1) return false;
    const auto line = sym::linear_in(e, symbols[0]);
    if (!line || is_zero_possible(line->first)) return false;
    symbols_.push_back(symbols[0]);
    return true;
  }

  std::vector<Expr> symbols_;
};

}  // namespace

std::vector<Expr> unread_symbols(const Graph& g, std::span<const ValueId> tangents) {
  Known known;
  std::vector<Expr> readings;
  for (ValueId v : g.inputs()) {
    const bool tangent = std::ranges::find(tangents, v) != tangents.end();
    if (!tangent || tangents.size() == 1) add_readings(g.value(v).type, readings);
  }
  for (ir::NodeId id : g.order()) {
    const ops::OpInfo* info = ops::find(g.node(id));
    if (!info || !info->has(ops::DataDependent)) continue;
    for (ValueId v : g.node(id).outputs) add_readings(g.value(v).type, readings);
  }
  known.solve(readings);
  std::vector<Expr> out = ir::symbols_of(g);
  std::erase_if(out, [&](Expr s) { return known.has(s); });
  return out;
}

}  // namespace oxy::autograd
