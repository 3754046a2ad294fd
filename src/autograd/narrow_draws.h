// Masks of a joint graph that are drawn in floating point, as those of dropout: the backward keeps
// them as bools, a byte an element.
//
// Whoever reads a draw of zeros and ones in a loop reads the bools, converted back, instead: the
// cut finds them the smallest thing to save. Run in front of sides_of.
#pragma once

#include "ir/graph.h"

namespace oxy::autograd {

void narrow_draws(ir::Graph& joint);

}  // namespace oxy::autograd
