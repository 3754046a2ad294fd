// Special functions: divisors, digamma, zeta, polygamma, incomplete gamma. fp16 and bf16 are
// computed in f32 and rounded once.
//
// digamma: reflection, recurrence and asymptotic series as in Abramowitz and Stegun, 6.3.5-6.3.18,
// in f64 for all dtypes.
#include <cmath>
#include <limits>
#include <numbers>

#include "ops/element.h"
#include "ops/families.h"
#include "ops/series.h"
#include "ops/shape_elementwise.h"

namespace oxy::ops {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kPi = std::numbers::pi;

// ---- divisors ----

Scalar gcd(Element& e) {
  const DType d = e.result();
  return e.op(LoopOp::Gcd, e.operand(0, d), e.operand(1, d));
}

// In int at least, as eager's C++: a product is cut to the result's width behind its absolute
// value.
Scalar lcm(Element& e) {
  const DType d = e.result() == DType::I64 ? DType::I64 : DType::I32;
  const Scalar a = e.operand(0, d), b = e.operand(1, d), g = e.op(LoopOp::Gcd, a, b);
  const Scalar none = e.op(LoopOp::Eq, g, e.c(0, d));
  const Scalar part = e.div(a, e.where(none, e.c(1, d), g));
  return e.finish(e.where(none, e.c(0, d), e.op(LoopOp::Abs, e.mul(part, b))));
}

// ---- digamma ----

constexpr int kSteps = 10;  // of the recurrence: up to where the series is exact

// psi(x) - log x + 1/(2x), in 1/x^2.
constexpr double kDigamma[] = {-1.0 / 12,  691.0 / 32760, -1.0 / 132, 1.0 / 240,
                               -1.0 / 252, 1.0 / 120,     -1.0 / 12};

Scalar digamma_value(Element& e, Scalar x) {
  const DType d = DType::F64;
  const Scalar zero = e.c(0, d), one = e.c(1, d);
  const Scalar negative = e.op(LoopOp::Lt, x, zero);
  // psi(1 - x) - pi / tan(pi x), the angle within one period.
  const Scalar rest = e.sub(x, e.op(LoopOp::Trunc, x));
  const Scalar turned = e.div(e.c(kPi, d), e.op(LoopOp::Tan, e.mul(e.c(kPi, d), rest)));
  Scalar sum = e.where(negative, e.op(LoopOp::Neg, turned), zero);
  Scalar y = e.where(negative, e.sub(one, x), x);
  for (int k = 0; k < kSteps; ++k) {
    const Scalar small = e.op(LoopOp::Lt, y, e.c(kSteps, d));
    sum = e.where(small, e.sub(sum, e.div(one, y)), sum);
    y = e.where(small, e.add(y, one), y);
  }
  const Scalar inverse = e.div(one, y), square = e.mul(inverse, inverse);
  const Scalar series = e.mul(square, polynomial(e, square, kDigamma));
  const Scalar log = e.fma(inverse, e.c(-0.5, d), e.op(LoopOp::Log, y));
  const Scalar value = e.add(sum, e.add(log, series));
  const Scalar whole = e.op(LoopOp::And, negative, e.op(LoopOp::Eq, rest, zero));
  const Scalar pole = e.op(LoopOp::CopySign, e.c(kInfinity, d), e.op(LoopOp::Neg, x));
  const Scalar finite = e.where(whole, e.c(std::numeric_limits<double>::quiet_NaN(), d), value);
  return e.where(e.op(LoopOp::Eq, x, zero), pole, finite);
}

Scalar digamma(Element& e) {
  return e.finish(digamma_value(e, e.operand(0, DType::F64, e.result())));
}

// ---- zeta, polygamma ----

// In f64, for all dtypes.
template <LoopOp O>
Scalar in_f64(Element& e) {
  const DType d = DType::F64, through = e.result();
  return e.finish(e.op(O, e.operand(0, d, through), e.operand(1, d, through)));
}

// Order 1: reflection below 1/2, six steps of the recurrence, four terms of the asymptotic series
// (Abramowitz and Stegun, 6.4.6, 6.4.7, 6.4.12), as few as eager takes.
Scalar trigamma(Element& e, Scalar x) {
  const DType d = x.dtype;
  const Scalar one = e.c(1, d);
  const Scalar low = e.op(LoopOp::Lt, x, e.c(0.5, d));
  const Scalar sine = e.op(LoopOp::Sin, e.mul(e.c(kPi, d), x));
  const Scalar pi_square = e.mul(e.c(kPi, d), e.c(kPi, d));
  const Scalar mirrored = e.op(LoopOp::Neg, e.div(pi_square, e.mul(sine, sine)));
  Scalar sum = e.where(low, mirrored, e.c(0, d));
  Scalar y = e.where(low, e.sub(one, x), x);
  for (int k = 0; k < 6; ++k) {
    sum = e.add(sum, e.div(one, e.mul(y, y)));
    y = e.add(y, one);
  }
  const Scalar inverse = e.div(one, e.mul(y, y));
  const Scalar inner = e.sub(e.c(1.0 / 30, d), e.mul(inverse, e.c(1.0 / 42, d)));
  const Scalar outer = e.mul(inverse, e.sub(e.c(1.0 / 6, d), e.mul(inverse, inner)));
  const Scalar lead = e.add(one, e.div(one, e.mul(e.c(2, d), y)));
  sum = e.add(sum, e.div(e.add(lead, outer), y));
  return e.where(low, e.op(LoopOp::Neg, sum), sum);
}

// (-1)^(n+1) n! zeta(n + 1, x), the factorial and the product in the result's precision.
Scalar polygamma(Element& e) {
  const int64_t n = *e.args.integer(0);
  if (n == 1) return e.finish(trigamma(e, e.operand(1, e.compute())));
  const Scalar x = e.operand(1, DType::F64, e.result());
  if (n == 0) return e.finish(digamma_value(e, x));
  const auto order = static_cast<double>(n) + 1;
  const double factorial = e.compute() == DType::F64
                               ? std::exp(std::lgamma(order))
                               : std::exp(std::lgamma(static_cast<float>(order)));
  const Scalar sum = e.finish(e.op(LoopOp::Zeta, e.c(order, DType::F64), x));
  const Scalar factor = e.c(n % 2 == 1 ? factorial : -factorial, e.compute());
  return e.finish(e.mul(factor, e.cast(sum, e.compute())));
}

bool applies_polygamma(const ir::Graph& g, const ir::Node& n) {
  return Args(g, n).integer(0).value_or(-1) >= 0 && has_computable_types(g, n) &&
         ir::is_floating(g.tensor_type(n.outputs[0]).dtype);
}

constexpr ShapeRule promoted_integers =
    shape_elementwise<ResultDType::Promoted, 2, Needs::NumberIntegers>;

constexpr OpInfo kRows[] = {
#include "ops/functions.def"
};

}  // namespace

std::span<const OpInfo> function_ops() { return kRows; }

}  // namespace oxy::ops
