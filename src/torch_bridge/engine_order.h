// The order in which autograd's engine comes to nodes.
#pragma once

#include <torch/csrc/autograd/edge.h>

#include <vector>

namespace oxy::bridge {

// Of a backward that begins at `from`, on one thread.
std::vector<torch::autograd::Node*> in_engine_order(const torch::autograd::edge_list& from);

// Whether a backward from there comes to the node.
bool leads_to(const torch::autograd::edge_list& from, const torch::autograd::Node& node);

}  // namespace oxy::bridge
