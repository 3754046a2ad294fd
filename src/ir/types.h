// Types of values: what a tensor is before any data exists.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "symbolic/expr.h"

namespace oxy::ir {

using sym::Expr;

// Numbered as c10::ScalarType, so that crossing to torch is a cast.
enum class DType : int8_t {
#define DTYPE(e, num, text, torch, bytes) e = num,
#include "ir/dtype.def"
#undef DTYPE
  None = -1
};

std::string_view name(DType d);                            // "f32"
std::string_view torch_name(DType d);                      // "float32"
std::optional<DType> dtype_from_name(std::string_view s);  // either name
int byte_size(DType d);
bool is_floating(DType d);  // f16 bf16 f32 f64 and the f8 kinds
bool is_complex(DType d);
bool is_integral(DType d, bool include_bool);
inline bool is_half(DType d) { return d == DType::F16 || d == DType::BF16; }

enum class DeviceKind : int8_t { CPU = 0, CUDA = 1, Meta = 14 };  // numbered as c10::DeviceType

struct Device {
  int8_t kind = 0;  // a c10::DeviceType
  int8_t index = -1;
  friend bool operator==(const Device&, const Device&) = default;
  bool is_cpu() const { return kind == 0; }
};
std::string print(Device d);  // "cpu", "cuda:0"; "device9" for kinds without a name here

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
  // Two elements may be one in memory. Symbolic strides are taken for apart, but for 0.
  bool may_overlap_itself() const;
  friend bool operator==(const TensorType&, const TensorType&) = default;
};
// The same dtype, device, sizes and strides: not where it begins, nor what autograd knows of it.
bool same_layout(const TensorType& a, const TensorType& b);
// The same offset too: equal in all that a reader of the tensor can see.
bool same_place(const TensorType& a, const TensorType& b);
std::vector<Expr> contiguous_strides(const std::vector<Expr>& sizes);
// `f32[2, 3]`; then what differs from the usual: the device (`cuda:0`), `requires_grad`, `strides=[1, 2]` where it is not
// row-major, `offset=4`; in this order, as an expression may stand last only.
std::string print(const TensorType& t);

// What a value of the graph is: a tensor, a symbolic number, or something a node gives that is neither (None, an
// opaque Python object of the Torch IR).
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
