// Which symbols of a backward graph its inputs do not show.
#pragma once

#include <span>

#include "ir/graph.h"

namespace oxy::autograd {

// Those that no input's sizes, strides or number give, by the order of their creation. Of several
// tangents none is asked, since it may be undefined. What a call of the graph gives (a size that
// depends on data) is not among them.
std::vector<ir::Expr> unread_symbols(const ir::Graph& backward,
                                     std::span<const ir::ValueId> tangents);

}  // namespace oxy::autograd
