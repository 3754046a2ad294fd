// The families of the op table: each gives its rows, which stand in <family>.def.
#pragma once

#include "ops/element.h"
#include "ops/shapes.h"

namespace oxy::ops {

using FamilyRows = std::span<const OpInfo>;
FamilyRows pointwise_ops();
FamilyRows activation_ops();
FamilyRows activation_gradient_ops();
FamilyRows view_ops();
FamilyRows view_gradient_ops();
FamilyRows creation_ops();
FamilyRows reduction_ops();
FamilyRows normalization_ops();
FamilyRows normalization_gradient_ops();
FamilyRows indexing_ops();
FamilyRows scatter_ops();
FamilyRows contraction_ops();
FamilyRows contraction_gradient_ops();
FamilyRows ordering_ops();
FamilyRows linear_algebra_ops();
FamilyRows distance_ops();
FamilyRows special_ops();
FamilyRows approximation_ops();
FamilyRows loss_ops();
FamilyRows loss_gradient_ops();
FamilyRows rearrange_ops();
FamilyRows window_ops();
FamilyRows window_gradient_ops();
FamilyRows sampling_ops();
FamilyRows quantization_ops();

// Rules of one family that rows of another name.
bool decompose_circular_pad(Rewriter& r, const ir::Node& n, std::vector<ir::ValueId>& out);
bool decompose_kthvalue(Rewriter& r, const ir::Node& n, std::vector<ir::ValueId>& out);
// Values and places of one element of each row along a dimension, row-major.
bool give_selected(Types& out, const ir::TensorType& t, int64_t dim, bool keepdim);
bool shape_diagonal_scatter(const Args& a, Types& out);
bool shape_convolution(const Args& a, Types& out);
Scalar tanh_of_softplus(Element& e, Scalar x);

// Rules that a row leaves out are not there; its loop rule holds for dtypes that loops compute
// with, that of a view for f8 as well.
inline constexpr std::nullptr_t none = nullptr;
inline constexpr Applies real = applies_computable, floating = applies_floating;
inline constexpr ResultDType Promoted = ResultDType::Promoted;
inline constexpr ShapeRule unary_float = shape_elementwise<ResultDType::Float, 1>;
inline constexpr ShapeRule unary_real = shape_elementwise<Promoted, 1, Needs::Floating>;
inline constexpr ShapeRule unary_number = shape_elementwise<Promoted, 1, Needs::NotBool>;
inline constexpr ShapeRule unary_bool = shape_elementwise<ResultDType::Bool, 1>;
inline constexpr ShapeRule unary_no_half = shape_elementwise<ResultDType::Float, 1, Needs::NoHalf>;
inline constexpr ShapeRule promoted = shape_elementwise<Promoted, 2>;
inline constexpr ShapeRule promoted_real = shape_elementwise<Promoted, 2, Needs::Floating>;
inline constexpr ShapeRule promoted_integers =
    shape_elementwise<Promoted, 2, Needs::NumberIntegers>;
inline constexpr ShapeRule promoted_float = shape_elementwise<ResultDType::Float, 2>;
inline constexpr ShapeRule promoted_no_half =
    shape_elementwise<ResultDType::Float, 2, Needs::NoHalf>;

// Schemas that many ops have.
inline constexpr std::string_view one_tensor = "(Tensor self) -> Tensor";
inline constexpr std::string_view two_tensors = "(Tensor self, Tensor other) -> Tensor";
inline constexpr std::string_view tensor_and_number = "(Tensor self, Scalar other) -> Tensor";

constexpr OpInfo op_row(std::string_view name, std::string_view schema, uint32_t traits,
                        ShapeRule shape = none, ElementRule element = none,
                        Decomposition decomposition = none, Applies applies = none) {
  if (applies == none) applies = traits & View ? applies_converted : applies_computable;
  return {name, schema, traits, shape, element, none, decomposition, element ? applies : none};
}
constexpr OpInfo reduce_row(std::string_view name, std::string_view schema, uint32_t traits,
                            ShapeRule shape, ReductionRule reduction, ElementRule element,
                            Decomposition decomposition = none, Applies applies = real) {
  return {name, schema, traits | Reduction, shape, element, reduction, decomposition, applies};
}
constexpr OpInfo scatter_row(std::string_view name, std::string_view schema, ShapeRule shape,
                             ElementRule element, ScatterRule scatter, UpdateRule update,
                             Decomposition decomposition = none, Applies applies = real,
                             uint32_t traits = Pure) {
  return {name, schema, traits, shape, element, none, decomposition, applies, scatter, update};
}

}  // namespace oxy::ops

// A row of a .def file is OP, REDUCE or SCATTER with the parameters of one of these.
#define OP(...) op_row(__VA_ARGS__),
#define REDUCE(...) reduce_row(__VA_ARGS__),
#define SCATTER(...) scatter_row(__VA_ARGS__),

// Ends of schemas: where a new tensor lies, its dtype too, its memory format too.
#define PLACE "Layout? layout=None, Device? device=None, bool? pin_memory=None"
#define OPTIONS "ScalarType? dtype=None, " PLACE
#define LIKE_OPTIONS OPTIONS ", MemoryFormat? memory_format=None"
