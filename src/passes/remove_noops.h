// Removes calls whose result is their operand: multiplication by 1, views of the same sizes, copies
// of what nobody can tell from its copy, cat of one tensor, dropout in evaluation.
//
// Stands after canonicalize and again after simplify_views and fold_constants, which bring such
// calls out. x + 0 is one of them only for integers: for floats -0.0 + 0.0 is 0.0. A copy that
// keeps what is returned apart from an input, or two returned tensors from each other, stays
// (replace.h).
#pragma once

#include "ir/graph.h"

namespace oxy::passes {
bool remove_noops(ir::Graph& g);
}
