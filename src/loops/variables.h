// Names of loop variables. Loops that have axes of equal size share their symbols (the n-th axis of
// that size in one loop is always the same symbol), so equal layers of a model give equal
// expressions and, later, equal kernels.
#pragma once

#include <map>
#include <memory>
#include <tuple>
#include <unordered_set>

#include "symbolic/expr.h"

namespace oxy::loops {

using sym::Expr;

// Whether a symbol is an axis or a loaded index, and no size: names that begin with p, r or i
// belong to loops.
bool is_variable(Expr symbol);
// Whether no variable occurs: the same at all iterations of a call.
bool is_size(Expr e);

class Variables {
 public:
  explicit Variables(std::shared_ptr<sym::ExprPool> pool) : pool_(std::move(pool)) {}

  // The `ordinal`-th variable of this size, a symbol with range [0, size). Prefix: 'p' parallel
  // axis, 'r' reduction axis, 'i' loaded index.
  Expr get(char prefix, Expr size, uint32_t ordinal);

 private:
  std::shared_ptr<sym::ExprPool> pool_;
  std::map<std::tuple<char, uint64_t, uint32_t>, Expr> known_;
  std::map<char, uint32_t> next_;
};

// Hands out the variables of one loop: each call for the same size gives the next ordinal that is
// not taken.
class VariableScope {
 public:
  explicit VariableScope(Variables& all) : all_(all) {}
  Expr get(char prefix, Expr size);
  // Notes a variable that has its place already; false where it was noted or handed out before.
  bool take(Expr variable) { return taken_.insert(variable).second; }

 private:
  Variables& all_;
  std::map<std::pair<char, uint64_t>, uint32_t> next_;
  std::unordered_set<Expr> taken_;
};

}  // namespace oxy::loops
