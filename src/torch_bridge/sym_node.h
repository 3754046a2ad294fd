// Sizes of a recording as torch sees them: SymInts whose nodes are our expressions.
//
// Arithmetic stays symbolic. A question about a size (is it equal, less, how much is it) is
// answered at the hints and becomes a fact of the recording; so does anything that needs the
// number, such as a float made of it.
#pragma once

#include <c10/core/SymBool.h>
#include <c10/core/SymInt.h>

#include <memory>

#include "symbolic/facts.h"

namespace oxy::bridge {

// A plain number where the expression is one.
c10::SymInt to_sym_int(sym::Expr e, const std::shared_ptr<sym::ShapeFacts>& facts);
// The expression behind a SymInt, in its simplest form under the facts. Unsupported for a node that
// is not ours.
sym::Expr expr_of(const c10::SymInt& s);
// Its value at the hints; no fact comes of it.
int64_t hint_of(const c10::SymInt& s);

}  // namespace oxy::bridge
