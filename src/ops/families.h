// The families of the op table: each gives its rows, which stand in <family>.def.
#pragma once

#include "ops/op_table.h"

namespace oxy::ops {

std::span<const OpInfo> pointwise_ops();
std::span<const OpInfo> activation_ops();
std::span<const OpInfo> blend_ops();
std::span<const OpInfo> view_ops();
std::span<const OpInfo> creation_ops();
std::span<const OpInfo> reduction_ops();
std::span<const OpInfo> normalization_ops();
std::span<const OpInfo> indexing_ops();
std::span<const OpInfo> scatter_ops();
std::span<const OpInfo> matmul_ops();
std::span<const OpInfo> special_ops();
std::span<const OpInfo> bessel_ops();
std::span<const OpInfo> error_function_ops();
std::span<const OpInfo> polynomial_ops();
std::span<const OpInfo> loss_ops();
std::span<const OpInfo> rearrange_ops();
std::span<const OpInfo> window_ops();
std::span<const OpInfo> sampling_ops();
std::span<const OpInfo> scan_ops();
std::span<const OpInfo> function_ops();
std::span<const OpInfo> effect_ops();

}  // namespace oxy::ops

// A .def row is OP(name, schema, traits, shape, element, decomposition, applies), REDUCE(name,
// schema, traits, shape, reduction, element, decomposition, applies) or SCATTER(name, schema,
// shape, element, scatter, update, decomposition, applies); `none` stands for a rule that is not
// there.
#define OXY_OP_ROW(name, schema, traits, shape, element, decomposition, applies) \
  OpInfo{name, schema, traits, shape, element, nullptr, decomposition, applies},
#define OXY_REDUCE_ROW(name, schema, traits, shape, reduction, element, decomposition, applies) \
  OpInfo{name, schema, (traits) | Reduction, shape, element, reduction, decomposition, applies},
#define OXY_SCATTER_ROW(name, schema, shape, element, scatter, update, decomposition, applies) \
  OpInfo{name, schema, Pure, shape, element, nullptr, decomposition, applies, scatter, update},
