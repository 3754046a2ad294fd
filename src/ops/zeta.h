// Hurwitz's zeta function, the sum of (q + k)^-x over k = 0, 1, ...
//
// Infinite where x is 1 or q a negative integer or 0; NaN for x below 1 and for a negative q with a
// broken x. Terms are added until they are below the precision, nine at least and to beyond q = 9,
// then Euler and Maclaurin's correction (as in the Cephes library).
#pragma once

#include <span>

namespace oxy::ops {

double hurwitz_zeta(double x, double q);

// (2k)! over Bernoulli's number B(2k), k = 1, 2, ...: what the terms of the correction are divided
// by.
std::span<const double> zeta_factors();

}  // namespace oxy::ops
