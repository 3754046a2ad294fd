// Recordings of branches and loop bodies as regions of the graph around them.
#pragma once

#include "ir/graph.h"
#include "torch_bridge/recorder.h"

namespace oxy::bridge {

// Constants of regions as inputs behind the others, the same in each region: they are returned, as
// operands.
std::vector<at::Tensor> lift_attributes(std::vector<RecordedRegion>& regions);

// The graph as a region of another one. A result that is a copy of an input becomes the input,
// which the node copies. Unsupported for what no region may be.
void make_region(ir::Graph& graph, const std::shared_ptr<sym::ExprPool>& pool);

// What a node with these regions gives. Unsupported where a branch or a round would give something
// else.
std::vector<ir::Type> result_types(const ir::RegionOp& op,
                                   const std::vector<RecordedRegion>& regions);

}  // namespace oxy::bridge
