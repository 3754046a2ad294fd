// floordiv and mod: the parts that divide.cpp (constant divisors) and divide_symbolic.cpp share.
// Private to src/symbolic.
#pragma once

#include "symbolic/sum.h"

namespace oxy::sym {

// The quotient and remainder by a divisor that is not a constant.
Expr floordiv_by_expr(ExprPool::Impl& pool, Expr a, Expr b);
Expr mod_by_expr(ExprPool::Impl& pool, Expr a, Expr b);

}  // namespace oxy::sym
