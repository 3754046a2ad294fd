// Which products and convolutions run in our own kernels (codegen/cpp/product.h) instead of torch's libraries: a matter of
// the operands' types alone. f32, bf16 or f16 (convolutions: f32) on the CPU, rows of the left side contiguous, the right side
// contiguous along one of its dimensions; convolutions with two spatial dimensions and one group, on channels-last activations.
//
// Few rows have kernels of their own (codegen/cpp/dot_product.h, row_product.h), but halves times a matrix contiguous along n,
// which are left to torch, and one row times a tiny matrix, which is a loop (passes/thin_products.h).
#pragma once

#include "ir/graph.h"

namespace oxy::ops {

bool has_own_kernel(const ir::Graph& g, const ir::Node& n);

// A product (mm, bmm, addmm with a vector) of that kind with too few rows for such a kernel.
bool is_thin_product(const ir::Graph& g, const ir::Node& n);

// A convolution that would have one if its input were channels-last.
bool is_plain_conv2d(const ir::Graph& g, const ir::Node& n);

}  // namespace oxy::ops
