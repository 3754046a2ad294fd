// Gradients that are views of what arrives.
#pragma once

#include "ir/graph.h"

namespace oxy::autograd {

// Gradients, which are the first outputs of a backward, that are parts of a tangent's memory become
// views of it, as in eager, instead of copies: of tangents that no other gradient has a part of, or
// where the parts lie side by side. `first`: of the inputs that are tangents. Where eager gives two
// gradients the same memory, each is one's own.
void hand_on_views(ir::Graph& backward, size_t first, size_t gradients);

}  // namespace oxy::autograd
