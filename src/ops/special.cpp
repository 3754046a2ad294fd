// Pointwise ops beyond arithmetic: sinc, entr, logarithms of sums, steps between floating-point
// numbers. fp16 and bf16 are rounded at each step where ATen's kernel computes in the dtype itself.
#include <cmath>
#include <limits>
#include <numbers>

#include "ops/element.h"
#include "ops/families.h"
#include "ops/rewriter.h"
#include "ops/shape_elementwise.h"

namespace oxy::ops {
namespace {

using ir::ValueId;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

Scalar sinc(Element& e) {
  const DType d = e.compute();
  const Scalar x = e.operand(0, d);
  const Scalar product = e.mul(e.c(std::numbers::pi, d), x);
  const Scalar wave = e.div(e.op(LoopOp::Sin, product), product);
  return e.finish(e.where(e.op(LoopOp::Eq, x, e.c(0, d)), e.c(1, d), wave));
}

// -x * log(x); -inf below 0.
Scalar entr(Element& e) {
  const DType d = e.result();
  const Scalar x = e.operand(0, d), zero = e.c(0, d);
  const Scalar inside = e.mul(e.op(LoopOp::Neg, x), e.op(LoopOp::Log, x));
  const Scalar below = e.where(e.op(LoopOp::Eq, x, zero), zero, e.c(-kInfinity, d));
  const Scalar number = e.where(e.op(LoopOp::Gt, x, zero), inside, below);
  return e.where(e.op(LoopOp::IsNan, x), x, number);
}

Scalar xlog1py(Element& e) {
  const DType d = e.result();
  const Scalar x = e.operand(0, d), y = e.operand(1, d);
  const Scalar product = e.mul(x, e.op(LoopOp::Log1p, y));
  const Scalar zero_or = e.where(e.op(LoopOp::Eq, x, e.c(0, d)), e.c(0, d), product);
  return e.where(e.op(LoopOp::IsNan, y), y, zero_or);
}

Scalar logaddexp2(Element& e) {
  const DType d = e.compute();
  const Scalar x = e.operand(0, d), y = e.operand(1, d);
  const Scalar gap = e.op(LoopOp::Neg, e.op(LoopOp::Abs, e.sub(x, y)));
  const Scalar bits =
      e.mul(e.op(LoopOp::Log1p, e.op(LoopOp::Exp2, gap)), e.c(1.0 / std::numbers::ln2, d));
  const Scalar sum = e.add(e.op(LoopOp::Max, x, y), bits);
  const Scalar same_infinity = e.op(LoopOp::And, e.op(LoopOp::IsInf, x), e.op(LoopOp::Eq, x, y));
  return e.finish(e.where(same_infinity, x, sum));
}

template <bool Negative>
Scalar is_infinity(Element& e) {
  const Scalar x = e.load(0);
  if (!ir::is_floating(x.dtype)) return e.c(0, DType::B8);
  return e.op(LoopOp::Eq, x, e.c(Negative ? -kInfinity : kInfinity, x.dtype));
}

// Of a real number: pi where it is negative.
Scalar angle(Element& e) {
  const DType d = e.result();
  const Scalar x = e.operand(0, d), zero = e.c(0, d);
  const Scalar turned = e.where(e.op(LoopOp::Lt, x, zero), e.c(std::numbers::pi, d), zero);
  return e.where(e.op(LoopOp::IsNan, x), x, turned);
}

// The neighbour of x on the way to y: floating-point numbers of one sign are ordered as their bits.
Scalar nextafter(Element& e) {
  const DType d = e.result();
  const DType bits = d == DType::F64 ? DType::I64 : DType::I32;
  const Scalar x = e.operand(0, d), y = e.operand(1, d), zero = e.c(0, d);
  const Scalar rises = e.op(LoopOp::Lt, x, y), positive = e.op(LoopOp::Gt, x, zero);
  const Scalar one = e.b.constant_int(1, bits), back = e.b.constant_int(-1, bits);
  const Scalar step = e.where(e.op(LoopOp::Xor, rises, positive), back, one);
  const Scalar moved = e.b.bitcast(e.add(e.b.bitcast(x, bits), step), d);
  const Scalar smallest = e.op(LoopOp::CopySign, e.b.bitcast(one, d), y);
  const Scalar from_zero = e.where(e.op(LoopOp::Eq, x, zero), smallest, moved);
  const Scalar nan = e.op(LoopOp::Or, e.op(LoopOp::IsNan, x), e.op(LoopOp::IsNan, y));
  return e.where(nan, e.add(x, y), e.where(e.op(LoopOp::Eq, x, y), y, from_zero));
}

bool applies_nextafter(const ir::Graph& g, const ir::Node& n) {
  return applies_floating(g, n) && !ir::is_reduced_float(g.tensor_type(n.outputs[0]).dtype);
}

Scalar round_decimals(Element& e) {
  const DType d = e.compute();
  const Scalar x = e.operand(0, d);
  const int64_t decimals = *e.args.integer(1);
  if (decimals == 0) return e.finish(e.op(LoopOp::Round, x));
  const Scalar scale = e.c(std::pow(10.0, std::abs(static_cast<double>(decimals))), d);
  if (decimals < 0) return e.finish(e.mul(e.op(LoopOp::Round, e.div(x, scale)), scale));
  return e.finish(e.div(e.op(LoopOp::Round, e.mul(x, scale)), scale));
}

bool applies_decimals(const ir::Graph& g, const ir::Node& n) {
  return applies_floating(g, n) && Args(g, n).integer(1).has_value();
}

// ---- written with other ops ----

// Times a number, as ATen does it.
template <bool ToDegrees>
bool decompose_angle_unit(Rewriter& r, const ir::Node& n, std::vector<ValueId>& out) {
  const double factor = ToDegrees ? 180.0 / std::numbers::pi : std::numbers::pi / 180.0;
  if (!is_computable(r.type(n.arg(0).value()).dtype)) return false;
  return give(out, r.call("aten.mul.Scalar", {n.arg(0), factor}));
}

bool decompose_celu(Rewriter& r, const ir::Node& n, std::vector<ValueId>& out) {
  auto alpha = Args(r.graph(), n).number(1, 1.0);
  const DType d = r.type(n.arg(0).value()).dtype;
  if (!alpha || *alpha == 0 || !ir::is_floating(d) || !is_computable(d)) return false;
  return give(out, r.call("aten.elu.default", {n.arg(0), *alpha, 1.0, 1.0 / *alpha}));
}

// self * 2 ** other
bool decompose_ldexp(Rewriter& r, const ir::Node& n, std::vector<ValueId>& out) {
  const DType self = r.type(n.arg(0).value()).dtype, other = r.type(n.arg(1).value()).dtype;
  if (!is_computable(self) || !is_computable(other)) return false;
  const ValueId power = r.call("aten.pow.Scalar", {2.0, n.arg(1)});
  return give(out, r.mul(n.arg(0).value(), power));
}

// Eager writes the angles of complex numbers to a new row-major tensor.
bool shape_angle(const Args& a, Types& out) {
  const ir::TensorType* t = a.tensor(0);
  if (!t || (t->dtype != DType::C64 && t->dtype != DType::C128))
    return shape_elementwise<ResultDType::Float, 1>(a, out);
  const DType d = t->dtype == DType::C64 ? DType::F32 : DType::F64;
  return give(out, row_major(d, t->device, t->sizes));
}

constexpr ShapeRule like_first = shape_like_first<ResultDType::Float, 1>;

constexpr OpInfo kRows[] = {
#include "ops/special.def"
};

}  // namespace

std::span<const OpInfo> special_ops() { return kRows; }

}  // namespace oxy::ops
