// Sizes of a recording as torch sees them: SymInts whose nodes are our expressions.
//
// Arithmetic stays symbolic. A question about a size (is it equal, less, how much is it) is
// answered at the hints and becomes a fact of the recording; so does anything that needs the
// number, such as a float made of it.
//
// A number that is another one at each call of a graph is a Scalar whose value nobody knows: whoever
// asks for it gets Unsupported.
#pragma once

#include <c10/core/Scalar.h>

#include <memory>
#include <optional>

#include "ir/graph.h"
#include "symbolic/facts.h"

namespace oxy::bridge {

// A plain number where the expression is one.
c10::SymInt to_sym_int(sym::Expr e, const std::shared_ptr<sym::ShapeFacts>& facts);
// The expression behind a SymInt, in its simplest form under the facts. Unsupported for a node that
// is not ours.
sym::Expr expr_of(const c10::SymInt& s);
// Its value at the hints; no fact comes of it.
int64_t hint_of(const c10::SymInt& s);

// The number that `value`, a tensor without dimensions, holds at a call.
c10::Scalar runtime_number(ir::ValueId value, bool integer);
// The tensor behind such a number; nothing for any other.
std::optional<ir::ValueId> tensor_behind(const c10::Scalar& s);

}  // namespace oxy::bridge
