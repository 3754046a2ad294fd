// The families of the op table: each gives its rows, which stand in <family>.def.
#pragma once

#include "ops/element.h"
#include "ops/shape_elementwise.h"

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

// Rules that a row leaves out are not there; its loop rule holds for dtypes that loops compute
// with.
inline constexpr std::nullptr_t none = nullptr;
inline constexpr Applies real = applies_computable, floating = applies_floating;
inline constexpr ShapeRule unary_float = shape_elementwise<ResultDType::Float, 1>;
inline constexpr ShapeRule unary_real =
    shape_elementwise<ResultDType::Promoted, 1, Needs::Floating>;
inline constexpr ShapeRule unary_number =
    shape_elementwise<ResultDType::Promoted, 1, Needs::NotBool>;
inline constexpr ShapeRule unary_bool = shape_elementwise<ResultDType::Bool, 1>;
inline constexpr ShapeRule unary_no_half = shape_elementwise<ResultDType::Float, 1, Needs::NoHalf>;
inline constexpr ShapeRule promoted = shape_elementwise<ResultDType::Promoted, 2>;
inline constexpr ShapeRule promoted_real =
    shape_elementwise<ResultDType::Promoted, 2, Needs::Floating>;
inline constexpr ShapeRule promoted_float = shape_elementwise<ResultDType::Float, 2>;
inline constexpr ShapeRule promoted_no_half =
    shape_elementwise<ResultDType::Float, 2, Needs::NoHalf>;
constexpr OpInfo op_row(std::string_view name, std::string_view schema, uint32_t traits,
                        ShapeRule shape = none, ElementRule element = none,
                        Decomposition decomposition = none, Applies applies = real) {
  return {name, schema, traits, shape, element, none, decomposition, element ? applies : none};
}
constexpr OpInfo reduce_row(std::string_view name, std::string_view schema, uint32_t traits,
                            ShapeRule shape, ReductionRule reduction, ElementRule element,
                            Decomposition decomposition = none, Applies applies = real) {
  return {name, schema, traits | Reduction, shape, element, reduction, decomposition, applies};
}
constexpr OpInfo scatter_row(std::string_view name, std::string_view schema, ShapeRule shape,
                             ElementRule element, ScatterRule scatter, UpdateRule update,
                             Decomposition decomposition = none, Applies applies = real) {
  return {name, schema, Pure, shape, element, none, decomposition, applies, scatter, update};
}

}  // namespace oxy::ops

// A row of a .def file is OP, REDUCE or SCATTER with the parameters of one of these.
#define OP(...) op_row(__VA_ARGS__),
#define REDUCE(...) reduce_row(__VA_ARGS__),
#define SCATTER(...) scatter_row(__VA_ARGS__),
