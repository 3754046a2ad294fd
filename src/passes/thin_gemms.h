// Gemms of one row with a small matrix as loops, which fuse with what stands around them. Which
// ones: ops/contraction.h.
#pragma once

#include "ir/graph.h"

namespace oxy::passes {

bool thin_gemms(ir::Graph& g);

}  // namespace oxy::passes
