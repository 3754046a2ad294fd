// min and max: operands that ranges decide drop out, the others form a sorted left-nested chain.
#include <algorithm>

#include "symbolic/sum.h"

namespace oxy::sym {
namespace {

void flatten(Kind kind, Expr e, SmallVector<Expr, 8>& out) {
  if (e.kind() != kind) return out.push_back(e);
  for (Expr op : e.operands()) flatten(kind, op, out);
}

// Whether min(a, b) (or max) is a for certain.
bool decides(Kind kind, Expr a, Expr b) {
  if (a == b) return true;
  Range d = range_of(a - b);
  return kind == Kind::Min ? d.hi <= 0 : d.lo >= 0;
}

// max(a, min(a, b)) and min(a, max(a, b)) are a.
bool absorbs(Kind kind, Expr a, Expr b) {
  if (b.kind() != (kind == Kind::Min ? Kind::Max : Kind::Min)) return false;
  SmallVector<Expr, 8> inner;
  flatten(b.kind(), b, inner);
  return std::find(inner.begin(), inner.end(), a) != inner.end();
}

// Adds an operand to those that still count.
void add_operand(Kind kind, Expr e, SmallVector<Expr, 8>& kept) {
  size_t n = 0;
  for (Expr k : kept) {
    if (decides(kind, k, e) || absorbs(kind, k, e)) return;
  }
  for (Expr k : kept) {
    if (!decides(kind, e, k) && !absorbs(kind, e, k)) kept[n++] = k;
  }
  kept.truncate(n);
  kept.push_back(e);
}

Expr extremum(ExprPool::Impl& pool, Kind kind, Expr a, Expr b) {
  SmallVector<Expr, 8> all, kept;
  flatten(kind, a, all);
  flatten(kind, b, all);
  for (Expr e : all) add_operand(kind, e, kept);
  std::sort(kept.begin(), kept.end());
  Expr r = kept[0];
  for (size_t i = 1; i < kept.size(); ++i) {
    Expr ops[2] = {r, kept[i]};
    r = pool.intern(kind, ops);
  }
  return r;
}

}  // namespace

Expr min(Expr a, Expr b) {
  if (a == b) return a;
  if (a.is_const() && b.is_const()) return std::min(a.value(), b.value());
  return remember(Kind::Min, a, b,
                  [&](ExprPool::Impl& pool) { return extremum(pool, Kind::Min, a, b); });
}

Expr max(Expr a, Expr b) {
  if (a == b) return a;
  if (a.is_const() && b.is_const()) return std::max(a.value(), b.value());
  return remember(Kind::Max, a, b,
                  [&](ExprPool::Impl& pool) { return extremum(pool, Kind::Max, a, b); });
}

}  // namespace oxy::sym
