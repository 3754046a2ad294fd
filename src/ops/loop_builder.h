// What a loop rule writes to: the element of a result at one index, as scalar operations on
// elements of the operands.
//
// A rule says what one output element is; it does not know layouts, fusion or vectors. src/loops
// implements the builder.
#pragma once

#include <initializer_list>
#include <string_view>
#include <vector>

#include "ir/graph.h"

namespace oxy::ops {

using ir::DType;
using sym::Expr;

enum class LoopOp : uint8_t {
#define LOOP_OP(e, text, arity, cls) e,
#include "ops/loop_ops.def"
#undef LOOP_OP
  Count
};
// The last column of loop_ops.def.
enum class LoopClass : uint8_t { Arith, Compare, Logic, Math, Iterated, Special };
std::string_view name(LoopOp op);
std::optional<LoopOp> loop_op_from_name(std::string_view s);
int arity(LoopOp op);
LoopClass class_of(LoopOp op);

// LogSumExp is of a Scan only. Last keeps the newer of two values: of a StoreAdd only.
enum class ReduceKind : uint8_t { Sum, Prod, Max, Min, Any, All, ArgMax, ArgMin, LogSumExp, Last };
std::string_view name(ReduceKind k);
std::optional<ReduceKind> reduce_from_name(std::string_view s);

// A scalar of the body under construction.
struct Scalar {
  uint32_t id = UINT32_MAX;
  DType dtype = DType::F32;
};
using Index = std::vector<Expr>;  // one expression a dimension

class LoopBuilder {
 public:
  virtual ~LoopBuilder() = default;

  // The element of a graph value (a tensor) at a logical index, in the value's dtype.
  virtual Scalar load(ir::ValueId value, const Index& index) = 0;
  // The same where `mask` (b8) holds; elsewhere `other` (of the value's dtype), and nothing is
  // read.
  virtual Scalar load_masked(ir::ValueId value, const Index& index, Scalar mask, Scalar other) = 0;
  virtual Scalar constant(double v, DType dtype) = 0;
  virtual Scalar constant_int(int64_t v, DType dtype) = 0;
  // The value of an index expression, as i64.
  virtual Scalar index(Expr e) = 0;
  // A loaded integer as part of an index: checked to lie in [-size, size) and wrapped (negative
  // counts from the end) when `wrap`, else to lie in [0, size). Out of range sets the kernel's
  // status, and the call reruns in eager.
  virtual Expr indirect(Scalar i, Expr size, bool wrap) = 0;
  // A computed integer that lies in [0, size) whatever the operands hold: nothing is checked.
  virtual Expr computed_index(Scalar i, Expr size) = 0;
  // One operation. Operands of half precision are computed in f32 and the result is rounded back,
  // as eager does; Cast and Bitcast go through `cast` and `bitcast`.
  virtual Scalar op(LoopOp op, std::initializer_list<Scalar> args) = 0;
  virtual Scalar cast(Scalar v, DType dtype) = 0;  // no instruction where the dtype is the same
  virtual Scalar bitcast(Scalar v, DType dtype) = 0;

  virtual const ir::Graph& graph() const = 0;
  sym::ExprPool& pool() const { return *graph().pool; }
};

}  // namespace oxy::ops
