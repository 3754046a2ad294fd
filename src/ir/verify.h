// Checks the invariants of a graph; throws InternalError naming the node.
//   every value is defined once, before its use; outputs point back to their node; inputs precede calls;
//   the types of tensors have as many strides as sizes; ATen stage: targets are "ns.op.overload", no kwargs, output
//   specs are in range, `returns` matches the number of outputs; no live node reads a dead node's value.
#pragma once

#include "ir/graph.h"

namespace oxy::ir {
void verify(const Graph& g);
}
