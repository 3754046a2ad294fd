// What most loop rules need: the operands at the index of an output element, cast, and short names
// for operations.
//
// Numerics: ATen computes half precision in f32 and rounds once at the end, so a rule of several
// steps works in `compute()` and ends in `finish`.
#pragma once

#include "ops/args.h"
#include "ops/promote.h"

namespace oxy::ops {

class Element {
 public:
  Element(LoopBuilder& b, const ir::Node& n, uint32_t out, const Index& index)
      : b(b), node(n), args(b.graph(), n), out(out), index(index) {}

  LoopBuilder& b;
  const ir::Node& node;
  Args args;
  uint32_t out;
  const Index& index;

  const ir::TensorType& result_type() const { return b.graph().tensor_type(node.outputs[out]); }
  DType result() const { return result_type().dtype; }
  // The dtype to compute the result in.
  DType compute() const { return opmath(result()); }

  // Argument i, a tensor (broadcast to `index`) or a number, in dtype `d`.
  Scalar operand(size_t i, DType d);
  // The same as eager reads a number where it rounds it to `through` first.
  Scalar operand(size_t i, DType d, DType through);
  // Argument i as a tensor, in its own dtype; the same at an index of its own.
  Scalar load(size_t i);
  Scalar load(size_t i, const Index& at) { return b.load(args[i].value(), at); }
  // The same where `mask` holds, or everywhere if there is none; elsewhere `other`.
  Scalar load(size_t i, const Index& at, std::optional<Scalar> mask, Scalar other) {
    return mask ? b.load_masked(args[i].value(), at, *mask, other) : load(i, at);
  }
  // A number argument in dtype `d`; `missing` where it was left out.
  Scalar number(size_t i, DType d, double missing);

  // Whether begin <= x < end.
  Scalar within(Expr x, Expr begin, Expr end);
  // Both conditions; the first one may be missing.
  Scalar both(std::optional<Scalar> x, Scalar y) { return x ? op(LoopOp::And, *x, y) : y; }

  Scalar c(double v, DType d);
  Scalar cast(Scalar v, DType d) { return b.cast(v, d); }
  Scalar finish(Scalar v) { return b.cast(v, result()); }

  Scalar op(LoopOp o, Scalar x) { return b.op(o, {x}); }
  Scalar op(LoopOp o, Scalar x, Scalar y) { return b.op(o, {x, y}); }
  Scalar op(LoopOp o, Scalar x, Scalar y, Scalar z) { return b.op(o, {x, y, z}); }
  Scalar add(Scalar x, Scalar y) { return op(LoopOp::Add, x, y); }
  Scalar sub(Scalar x, Scalar y) { return op(LoopOp::Sub, x, y); }
  Scalar mul(Scalar x, Scalar y) { return op(LoopOp::Mul, x, y); }
  Scalar div(Scalar x, Scalar y) { return op(LoopOp::Div, x, y); }
  Scalar fma(Scalar x, Scalar y, Scalar z) { return op(LoopOp::Fma, x, y, z); }
  Scalar where(Scalar cond, Scalar x, Scalar y) { return op(LoopOp::Where, cond, x, y); }
};

// Index of an operand of shape `sizes` that is broadcast to a result whose element is at `index`.
Index broadcast_index(const std::vector<Expr>& sizes, const Index& index);

// One floating-point operation on argument 0.
template <LoopOp O>
Scalar element_math(Element& e) {
  return e.finish(e.op(O, e.operand(0, e.compute())));
}

// Horner's rule; the coefficient of the highest power comes first.
Scalar polynomial(Element& e, Scalar x, std::span<const double> coefficients);

// A quotient of two.
Scalar quotient(Element& e, Scalar x, std::span<const double> top, std::span<const double> bottom);

// The sum of c[k] T_k(y / 2), c[0] halved, by Clenshaw's recurrence; f32 gets the terms that it can
// see.
Scalar chebyshev(Element& e, Scalar y, std::span<const double> c);

// Loop rules hold where every tensor has a dtype that loops compute with, every number is known,
// and the shape rule accepts the call.
bool applies_computable(const ir::Graph& g, const ir::Node& n);
// The same of a conversion or a copy, which f8 has too.
bool applies_converted(const ir::Graph& g, const ir::Node& n);
// The dtypes alone: for an op whose shape rule may not know the layout of a result that torch made.
bool has_computable_types(const ir::Graph& g, const ir::Node& n);
// The same, and the result is floating-point; the same, and it is not bool.
bool applies_floating(const ir::Graph& g, const ir::Node& n);
bool applies_not_bool(const ir::Graph& g, const ir::Node& n);

}  // namespace oxy::ops
