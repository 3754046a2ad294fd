// The order in which autograd's engine comes to nodes, and what these are.
#pragma once

#include <torch/csrc/autograd/edge.h>

#include <vector>

namespace oxy::bridge {

// Of a backward that begins at `from`, on one thread.
std::vector<torch::autograd::Node*> in_engine_order(const torch::autograd::edge_list& from);

// Whether it is of a torch.autograd.Function. Torch does not export what a dynamic_cast needs.
bool is_of_python(const torch::autograd::Node& node);

// Whether a backward from there comes to the node.
bool leads_to(const torch::autograd::edge_list& from, const torch::autograd::Node& node);

}  // namespace oxy::bridge
