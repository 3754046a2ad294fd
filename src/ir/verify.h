// Checks the invariants of a graph; throws InternalError naming the node.
//   every value is defined once, before its use; outputs point back to their node; inputs precede
//   calls; the types of tensors have as many strides as sizes; ATen stage: targets are
//   "ns.op.overload", no kwargs, output specs are in range, `returns` matches the number of
//   outputs; no live node reads a dead node's value.
//   Regions: only nodes of kind Region have them, as many as their op says; each is a graph that
//   verifies, of the same pool, with a parameter by operand and as many results as its place asks
//   for, in the types of operands and outputs (ATen); it has no attributes and no mutations; its
//   results are values, each once, or its parameters. What says whether to go on is a boolean, or a
//   tensor of one.
//   Joint stage: the ATen stage's invariants; tangents are tensors and only primals are mutated; a
//   gradient is None or a tensor of its primal's sizes.
#pragma once

#include "ir/graph.h"

namespace oxy::ir {
void verify(const Graph& g);
}
