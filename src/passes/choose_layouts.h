// Gives convolutions channels-last activations, where our own kernels then take them
// (ops/contraction.h).
//
// A copy in front of the first convolution is all it costs: layouts propagate through element-wise
// ops, whose result is laid out as their operands. An op whose layout rule does not know the new
// layout gets its operand in the old one; so does everything that the caller sees. Stands behind
// the decompositions, which show what is element-wise, and before the last clean-up, which removes
// copies that turned out to be equal.
#pragma once

#include "ir/graph.h"

namespace oxy::passes {
bool choose_layouts(ir::Graph& g);
}
