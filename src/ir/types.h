// Types of values: what a tensor is before any data exists.
#pragma once

#include "support/dtype.h"
#include "symbolic/expr.h"

namespace oxy::ir {

using sym::Expr;

using oxy::byte_size;
using oxy::Device;
using oxy::DType;
using oxy::dtype_from_name;
using oxy::is_complex;
using oxy::is_floating;
using oxy::is_integral;
using oxy::is_reduced_float;
using oxy::Layout;
using oxy::MemoryFormat;
using oxy::name;
using oxy::print;
using oxy::torch_name;

// A strided tensor's metadata. Strides and offset count elements.
struct TensorType {
  DType dtype = DType::F32;
  Device device;
  std::vector<Expr> sizes;
  std::vector<Expr> strides;
  Expr offset = 0;
  bool requires_grad = false;

  int64_t dim() const { return static_cast<int64_t>(sizes.size()); }
  Expr numel() const;
  bool is_row_major() const;   // its strides are contiguous_strides()
  bool is_contiguous() const;  // known to be row-major (size-1 dimensions ignored)
  // Each element has its own place and there are no holes, in whatever order of dimensions.
  bool is_dense() const;
  // The dimensions of a dense tensor from the innermost one outwards; those of one element where
  // their strides say.
  std::optional<std::vector<size_t>> dense_order() const;
  // Two elements may be one in memory. Symbolic strides are taken for apart, but for 0.
  bool may_overlap_itself() const;
  friend bool operator==(const TensorType&, const TensorType&) = default;
};
// The same dtype, device, sizes and strides: not where it begins, nor what autograd knows of it.
bool same_layout(const TensorType& a, const TensorType& b);
// The same offset too: equal in all that a reader of the tensor can see.
bool same_place(const TensorType& a, const TensorType& b);
std::vector<Expr> contiguous_strides(const std::vector<Expr>& sizes);
// `f32[2, 3]`; then what differs from the usual: the device (`cuda:0`), `requires_grad`,
// `strides=[1, 2]` where it is not row-major, `offset=4`; in this order, as an expression may stand
// last only.
std::string print(const TensorType& t);

// What a value of the graph is: a tensor, a symbolic number, or something a node gives that is
// neither (None, an opaque Python object of the Torch IR).
struct Type {
  enum class Kind : uint8_t { None, Tensor, Int, Float, Bool, Opaque };
  Kind kind = Kind::None;
  TensorType tensor;  // Kind::Tensor
  Expr expr = 0;      // Kind::Int: its value

  static Type of(TensorType t) { return Type{Kind::Tensor, std::move(t), 0}; }
  static Type integer(Expr e) { return Type{Kind::Int, {}, e}; }
  static Type none() { return {}; }
  static Type opaque() { return Type{Kind::Opaque, {}, 0}; }
  bool is_tensor() const { return kind == Kind::Tensor; }
  friend bool operator==(const Type&, const Type&) = default;
};
bool same_place(const Type& a, const Type& b);
// The tensor's text, or `None`, `int(s0)`, `float`, `bool`, `object`.
std::string print(const Type& t);

}  // namespace oxy::ir
