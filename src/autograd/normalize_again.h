// Layer norms of a joint graph: what the backward reads of the normalised tensor is computed from
// the input and the statistics, as the forward does it.
//
// A layer norm is one node, which a backward does not run again; but its gradient keeps input and
// statistics anyway, so that the result need not be kept for the gemms behind it. Run in front of
// sides_of.
#pragma once

#include "ir/graph.h"

namespace oxy::autograd {

void normalize_again(ir::Graph& joint);

}  // namespace oxy::autograd
