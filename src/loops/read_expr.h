// Expressions inside the texts of loops and kernels.
#pragma once

#include "support/lexer.h"
#include "symbolic/expr.h"

namespace oxy::loops {

// The expression up to the next `,` `)` `]` `}` `:` `=` `{` or the end of the line. Unknown names
// become symbols that are at least 0: the sizes of a text that stands alone.
sym::Expr read_expr(Lexer& lexer, sym::ExprPool& pool);

}  // namespace oxy::loops
