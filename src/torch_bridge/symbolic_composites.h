// Composite ops of torch whose kernels read sizes as numbers, for tensors of symbolic sizes:
// pooling along one dimension, parts of equal length, LSTM layers, images that are made larger or
// smaller by a factor, or to a size.
#pragma once

#include <torch/library.h>

namespace oxy::bridge {

// Registers their kernels under the library's key; other tensors go on below it.
void register_symbolic_composites(torch::Library& aten, c10::DispatchKeySet below);

}  // namespace oxy::bridge
