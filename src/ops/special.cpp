// Special functions: sinc, entr, logarithms of sums, neighbours; divisors, zeta and gamma
// functions; orthogonal polynomials. fp16 and bf16 are computed in f32 and rounded once, or rounded
// at each step where ATen's kernel computes in the dtype itself.
#include <cmath>
#include <limits>
#include <numbers>

#include "ops/families.h"
#include "ops/rewriter.h"

namespace oxy::ops {
namespace {

using ir::ValueId;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kPi = std::numbers::pi;

Scalar sinc(Element& e) {
  const DType d = e.compute();
  const Scalar x = e.operand(0, d);
  const Scalar product = e.mul(e.c(kPi, d), x);
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
  const Scalar turned = e.where(e.op(LoopOp::Lt, x, zero), e.c(kPi, d), zero);
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
  const double factor = ToDegrees ? 180.0 / kPi : kPi / 180.0;
  if (!is_computable(r.type(n.arg(0).value()).dtype)) return false;
  return give(out, r.call("aten.mul.Scalar", {n.arg(0), factor}));
}

bool shape_fake_quantize(const Args& a, Types& out) {
  const ir::TensorType* t = a.tensor(0);
  auto output = t && ir::is_floating(t->dtype) ? empty_like(*t) : std::nullopt;
  if (!output) return false;
  ir::TensorType mask = *output;
  mask.dtype = DType::B8;
  return give(out, std::move(output)) && give(out, std::move(mask));
}

bool shape_celu(const Args& a, Types& out) {
  const ir::TensorType* t = a.tensor(0);
  return a.number(1, 1.0).value_or(0) != 0 && t && ir::is_floating(t->dtype) && unary_real(a, out);
}

bool decompose_celu(Rewriter& r, const ir::Node& n, std::vector<ValueId>& out) {
  auto alpha = Args(r.graph(), n).number(1, 1.0);
  const DType d = r.type(n.arg(0).value()).dtype;
  if (!alpha || *alpha == 0 || !ir::is_floating(d) || !is_computable(d)) return false;
  return give(out, r.call("aten.elu.default", {n.arg(0), *alpha, 1.0, 1.0 / *alpha}));
}

// self * 2 ** other; with integers in one step, where the power does not overflow. Eager's power is
// row-major.
bool shape_ldexp(const Args& a, Types& out) {
  const ir::TensorType *x = a.tensor(0), *y = a.tensor(1);
  if (!x || !y || x->dtype != y->dtype || !ir::is_floating(x->dtype)) return false;
  auto sizes = broadcast(x->sizes, y->sizes);
  if (!sizes) return false;
  const ir::TensorType power = fresh(*y, y->sizes);
  const ir::TensorType* const operands[] = {x, &power};
  auto strides = elementwise_strides(*sizes, operands, /*has_number=*/false);
  ir::TensorType result = fresh(*x, std::move(*sizes));
  if (strides) result.strides = std::move(*strides);
  return strides && give(out, std::move(result));
}

bool decompose_ldexp(Rewriter& r, const ir::Node& n, std::vector<ValueId>& out) {
  const DType self = r.type(n.arg(0).value()).dtype, other = r.type(n.arg(1).value()).dtype;
  if (!is_computable(self) || !is_computable(other)) return false;
  // The power of a narrower dtype is rounded in another place.
  if (ir::is_floating(self) && self != other && other != DType::F32 && other != DType::F64)
    return false;
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

// ---- digamma: reflection, recurrence and asymptotic series as in Abramowitz and Stegun,
// 6.3.5-6.3.18, in f64 for all dtypes ----

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
  const Scalar mirrored = e.where(negative, e.op(LoopOp::Neg, turned), zero);
  Scalar y = e.where(negative, e.sub(one, x), x);
  // The sum of 1 / y over the steps as one fraction.
  Scalar top = zero, bottom = one;
  for (int k = 0; k < kSteps; ++k) {
    const Scalar small = e.op(LoopOp::Lt, y, e.c(kSteps, d));
    top = e.where(small, e.fma(top, y, bottom), top);
    bottom = e.where(small, e.mul(bottom, y), bottom);
    y = e.where(small, e.add(y, one), y);
  }
  const Scalar sum = e.sub(mirrored, e.div(top, bottom));
  const Scalar inverse = e.div(one, y), square = e.mul(inverse, inverse);
  const Scalar series = e.mul(square, polynomial(e, square, kDigamma));
  const Scalar log = e.fma(inverse, e.c(-0.5, d), e.op(LoopOp::Log, y));
  const Scalar value = e.add(sum, e.add(log, series));
  const Scalar whole = e.op(LoopOp::And, negative, e.op(LoopOp::Eq, rest, zero));
  const Scalar pole = e.op(LoopOp::CopySign, e.c(kInfinity, d), e.op(LoopOp::Neg, x));
  const Scalar finite = e.where(whole, e.c(kNan, d), value);
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

template <LoopOp O>
Scalar in_compute(Element& e) {
  const DType d = e.compute(), through = e.result();
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

bool shape_polygamma(const Args& a, Types& out) {
  constexpr size_t kOperands[] = {1};
  return a.integer(0).value_or(-1) >= 0 &&
         give(out, elementwise_type(a, kOperands, ResultDType::Float));
}

bool applies_polygamma(const ir::Graph& g, const ir::Node& n) {
  return Args(g, n).integer(0).value_or(-1) >= 0 && has_computable_types(g, n) &&
         ir::is_floating(g.tensor_type(n.outputs[0]).dtype);
}

// ---- orthogonal polynomials ----
// Of a degree per element, which is cut to a whole number: 0 below degree 0 and where the degree is
// no number. The recurrences are loop operations (codegen/cpp/prelude_iterated.cpp); what eager has
// beside them stands here.

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

struct Known {
  Scalar where, value;
};

// By the recurrence O, but for what `known(x, degree)` says.
template <LoopOp O, class F>
Scalar by_recurrence(Element& e, F&& known) {
  const Scalar x = e.operand(0, e.compute()), n = degree(e);
  const Known k = known(x, n);
  const auto recurrence = [&](Scalar steps) { return e.op(O, x, steps); };
  return of_degree(e, n, unless(e, k.where, k.value, n, recurrence));
}

// NaN beyond the degrees that eager computes.
template <LoopOp O>
Scalar hermite(Element& e) {
  return by_recurrence<O>(e, [&](Scalar, Scalar n) -> Known {
    const int most = n.dtype == DType::F32 ? 128 : 512;
    return {e.op(LoopOp::Gt, n, e.c(most, n.dtype)), e.c(kNan, n.dtype)};
  });
}

Scalar laguerre(Element& e) {
  return by_recurrence<LoopOp::Laguerre>(e, [&](Scalar x, Scalar) -> Known {
    return {e.op(LoopOp::Eq, x, e.c(0, x.dtype)), e.c(1, x.dtype)};
  });
}

Scalar legendre(Element& e) {
  return by_recurrence<LoopOp::Legendre>(e, [&](Scalar x, Scalar n) -> Known {
    const Scalar end = e.op(LoopOp::Eq, e.op(LoopOp::Abs, x), e.c(1, x.dtype));
    const Scalar upper = e.op(LoopOp::Gt, x, e.c(0, x.dtype));
    return {end, e.where(upper, e.c(1, x.dtype), sign_of_parity(e, n))};
  });
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

// Draws of gamma, beta and binomial distributions and their gradients: row-major, in the shape of
// the parameters. Torch has no meta kernels for them.
template <size_t N>
bool shape_row_major(const Args& a, Types& out) {
  const ir::TensorType* first = a.tensor(0);
  for (size_t i = 0; i < N; ++i) {
    const ir::TensorType* t = a.tensor(i);
    if (t == nullptr || !ir::is_floating(t->dtype) || t->dtype != first->dtype ||
        t->device != first->device || !known_same(t->sizes, first->sizes))
      return false;
  }
  return give(out, fresh(*first, first->sizes));
}

constexpr ShapeRule like_first = shape_like_first<ResultDType::Float, 1>;

// Of two tensors, and of a tensor and a number either way round.
#define WITH_NUMBERS(name, a, b, shape, ...)                                                   \
  OP("aten." name ".default", "(Tensor " a ", Tensor " b ") -> Tensor", Pointwise, shape,      \
     __VA_ARGS__)                                                                              \
  OP("aten." name "." a "_scalar", "(Scalar " a ", Tensor " b ") -> Tensor", Pointwise, shape, \
     __VA_ARGS__)                                                                              \
  OP("aten." name "." b "_scalar", "(Tensor " a ", Scalar " b ") -> Tensor", Pointwise, shape, \
     __VA_ARGS__)
#define POLYNOMIAL(name, ...) WITH_NUMBERS("special_" name, "x", "n", promoted_no_half, __VA_ARGS__)

constexpr OpInfo kSpecialOps[] = {
#include "ops/special.def"
};

}  // namespace

std::span<const OpInfo> special_ops() { return kSpecialOps; }

}  // namespace oxy::ops
