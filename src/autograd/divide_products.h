// The gradient of a product of a joint graph: the product over each factor, as in eager.
//
// Eager looks whether a factor is 0. A recording cannot: autograd's formula multiplies all factors
// in front of each with all behind it, two scans. Both, by masks, are loops: the quotients, and
// where a row has a zero, the product of its other factors. Run in front of sides_of.
#pragma once

#include <vector>

#include "ir/graph.h"

namespace oxy::autograd {

// `formulas`: by node, whether autograd has called it; so has it what is new.
void divide_products(ir::Graph& joint, std::vector<bool>& formulas);

}  // namespace oxy::autograd
