// Shapes of element-wise ops: broadcasting, and the layout that ATen's TensorIterator gives a fresh
// output. Geometry of views: sizes, strides and offset of what a view op gives.
#pragma once

#include "ops/promote.h"

namespace oxy::ops {

using Sizes = std::vector<Expr>;

// The common shape of two; nothing where it is not known, or is an error.
std::optional<Sizes> broadcast(const Sizes& a, const Sizes& b);
// Equal for every value of the symbols.
bool known_same(const Sizes& a, const Sizes& b);

// Strides of a fresh output of shape `sizes` computed from `operands`, whose sizes broadcast to it.
// `has_number` says that a Python number is among the operands (it counts as a tensor without
// dimensions). Row-major where all are row-major, channels-last where all are; the operands' own
// strides where they agree and are dense; else the dimensions are ordered by the operands' strides,
// the first operand deciding first.
std::optional<Sizes> elementwise_strides(const Sizes& sizes,
                                         std::span<const ir::TensorType* const> operands,
                                         bool has_number);
// Dense strides which keep the order of dimensions of `strides` (what empty_like gives a tensor
// with holes).
std::optional<Sizes> dense_strides_like(const Sizes& sizes, const Sizes& strides);
// Strides of empty_like(t), memory format preserve.
std::optional<Sizes> preserved_strides(const ir::TensorType& t);
std::optional<ir::TensorType> empty_like(const ir::TensorType& t);
Sizes channels_last_strides(const Sizes& sizes);  // of four or five dimensions
bool is_channels_last(const ir::TensorType& t);
// Whether Tensor::suggest_memory_format gives channels-last (of four or five dimensions); nothing
// where the sizes and strides are not known.
std::optional<bool> suggests_channels_last(const ir::TensorType& t);

// Which dtype the result of an element-wise op has.
enum class ResultDType : uint8_t {
  Promoted,  // the operands' common dtype
  Float,     // the same, integers and bool becoming f32
  Bool,
};

// What eager asks of the dtypes, with an error otherwise.
enum class Needs : uint8_t {
  Anything,
  NotBool,         // of the result
  Floating,        // of the result
  Integers,        // of the result, bool among them
  NumberIntegers,  // of the result, without bool
  NoBool,          // of each operand
  AllFloating,     // each tensor
  NoHalf,          // of the result
  SameDType,       // tensors of one dtype
  SameFloating,
};
bool meets(Needs needs, const Args& args, std::span<const size_t> operands, DType common);

// The type of an element-wise result of arguments `operands` (tensors and numbers), laid out as the
// arguments `layout_of`, else as all. TensorIterator converts operands to the common dtype before
// it looks at strides.
std::optional<ir::TensorType> elementwise_type(const Args& args, std::span<const size_t> operands,
                                               ResultDType rule,
                                               std::span<const size_t> layout_of = {});
// The dtype in which an element-wise op computes before fp16 and bf16 are widened: integers become
// f32 where `to_float`.
std::optional<DType> common_dtype(const Args& args, std::span<const size_t> operands,
                                  bool to_float);

// A tensor type of this shape, row-major from offset 0; with the dtype and the device of `like`.
ir::TensorType row_major(DType dtype, ir::Device device, Sizes sizes);
inline ir::TensorType fresh(const ir::TensorType& like, Sizes sizes) {
  return row_major(like.dtype, like.device, std::move(sizes));
}
// Ends a shape rule: adds a result that is known, else says that it is not.
bool give(Types& out, std::optional<ir::TensorType> result);

// Gives a result the strides of empty_like(t), where `t` has its shape.
bool lay_out_like(const ir::TensorType* t, ir::TensorType& result);

// The shape rule of an op whose first N arguments are its operands.
template <ResultDType R, size_t N, Needs W = Needs::Anything, bool LastFirst = false>
bool shape_elementwise(const Args& a, Types& out) {
  size_t operands[N];
  for (size_t i = 0; i < N; ++i) operands[i] = LastFirst ? N - 1 - i : i;
  auto t = elementwise_type(a, operands, R);
  if (!t || !meets(W, a, operands, t->dtype)) return false;
  return give(out, std::move(t));
}

// The same of an op that makes its result by empty_like of the first operand.
template <ResultDType R, size_t N, Needs W = Needs::Anything>
bool shape_like_first(const Args& a, Types& out) {
  if (!shape_elementwise<R, N, W>(a, out)) return false;
  return lay_out_like(a.tensor(0), out.back().tensor);
}

// The shape rule of images (batch, channels, one to three dimensions) that grow or shrink; self,
// output_size.
bool shape_upsample(const Args& a, Types& out);

// ---- views ----

// `view` of a tensor of these sizes and strides as `to`; nothing where it would need a copy, or is
// not known.
std::optional<Sizes> view_strides(const ir::TensorType& t, const Sizes& to);
// `sizes` with a -1 replaced by what makes the number of elements `numel`.
std::optional<Sizes> infer_size(Sizes sizes, Expr numel);

// A slice's first element and length, after the rules of Python.
struct SliceBounds {
  Expr start, length, step;
};
std::optional<SliceBounds> slice_bounds(Expr size, std::optional<Expr> start,
                                        std::optional<Expr> end, Expr step);
// An index that counts from the end where it is negative; nothing where it is not known to be in
// range.
std::optional<Expr> wrap_index(Expr index, Expr size);

// The index of a tensor of sizes `from` that holds the element at `index` of the same elements, row
// by row, of sizes `to`. Runs of dimensions with equal products map to each other, so that
// untouched dimensions keep their index.
Index reshape_index(const Sizes& from, const Sizes& to, const Index& index);

}  // namespace oxy::ops
