// The methods of the incomplete gamma functions.
#include "reference/incomplete_gamma.h"

#include <cmath>
#include <iterator>
#include <limits>
#include <numbers>

#include "ops/expansions.h"

namespace oxy::ops {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kPrecision = 0x1p-53;
constexpr int kTerms = 2000;
// What eager divides by in Temme's expansion, and its numbers are what is asked for.
constexpr double kRoundedPi = std::numbers::pi_v<float>;

// log(x / a) - m, m = x / a - 1: near 0 by the series of the inverse hyperbolic tangent, of s = m /
// (2 + m).
double log_minus(double a, double x) {
  const double m = (x - a) / a;
  if (std::abs(m) > 0.4) return std::log(x / a) - m;
  const double s = m / (2 + m), square = s * s;
  double sum = 0;
  for (int k = 12; k > 0; --k) sum = std::fma(sum, square, 1.0 / (2 * k + 1));
  return std::fma(2 * s * square, sum, -m * s);
}

// log gamma(a) - (a - 1/2) log a + a - log(2 pi) / 2, from 10 on.
double stirling(double a) {
  const double inverse = 1 / a, square = inverse * inverse;
  double sum = 0;
  for (double c : kStirlingFactors) sum = std::fma(sum, square, c);
  return sum * inverse;
}

// x^a e^-x / gamma(a + 1). Below 10 gamma(a + 11) / ((a + 10) .. (a + 1)) is divided by, with b = a
// + 10, and b (log b - 1) = b log(b / 10) + a (log 10 - 1) + 10 (log 10 - 1), the last a factor of
// the result.
double gamma_density(double a, double x) {
  constexpr double kFactor = 8.7872884933643468e-7;  // (e / 10)^10 / sqrt(2 pi)
  constexpr double kSlope = 1.3025850929940457;      // log 10 - 1
  if (a >= 10) {
    const double power = std::fma(a, log_minus(a, x), -stirling(a));
    return std::exp(power) * (std::numbers::inv_sqrtpi / std::numbers::sqrt2) / std::sqrt(a);
  }
  const double b = a + 10;
  double rising = b;
  for (int k = 1; k < 10; ++k) rising *= a + k;
  const double gamma = std::fma(b, std::log1p(a * 0.1), stirling(b));
  const double power = std::fma(a, std::log(x) - kSlope, -x) - gamma;
  return std::exp(power) * rising * kFactor / std::sqrt(b);
}

double series_of_p(double a, double x) {
  double term = 1, sum = 1, r = a;
  for (int i = 0; i < kTerms && term > kPrecision * sum; ++i) {
    r += 1;
    term *= x / r;
    sum += term;
  }
  return sum * gamma_density(a, x);
}

double fraction_of_q(double a, double x) {
  const double density = a * gamma_density(a, x);
  if (density == 0) return 0;
  double y = 1 - a, z = x + y + 1, c = 0;
  double top = x + 1, top_before = 1, bottom = z * x, bottom_before = x;
  double value = top / bottom;
  for (int i = 0; i < kTerms; ++i) {
    c += 1;
    y += 1;
    z += 2;
    const double top_next = top * z - top_before * (y * c);
    const double bottom_next = bottom * z - bottom_before * (y * c);
    top_before = top, bottom_before = bottom;
    top = top_next, bottom = bottom_next;
    const double before = value;
    value = top / bottom;
    if (std::abs(before - value) <= kPrecision * std::abs(value)) break;
    if (std::abs(top) > 0x1p52) {
      for (double* v : {&top, &top_before, &bottom, &bottom_before}) *v *= 0x1p-52;
    }
  }
  return value * density;
}

double series_of_q(double a, double x) {
  double factor = 1, sum = 0;
  for (int n = 1; n < kTerms; ++n) {
    factor *= -x / n;
    const double term = factor / (a + n);
    sum += term;
    if (std::abs(term) <= kPrecision * std::abs(sum)) break;
  }
  const double power = std::expm1(a * std::log(x) - std::lgamma(1 + a));
  return -power - a * (1 + power) * sum;
}

// P with side -1, Q with side 1.
double temme(double a, double x, double side) {
  const double half_square = -log_minus(a, x);
  const double eta = std::copysign(std::sqrt(2 * half_square), x - a);
  double sum = 0;
  const double* end = std::end(kTemmeFactors);
  for (int k = kTemmeRows - 1; k >= 0; --k) {
    double row = 0;
    for (int n = 15 - k; n >= 0; --n) row = std::fma(row, eta, *--end);
    sum = std::fma(sum, 1 / a, row);
  }
  const double rest = std::exp(-a * half_square) * sum / std::sqrt(2 * kRoundedPi * a);
  return 0.5 * std::erfc(side * eta * std::sqrt(a / 2)) + side * rest;
}

bool is_near(double a, double x) {
  const double distance = std::abs(x - a) / a;
  return (a > 20 && a < 200 && distance < 0.3) || (a > 200 && distance < 4.5 / std::sqrt(a));
}

// Where Q is 1 minus the series of P.
bool below_series_of_q(double a, double x) {
  if (x > 1.1) return x < a;
  return x <= 0.5 ? -0.4 / std::log(x) < a : x * 1.1 < a;
}

// P where a or x is not between 0 and infinity.
double edge_of_p(double a, double x) {
  if (x < 0 || a < 0) return kNan;
  if (a == 0) return x > 0 ? 1 : kNan;
  if (x == 0) return 0;
  if (a == kInfinity) return x == kInfinity ? kNan : 0;
  return x == kInfinity ? 1 : kNan;
}

bool is_inside(double a, double x) { return a > 0 && x > 0 && a < kInfinity && x < kInfinity; }

}  // namespace

double gamma_p(double a, double x) {
  if (!is_inside(a, x)) return edge_of_p(a, x);
  if (is_near(a, x)) return temme(a, x, -1);
  return x > 1.1 && x > a ? 1 - fraction_of_q(a, x) : series_of_p(a, x);
}

double gamma_q(double a, double x) {
  if (!is_inside(a, x)) return 1 - edge_of_p(a, x);
  if (is_near(a, x)) return temme(a, x, 1);
  if (below_series_of_q(a, x)) return 1 - series_of_p(a, x);
  return x > 1.1 ? fraction_of_q(a, x) : series_of_q(a, x);
}

}  // namespace oxy::ops
