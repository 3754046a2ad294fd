// The inverse error function, the scaled complementary one, and the logarithm and the inverse of
// the normal distribution.
//
// Sources: erfinv of f32: M. Giles, "Approximating the erfinv function", GPU Computing Gems Jade
// Edition, 2011; of f64: the same, then Newton's method. erfcx: the form of M. Shepherd and J.
// Laframboise, "Chebyshev approximation of (1 + 2x) exp(x^2) erfc x", Mathematics of Computation
// 36, 1981, fitted with sixty digits. ndtri: the quotients of the Cephes library (S. L. Moshier).
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

// ---- erfinv ----

constexpr double kInverseCentre[] = {2.81022636e-08,  3.43273939e-07, -3.5233877e-06,
                                     -4.39150654e-06, 0.00021858087,  -0.00125372503,
                                     -0.00417768164,  0.246640727,    1.50140941};
constexpr double kInverseTail[] = {-0.000200214257, 0.000100950558, 0.00134934322,
                                   -0.00367342844,  0.00573950773,  -0.0076224613,
                                   0.00943887047,   1.00167406,     2.83297682};

Scalar erfinv_estimate(Element& e, Scalar y) {
  const DType d = y.dtype;
  const Scalar one = e.c(1, d);
  const Scalar w = e.op(LoopOp::Neg, e.op(LoopOp::Log, e.mul(e.sub(one, y), e.add(one, y))));
  const Scalar centre = polynomial(e, e.sub(w, e.c(2.5, d)), kInverseCentre);
  const Scalar tail = polynomial(e, e.sub(e.op(LoopOp::Sqrt, w), e.c(3, d)), kInverseTail);
  return e.mul(e.where(e.op(LoopOp::Lt, w, e.c(5, d)), centre, tail), y);
}

// One step on the positive half, where 1 - y has no error from 1/2 on.
Scalar newton(Element& e, Scalar x, Scalar y) {
  const DType d = y.dtype;
  const Scalar one = e.c(1, d);
  const Scalar low = e.sub(e.op(LoopOp::Erf, x), y);
  const Scalar high = e.sub(e.sub(one, y), e.op(LoopOp::Erfc, x));
  const Scalar error = e.where(e.op(LoopOp::Lt, y, e.c(0.5, d)), low, high);
  const Scalar slope =
      e.mul(e.c(2 / std::sqrt(kPi), d), e.op(LoopOp::Exp, e.op(LoopOp::Neg, e.mul(x, x))));
  return e.sub(x, e.div(error, slope));
}

Scalar erfinv(Element& e) {
  const DType d = e.compute();
  const Scalar y = e.operand(0, d), size = e.op(LoopOp::Abs, y);
  Scalar x = erfinv_estimate(e, size);
  if (d == DType::F64) x = newton(e, newton(e, x, size), size);
  const Scalar end = e.op(LoopOp::Eq, size, e.c(1, d));
  return e.finish(e.op(LoopOp::CopySign, e.where(end, e.c(kInfinity, d), x), y));
}

// ---- erfcx ----

// (1 + 2x) e^(x^2) erfc(x) in y = 2 (x - 3.75) / (x + 3.75), for all x from 0 on.
constexpr double kErfcx[] = {
    2.3551578691348034,     -0.004590054580646478,   -0.08424913336651792,
    0.05920993999819189,    -0.026658668435305753,   0.009074997670705265,
    -0.002413163540417608,  0.0004907758365258086,   -6.916973302501207e-05,
    4.13902798607301e-06,   7.74038306619849e-07,    -2.1886401049234397e-07,
    1.076499946567091e-08,  4.521959811218287e-09,   -7.754400208831351e-10,
    -6.318088340886684e-11, 2.86879501093067e-11,    1.9455868545777347e-13,
    -9.65469674843344e-13,  3.25254814814874e-14,    3.3478119482868056e-14,
    -1.864562880419313e-15, -1.2507950530688648e-15, 7.418235256624044e-17,
    5.068148904796111e-17,  -2.2370566594359995e-18};

Scalar erfcx_above_zero(Element& e, Scalar x) {
  const DType d = x.dtype;
  const Scalar centre = e.c(3.75, d);
  const Scalar y = e.div(e.mul(e.c(2, d), e.sub(x, centre)), e.add(x, centre));
  const Scalar near = e.div(chebyshev(e, y, kErfcx), e.fma(e.c(2, d), x, e.c(1, d)));
  const Scalar far = e.div(e.c(std::numbers::inv_sqrtpi, d), x);
  return e.where(e.op(LoopOp::Gt, x, e.c(5e7, d)), far, near);
}

// 2 e^(x^2) - erfcx(-x) below 0, the square rounded as eager rounds it.
Scalar erfcx(Element& e) {
  const DType d = e.compute();
  const Scalar x = e.operand(0, d);
  const Scalar above = erfcx_above_zero(e, e.op(LoopOp::Abs, x));
  const Scalar twice = e.mul(e.c(2, d), e.op(LoopOp::Exp, e.mul(x, x)));
  return e.finish(e.where(e.op(LoopOp::Lt, x, e.c(0, d)), e.sub(twice, above), above));
}

// ---- the normal distribution ----

// erfc(t) from erfcx(|t|), with both halves of the square.
Scalar unscaled(Element& e, Scalar t, Scalar scaled) {
  const DType d = t.dtype;
  const Scalar square = e.mul(t, t), negative = e.op(LoopOp::Neg, square);
  const Scalar rest = e.fma(t, t, negative);
  const Scalar power = e.op(LoopOp::Exp, negative);
  const Scalar upper = e.mul(e.fma(e.op(LoopOp::Neg, rest), power, power), scaled);
  const Scalar below = e.op(LoopOp::Lt, t, e.c(0, d));
  const Scalar value = e.where(below, e.sub(e.c(2, d), upper), upper);
  return e.where(e.op(LoopOp::Gt, t, e.c(30, d)), e.c(0, d), value);
}

Scalar log_ndtr(Element& e) {
  const DType d = e.compute();
  const Scalar x = e.operand(0, d), t = e.mul(x, e.c(std::numbers::sqrt2 / 2, d));
  const Scalar half = e.c(0.5, d), scaled = erfcx_above_zero(e, e.op(LoopOp::Abs, t));
  const Scalar tail = e.sub(e.op(LoopOp::Log, e.mul(scaled, half)), e.mul(t, t));
  const Scalar upper = e.mul(unscaled(e, t, scaled), half);
  const Scalar rest = e.op(LoopOp::Log1p, e.op(LoopOp::Neg, upper));
  return e.finish(e.where(e.op(LoopOp::Lt, x, e.c(-1, d)), tail, rest));
}

// Of (y - 1/2)^2 up to 3/8, and in 1 / z, z = sqrt(-2 log y), for z up to 8 and beyond; the highest
// power comes first.
constexpr double kMiddleTop[] = {-59.96335010141079, 98.00107541859997, -56.67628574690703,
                                 13.931260938727968, -1.2391658386738125};
constexpr double kMiddleBottom[] = {1.0,
                                    1.9544885833814176,
                                    4.676279128988815,
                                    86.36024213908905,
                                    -225.46268785411937,
                                    200.26021238006066,
                                    -82.03722561683334,
                                    15.90562251262117,
                                    -1.1833162112133};
constexpr double kTailTop[] = {4.0554489230596245,  31.525109459989388,   57.16281922464213,
                               44.08050738932008,   14.684956192885803,   2.1866330685079025,
                               -0.1402560791713545, -0.03504246268278482, -0.0008574567851546854};
constexpr double kTailBottom[] = {1.0,
                                  15.779988325646675,
                                  45.39076351288792,
                                  41.3172038254672,
                                  15.04253856929075,
                                  2.504649462083094,
                                  -0.14218292285478779,
                                  -0.03808064076915783,
                                  -0.0009332594808954574};
constexpr double kFarTop[] = {
    3.2377489177694603,     6.915228890689842,      3.9388102529247444,
    1.3330346081580755,     0.20148538954917908,    0.012371663481782003,
    0.00030158155350823543, 2.6580697468673755e-06, 6.239745391849833e-09};
constexpr double kFarBottom[] = {1.0,
                                 6.02427039364742,
                                 3.6798356385616087,
                                 1.3770209948908132,
                                 0.21623699359449663,
                                 0.013420400608854318,
                                 0.00032801446468212774,
                                 2.8924786474538068e-06,
                                 6.790194080099813e-09};

// The lower tail at y, negated.
Scalar ndtri_tail(Element& e, Scalar y) {
  const DType d = y.dtype;
  const Scalar z = e.op(LoopOp::Sqrt, e.mul(e.c(-2, d), e.op(LoopOp::Log, y)));
  const Scalar inverse = e.div(e.c(1, d), z);
  const Scalar lead = e.sub(z, e.div(e.op(LoopOp::Log, z), z));
  const Scalar near = quotient(e, inverse, kTailTop, kTailBottom);
  const Scalar far = quotient(e, inverse, kFarTop, kFarBottom);
  const Scalar rest = e.where(e.op(LoopOp::Lt, z, e.c(8, d)), near, far);
  return e.sub(lead, e.mul(inverse, rest));
}

// Times sqrt(2 pi).
Scalar ndtri_middle(Element& e, Scalar y) {
  const DType d = y.dtype;
  const Scalar x = e.sub(y, e.c(0.5, d)), square = e.mul(x, x);
  const Scalar rest = e.mul(square, quotient(e, square, kMiddleTop, kMiddleBottom));
  return e.mul(e.fma(x, rest, x), e.c(2.50662827463100050242, d));
}

// The inverse of the normal distribution: infinite at 0 and 1, NaN outside.
Scalar ndtri(Element& e) {
  constexpr double kTailMass = 0.13533528323661269189;  // e^-2
  const DType d = e.compute();
  const Scalar y = e.operand(0, d), zero = e.c(0, d), one = e.c(1, d), mass = e.c(kTailMass, d);
  const Scalar upper = e.op(LoopOp::Gt, y, e.sub(one, mass));
  const Scalar mirrored = e.where(upper, e.sub(one, y), y);
  const Scalar tail = ndtri_tail(e, mirrored);
  const Scalar side = e.where(upper, tail, e.op(LoopOp::Neg, tail));
  const Scalar inside = e.where(e.op(LoopOp::Gt, mirrored, mass), ndtri_middle(e, mirrored), side);
  const Scalar outside = e.op(LoopOp::Or, e.op(LoopOp::Lt, y, zero), e.op(LoopOp::Gt, y, one));
  const Scalar nan = e.c(std::numeric_limits<double>::quiet_NaN(), d);
  const Scalar high =
      e.where(e.op(LoopOp::Eq, y, one), e.c(kInfinity, d), e.where(outside, nan, inside));
  return e.finish(e.where(e.op(LoopOp::Eq, y, zero), e.c(-kInfinity, d), high));
}

constexpr OpInfo kRows[] = {
#include "ops/error_functions.def"
};

}  // namespace

std::span<const OpInfo> error_function_ops() { return kRows; }

}  // namespace oxy::ops
