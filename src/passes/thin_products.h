// Products with few rows (decoding one token) as loops: the time is that of reading the other matrix once, and as a sum
// of products it fuses with what stands around it. Which ones: ops/own_kernels.h.
#pragma once

#include "ir/graph.h"

namespace oxy::passes {

bool thin_products(ir::Graph& g);

}  // namespace oxy::passes
