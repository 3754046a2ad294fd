// One way to write each thing: permute for every transposition, view for every reshape that copies
// nothing, full for every constant tensor, the Tensor variant for Tensor and Scalar ones, sizes and
// dimensions without negative numbers, constants as second operand, views for copies of views that
// are not returned.
//
// Stands first, so that the other passes know one form of each op, and again after decompose, which
// brings in others. No rule changes a layout; each rule takes a form away that no rule brings back,
// so the pass ends.
#pragma once

#include "ir/graph.h"

namespace oxy::passes {
bool canonicalize(ir::Graph& g);
}
