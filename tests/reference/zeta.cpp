// Hurwitz's zeta function of one number: what the vectors of kernels are compared with.
#include "reference/zeta.h"

#include <cmath>
#include <limits>

#include "ops/expansions.h"

namespace oxy::ops {
namespace {

constexpr double kZetaPrecision = 0x1p-53;
// The sum from the last term `power` = w^-x on.
double corrected(double sum, double x, double w, double power) {
  sum += power * w / (x - 1) - power / 2;
  double rising = 1, k = 0;
  for (double factor : kZetaFactors) {
    rising *= x + k++;
    power /= w;
    const double term = rising * power / factor;
    sum += term;
    if (std::abs(term / sum) < kZetaPrecision) break;
    rising *= x + k++;
    power /= w;
  }
  return sum;
}

}  // namespace

double hurwitz_zeta(double x, double q) {
  if (x == 1) return std::numeric_limits<double>::infinity();
  if (x < 1) return std::numeric_limits<double>::quiet_NaN();
  if (q <= 0 && q == std::floor(q)) return std::numeric_limits<double>::infinity();
  if (q <= 0 && x != std::floor(x)) return std::numeric_limits<double>::quiet_NaN();
  double sum = std::pow(q, -x), power = 0;
  for (int terms = 0; terms < 9 || q <= 9; ++terms) {
    q += 1;
    power = std::pow(q, -x);
    sum += power;
    if (std::abs(power) < kZetaPrecision * sum) return sum;
  }
  return corrected(sum, x, q, power);
}

}  // namespace oxy::ops
