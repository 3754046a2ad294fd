// Orthogonal polynomials of a degree per element, which is cut to a whole number: 0 below degree 0
// and where the degree is no number. The recurrences are loop operations
// (codegen/cpp/prelude_iterated.cpp); what eager has beside them stands here.
//
// Chebyshev's four kinds T, U, V, W are quotients of sines and cosines between -1 and 1 from some
// degree on, and known at both ends; the shifted ones are those of 2x - 1.
#include <limits>

#include "ops/element.h"
#include "ops/families.h"
#include "ops/shape_elementwise.h"

namespace oxy::ops {
namespace {

// The degree, cut; -1 where eager's i64 is below 0.
Scalar degree(Element& e) {
  const DType d = e.compute();
  const Scalar n = e.op(LoopOp::Trunc, e.operand(1, d));
  const Scalar below = e.op(LoopOp::Lt, n, e.c(0x1p63, d));
  const Scalar good = e.op(LoopOp::And, e.op(LoopOp::Ge, n, e.c(0, d)), below);
  return e.where(good, n, e.c(-1, d));
}

Scalar of_degree(Element& e, Scalar n, Scalar value) {
  const Scalar zero = e.c(0, n.dtype);
  return e.finish(e.where(e.op(LoopOp::Ge, n, zero), value, zero));
}

// `known` where it is known, else what `recurrence` gives for the degree; no step is taken for the
// others.
template <class F>
Scalar unless(Element& e, Scalar is_known, Scalar known, Scalar n, F&& recurrence) {
  const Scalar steps = e.where(is_known, e.c(0, n.dtype), n);
  return e.where(is_known, known, recurrence(steps));
}

// (-1)^n
Scalar sign_of_parity(Element& e, Scalar n) {
  const DType d = n.dtype;
  const Scalar half = e.op(LoopOp::Trunc, e.mul(n, e.c(0.5, d)));
  const Scalar even = e.op(LoopOp::Eq, e.add(half, half), n);
  return e.where(even, e.c(1, d), e.c(-1, d));
}

// ---- Hermite, Laguerre, Legendre ----

// NaN beyond the degrees that eager computes.
template <LoopOp O>
Scalar hermite(Element& e) {
  const DType d = e.compute();
  const Scalar x = e.operand(0, d), n = degree(e);
  const Scalar high = e.op(LoopOp::Gt, n, e.c(d == DType::F32 ? 128 : 512, d));
  const Scalar nan = e.c(std::numeric_limits<double>::quiet_NaN(), d);
  const auto recurrence = [&](Scalar steps) { return e.op(O, x, steps); };
  return of_degree(e, n, unless(e, high, nan, n, recurrence));
}

Scalar laguerre(Element& e) {
  const DType d = e.compute();
  const Scalar x = e.operand(0, d), n = degree(e);
  const Scalar zero = e.op(LoopOp::Eq, x, e.c(0, d));
  const auto recurrence = [&](Scalar steps) { return e.op(LoopOp::Laguerre, x, steps); };
  return of_degree(e, n, unless(e, zero, e.c(1, d), n, recurrence));
}

Scalar legendre(Element& e) {
  const DType d = e.compute();
  const Scalar x = e.operand(0, d), n = degree(e);
  const Scalar end = e.op(LoopOp::Eq, e.op(LoopOp::Abs, x), e.c(1, d));
  const Scalar upper = e.op(LoopOp::Gt, x, e.c(0, d));
  const Scalar at_end = e.where(upper, e.c(1, d), sign_of_parity(e, n));
  const auto recurrence = [&](Scalar steps) { return e.op(LoopOp::Legendre, x, steps); };
  return of_degree(e, n, unless(e, end, at_end, n, recurrence));
}

// ---- Chebyshev ----

enum class Kind : uint8_t { T, U, V, W };

// The value at 1 (`upper`) or at -1.
template <Kind K>
Scalar at_end(Element& e, Scalar n, bool upper) {
  const Scalar one = e.c(1, n.dtype);
  Scalar value = one;
  if (K == Kind::U) value = e.add(n, one);
  if (K == (upper ? Kind::W : Kind::V)) value = e.add(e.add(n, n), one);
  return upper ? value : e.mul(sign_of_parity(e, n), value);
}

// With x = cos a, |x| < 1: T = cos na, U = sin (n+1)a / sin a, V = cos (n+1/2)a / cos a/2, W = sin
// (n+1/2)a / sin a/2. V and W have their limits where the half angle's other function rounds to 1,
// next to an end; eager gives the shifted W that of the other end.
template <Kind K, bool Shifted>
Scalar by_angle(Element& e, Scalar x, Scalar n) {
  const DType d = x.dtype;
  const Scalar angle = e.op(LoopOp::Acos, x);
  if (K == Kind::T) return e.op(LoopOp::Cos, e.mul(n, angle));
  const Scalar turned = e.mul(e.add(n, e.c(K == Kind::U ? 1 : 0.5, d)), angle);
  if (K == Kind::U) return e.div(e.op(LoopOp::Sin, turned), e.op(LoopOp::Sin, angle));
  const bool upper = K == Kind::W;
  const LoopOp wave = upper ? LoopOp::Sin : LoopOp::Cos;
  const Scalar half = e.mul(angle, e.c(0.5, d));
  const Scalar value = e.div(e.op(wave, turned), e.op(wave, half));
  const double next = d == DType::F32 ? 1 - 0x1p-23 : 1 - 0x1p-53;
  const Scalar limit =
      upper ? e.op(LoopOp::Ge, x, e.c(next, d)) : e.op(LoopOp::Le, x, e.c(-next, d));
  return e.where(limit, at_end<K>(e, n, upper && !Shifted), value);
}

// The polynomial of degree 1.
template <Kind K>
Scalar first(Element& e, Scalar x) {
  if (K == Kind::T) return x;
  const Scalar twice = e.add(x, x), one = e.c(1, x.dtype);
  if (K == Kind::U) return twice;
  return K == Kind::V ? e.sub(twice, one) : e.add(twice, one);
}

// Eager takes angles above this degree.
constexpr int last_by_recurrence(Kind k, bool shifted) {
  if (k == Kind::T) return 6;
  if (!shifted) return 8;
  return k == Kind::W ? 4 : 6;
}

template <Kind K, bool Shifted>
Scalar chebyshev(Element& e) {
  const DType d = e.compute();
  const Scalar given = e.operand(0, d), n = degree(e), one = e.c(1, d);
  const Scalar x = Shifted ? e.sub(e.add(given, given), one) : given;
  const auto recurrence = [&](Scalar steps) {
    return e.op(LoopOp::Chebyshev, x, first<K>(e, x), steps);
  };
  // Exact at the ends.
  constexpr int kLast = last_by_recurrence(K, Shifted);
  const std::optional<double> number = e.args.number(1);
  if (number && *number < kLast + 1) return of_degree(e, n, recurrence(n));
  const Scalar upper_end = e.op(LoopOp::Eq, given, one);
  const Scalar lower_end = e.op(LoopOp::Eq, given, e.c(Shifted ? 0 : -1, d));
  const Scalar inside = e.op(LoopOp::Lt, e.op(LoopOp::Abs, x), one);
  const Scalar turned = e.op(LoopOp::And, inside, e.op(LoopOp::Gt, n, e.c(kLast, d)));
  const Scalar below = e.where(lower_end, at_end<K>(e, n, false), by_angle<K, Shifted>(e, x, n));
  const Scalar known = e.where(upper_end, at_end<K>(e, n, true), below);
  const Scalar end = e.op(LoopOp::Or, upper_end, lower_end);
  return of_degree(e, n, unless(e, e.op(LoopOp::Or, end, turned), known, n, recurrence));
}

constexpr ElementRule chebyshev_t = chebyshev<Kind::T, false>;
constexpr ElementRule chebyshev_u = chebyshev<Kind::U, false>;
constexpr ElementRule chebyshev_v = chebyshev<Kind::V, false>;
constexpr ElementRule chebyshev_w = chebyshev<Kind::W, false>;
constexpr ElementRule shifted_t = chebyshev<Kind::T, true>;
constexpr ElementRule shifted_u = chebyshev<Kind::U, true>;
constexpr ElementRule shifted_v = chebyshev<Kind::V, true>;
constexpr ElementRule shifted_w = chebyshev<Kind::W, true>;

constexpr OpInfo kRows[] = {
#include "ops/polynomials.def"
};

}  // namespace

std::span<const OpInfo> polynomial_ops() { return kRows; }

}  // namespace oxy::ops
