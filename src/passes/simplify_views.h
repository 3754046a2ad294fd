// Chains of views become one view: view of view, of squeeze and of unsqueeze; permute of permute;
// expand of expand.
//
// Stands after canonicalize (transpositions are permutes by then) and before remove_noops, which
// drops a chain that ends where it began, and before cse. A chain is taken together only where the
// one view gives the same strides.
#pragma once

#include "ir/graph.h"

namespace oxy::passes {
bool simplify_views(ir::Graph& g);
}
