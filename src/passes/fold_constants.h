// Computes at compile time what cannot change: casts, views, negation, sums and products of full
// tensors and numbers become full tensors.
//
// Stands after canonicalize (which knows one op that makes constants) and before remove_noops and
// cse. Contents of inputs and attributes are never looked at: what derives from a tensor that can
// change does not outlive a call (only freezing would allow that). Arithmetic is the dtype's own,
// rounded as ATen rounds; dtypes that this pass does not know exactly stay in the graph.
#pragma once

#include "ir/graph.h"

namespace oxy::passes {
bool fold_constants(ir::Graph& g);
}
