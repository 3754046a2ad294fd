// Index expressions as C++, with the names that loop variables and symbols have in the text.
#pragma once

#include <functional>
#include <string>

#include "symbolic/expr.h"

namespace oxy::codegen::cpp {

// Arithmetic on i64. Sums and products are in the order of their texts, so that equal kernels of
// layers whose expressions were made in another order print equally.
std::string index_text(sym::Expr e, const std::function<std::string(sym::Expr symbol)>& name);

}  // namespace oxy::codegen::cpp
