// Common subexpressions: of two calls with equal op and arguments the later one goes.
//
// Stands after canonicalize, decompose and simplify_views, which make calls equal that were written
// differently, and before dce. Two values that are both returned stay two tensors.
#pragma once

#include "ir/graph.h"

namespace oxy::passes {
bool cse(ir::Graph& g);
}
