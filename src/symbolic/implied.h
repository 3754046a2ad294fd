// Whether an inequality follows from others, from the ranges of symbols and from what divisions,
// remainders, products, min and max mean. Private to src/symbolic.
#pragma once

#include <optional>
#include <span>

#include "symbolic/expr.h"

namespace oxy::sym {

// Whether d <= 0 wherever each of `known` is at most 0. False means "not known": the search ends
// after a number of steps.
bool follows(Expr d, std::span<const Expr> known);

// A min or max in it, the innermost ones first.
std::optional<Expr> extremum_in(Expr e);
Expr replaced(Expr e, Expr from, Expr to);

// The least value of a symbol that its range and those of `known` allow that speak of it alone.
int64_t least_of(Expr symbol, std::span<const Expr> known);

}  // namespace oxy::sym
