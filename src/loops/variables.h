// Names of loop variables. Loops that have axes of equal size share their symbols (the n-th axis of that size in one
// loop is always the same symbol), so equal layers of a model give equal expressions and, later, equal kernels.
#pragma once

#include <map>
#include <memory>
#include <tuple>

#include "symbolic/expr.h"

namespace oxy::loops {

using sym::Expr;

class Variables {
 public:
  explicit Variables(std::shared_ptr<sym::ExprPool> pool) : pool_(std::move(pool)) {}

  // The `ordinal`-th variable of this size, a symbol with range [0, size). Prefix: 'p' parallel axis, 'r' reduction
  // axis, 'i' loaded index.
  Expr get(char prefix, Expr size, uint32_t ordinal);

 private:
  std::shared_ptr<sym::ExprPool> pool_;
  std::map<std::tuple<char, uint64_t, uint32_t>, Expr> known_;
  std::map<char, uint32_t> next_;
};

// Hands out the variables of one loop: each call for the same size gives the next ordinal.
class VariableScope {
 public:
  explicit VariableScope(Variables& all) : all_(all) {}
  Expr get(char prefix, Expr size) {
    return all_.get(prefix, size, used_[{prefix, size.bits()}]++);
  }

 private:
  Variables& all_;
  std::map<std::pair<char, uint64_t>, uint32_t> used_;
};

}  // namespace oxy::loops
