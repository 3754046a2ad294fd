// What the setting `freezing` lets a compilation do: some inputs (parameters and buffers of
// modules) count as constants, and whoever runs the plan makes sure that they are what they were.
//
// `frozen` says so by input; attributes are constants too. A value is constant where it is computed
// from these and from nothing that varies, by calls that are neither random nor unknown to us. What
// is large beside what it is made of (an expanded tensor, int8 weights as floats) is not: reading
// it would cost more than computing it again.
#pragma once

#include <vector>

#include "ir/graph.h"

namespace oxy::passes {

// Inference batch norm behind a convolution whose weights are constant becomes part of them:
//   w' = w * s, b' = (b - mean) * s + beta with s = gamma / sqrt(var + eps)
// Rounds differently than the two ops. Stands first, while both are single calls.
bool fold_batch_norm(ir::Graph& g, const std::vector<bool>& frozen);

// Moves constant values out of the graph: each that is read by what remains becomes an attribute
// behind those that are there, and the graph that is returned computes them, in this order, from
// the same inputs and attributes. Views of inputs stay: they cost nothing. So does what the caller
// gets, which must be a tensor of its own each time. Stands last.
ir::Graph lift_constants(ir::Graph& g, const std::vector<bool>& frozen);

}  // namespace oxy::passes
