// Costs of single operations, sizes at their hints, and sums over loops.
#include "schedule/cost.h"

#include <algorithm>

namespace oxy::schedule {

using loops::LoopOp;

int cost_of(LoopOp op, ops::DType) {
  switch (op) {
    case LoopOp::Const:
    case LoopOp::Index:
    case LoopOp::Load:
    case LoopOp::Store:
    case LoopOp::StoreAdd:
    case LoopOp::Symbol:
    case LoopOp::Check:
    case LoopOp::Reduce:
    case LoopOp::Scan:
    case LoopOp::Bitcast:
      return 0;
    case LoopOp::Div:
    case LoopOp::Sqrt:
    case LoopOp::Reciprocal:
      return 4;
    case LoopOp::FloorDiv:
    case LoopOp::Mod:
    case LoopOp::Fmod:
    case LoopOp::Rsqrt:
      return 8;
    default:
      break;
  }
  const ops::LoopClass cls = ops::class_of(op);
  if (cls == ops::LoopClass::Iterated) return 200;
  const bool simple = op == LoopOp::Floor || op == LoopOp::Ceil || op == LoopOp::Round ||
                      op == LoopOp::Trunc || op == LoopOp::CopySign;
  return cls == ops::LoopClass::Math && !simple ? 16 : 1;
}

int cost_of(const loops::Body& body) {
  int sum = 0;
  for (const loops::Inst& i : body) sum += cost_of(i.op, i.dtype);
  return sum;
}

static std::vector<sym::Expr> symbols_of(sym::Expr e) {
  std::vector<sym::Expr> symbols;
  sym::collect_symbols(e, symbols);
  return symbols;
}

static bool has_hint(sym::Expr symbol) { return sym::symbol_hint(symbol).has_value(); }

std::optional<int64_t> hinted(sym::Expr e) {
  if (e.is_const()) return e.value();
  if (!std::ranges::all_of(symbols_of(e), has_hint)) return std::nullopt;
  return sym::hint(e);
}

int64_t count_of(sym::Expr e) {
  if (e.is_const()) return e.value();
  const std::vector<sym::Expr> symbols = symbols_of(e);
  if (std::ranges::any_of(symbols, has_hint)) {
    return std::max<int64_t>(
        1, sym::evaluate(e, [](sym::Expr s) {
          return sym::symbol_hint(s).value_or(std::max<int64_t>(0, sym::range_of(s).lo));
        }));
  }
  sym::Range r = sym::range_of(e);
  return r.hi != INT64_MAX ? std::max<int64_t>(r.hi, 1) : 4096;
}

bool may_be_empty(sym::Expr size) {
  return sym::range_of(size).lo < 1 &&
         std::ranges::any_of(symbols_of(size), [](sym::Expr s) { return !loops::is_variable(s); });
}

int64_t iterations(const std::vector<loops::Axis>& axes) {
  int64_t n = 1;
  for (const loops::Axis& a : axes) n *= count_of(a.size);
  return n;
}

namespace {

int64_t cost_of_block(const Block& body, int64_t times) {
  int64_t sum = 0;
  for (const Stmt& s : body) {
    if (const auto* f = std::get_if<For>(&s.v)) {
      sum +=
          cost_of_block(f->body, f->kind == ForKind::Parallel ? times : times * count_of(f->size));
    } else if (const auto* c = std::get_if<Compute>(&s.v)) {
      int one = (c->op == LoopOp::Load || c->op == LoopOp::Store || c->op == LoopOp::StoreAdd)
                    ? ir::byte_size(c->dtype)
                    : cost_of(c->op, c->dtype);
      sum += times * one;
    } else {
      sum += times;
    }
  }
  return sum;
}

}  // namespace

int64_t iteration_cost(const Kernel& k) { return cost_of_block(k.body, 1); }

}  // namespace oxy::schedule
