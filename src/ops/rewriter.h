// What decompositions write with.
#pragma once

#include "ops/args.h"
#include "ops/promote.h"
#include "support/check.h"

namespace oxy::ops {

// A shape rule that does not know what an op of a decomposition gives: at some sizes of its symbols
// it may be one thing, at others another.
class UnknownShape : public InternalError {
  using InternalError::InternalError;
};

// Appends nodes in front of the one being replaced, with types from the shape rules; the stack and
// the parent are the replaced node's.
class Rewriter {
 public:
  Rewriter(ir::Graph& g, ir::NodeId at) : graph_(g), at_(at) {}
  ir::Graph& graph() { return graph_; }
  // One output; its type comes from the op's shape rule, which must know it.
  ir::ValueId call(std::string_view op, std::vector<ir::Arg> args);
  std::vector<ir::ValueId> call_multi(std::string_view op, std::vector<ir::Arg> args);
  // Of an op without a shape rule: the caller knows what it gives.
  ir::ValueId call(std::string_view op, std::vector<ir::Arg> args, ir::TensorType type);
  const ir::TensorType& type(ir::ValueId v) const { return graph_.tensor_type(v); }

  // Short names for the ops that decompositions write.
  // The value itself where it has the dtype already.
  ir::ValueId cast(ir::ValueId v, DType d);
  // In the dtype that half precision is computed in.
  ir::ValueId widen(ir::ValueId v) { return cast(v, opmath(type(v).dtype)); }
  // The value with the dtype and layout of `t`, which has its shape; nothing where that is neither
  // row-major nor channels-last.
  std::optional<ir::ValueId> as(ir::ValueId v, const ir::TensorType& t);

  ir::ValueId add(ir::ValueId a, ir::ValueId b) { return call("aten.add.Tensor", {a, b, 1}); }
  ir::ValueId sub(ir::ValueId a, ir::ValueId b) { return call("aten.sub.Tensor", {a, b, 1}); }
  ir::ValueId mul(ir::ValueId a, ir::ValueId b) { return call("aten.mul.Tensor", {a, b}); }
  ir::ValueId div(ir::ValueId a, ir::ValueId b) { return call("aten.div.Tensor", {a, b}); }
  ir::ValueId add(ir::ValueId a, double b) { return call("aten.add.Scalar", {a, b, 1}); }
  ir::ValueId div(ir::ValueId a, ir::Arg b) { return call("aten.div.Scalar", {a, std::move(b)}); }
  ir::ValueId unary(std::string_view op, ir::ValueId v) { return call(op, {v}); }
  ir::ValueId sum(ir::ValueId v, const std::vector<int64_t>& dims, bool keepdim);
  ir::ValueId amax(ir::ValueId v, const std::vector<int64_t>& dims, bool keepdim);
  ir::ValueId view(ir::ValueId v, const std::vector<Expr>& sizes);
  // The value itself where it is row-major.
  ir::ValueId row_major(ir::ValueId v);
  // The same, and where it begins with its memory.
  ir::ValueId compact(ir::ValueId v);
  ir::ValueId full(const std::vector<Expr>& sizes, ir::Arg number, DType d, ir::Device device);
  // A copy of the value in memory of its own, with these strides.
  ir::ValueId copy(ir::ValueId v, const std::vector<Expr>& strides);

 private:
  ir::Node& insert(std::string_view op, std::vector<ir::Arg> args, Types types);

  ir::Graph& graph_;
  ir::NodeId at_;
};

// Ends a decomposition: adds a value that could be made, else says that it could not.
inline bool give(std::vector<ir::ValueId>& out, std::optional<ir::ValueId> v) {
  if (v) out.push_back(*v);
  return v.has_value();
}

ir::List list_of(const std::vector<int64_t>& xs);
ir::List list_of(const std::vector<Expr>& xs);

}  // namespace oxy::ops
