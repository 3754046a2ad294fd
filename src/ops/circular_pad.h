// Circular padding, which reaches us as ATen writes it: an empty tensor, the operand copied into
// its middle, then for each border a slice of the result copied into another slice of it.
#pragma once

#include "ops/element.h"

namespace oxy::ops {

// Of the slice_scatter that fills the last border: all of them as one op.
bool decompose_circular_pad(Rewriter& r, const ir::Node& n, std::vector<ir::ValueId>& out);

bool shape_circular_pad(const Args& a, Types& out);
Scalar circular_pad(Element& e);

}  // namespace oxy::ops
