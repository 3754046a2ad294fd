// What the files about autograd ask of its nodes.
#pragma once

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>

namespace oxy::python {

inline bool is_accumulation(const torch::autograd::Node& node) {
  return dynamic_cast<const torch::autograd::AccumulateGrad*>(&node) != nullptr;
}

// It stands for an input's history in front of the captured code (torch_bridge/joint_recording).
inline bool is_entrance(const torch::autograd::Node& node) {
  return node.num_outputs() == 0 && !is_accumulation(node);
}

bool has_old_history(const at::Tensor& t);  // gradients.cpp

}  // namespace oxy::python
