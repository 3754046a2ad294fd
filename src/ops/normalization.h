// What the normalisations and their gradients have in common.
#pragma once

#include "ops/rewriter.h"
#include "ops/shapes.h"

namespace oxy::ops {

using Dims = std::vector<int64_t>;

// A tensor of real numbers that loops compute with.
bool is_real(const ir::TensorType* t);

// The sum over `dims`, which are kept with size 1, divided by how many elements there are.
ir::ValueId mean_over(Rewriter& r, ir::ValueId v, const Dims& dims);

// The first result of native_layer_norm from its input and its statistics, computed as the op does;
// nothing where these are rounded.
std::optional<ir::ValueId> layer_normalized(Rewriter& r, const ir::Node& n);

// The result of a batch norm, or its gradient: in the input's memory format, also where the input
// has gaps.
std::optional<ir::TensorType> batch_norm_like(const ir::TensorType& t);
// The same in the format that the strides alone suggest.
std::optional<ir::TensorType> suggested_like(const ir::TensorType& t);

// fp16 and bf16 with parameters in f32 (arguments `first` up to `last`) keep their statistics in
// f32; nothing where the dtypes do not go together.
std::optional<DType> statistics_dtype(const Args& a, const ir::TensorType& t, size_t first,
                                      size_t last);

// All dimensions but the channels, and a channel's numbers as a factor of such a tensor.
Dims all_but_channels(const ir::TensorType& t);
ir::ValueId of_channels(Rewriter& r, ir::ValueId v, const ir::TensorType& t);

}  // namespace oxy::ops
