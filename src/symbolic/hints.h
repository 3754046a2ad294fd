// What a symbol stands for in the call that a graph was recorded with: choices are made for it.
#pragma once

#include "symbolic/expr.h"

namespace oxy::sym {

std::optional<int64_t> symbol_hint(Expr symbol);

}  // namespace oxy::sym
