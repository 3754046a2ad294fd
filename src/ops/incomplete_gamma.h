// The regularised incomplete gamma functions of one number: what the vectors of kernels are
// compared with.
//
// P(a, x) is the integral of t^(a-1) e^-t from 0 to x over that to infinity, Q = 1 - P. The
// methods, and where each is taken, as eager has them:
//   - a large and x near it: Temme's uniform expansion (DLMF 8.12.3, 8.12.4, 8.12.7-8.12.12), in
//     powers of 1/a
//   - x up to a: the series of P (DLMF 8.11.4)
//   - x above: the continued fraction of Q (DLMF 8.9.2), by the recurrence of its convergents
//   - x up to 1.1, for Q: the series of DLMF 8.7.3, which does not cancel there
// Series and fraction end after 2000 terms. Outside of both quadrants: NaN where a or x is
// negative, and P(0, x) = 1, P(a, 0) = 0, P(inf, x) = 0, P(a, inf) = 1 with NaN at both zeros and
// both infinities.
#pragma once

#include <span>

namespace oxy::ops {

double gamma_p(double a, double x);
double gamma_q(double a, double x);

// Temme's expansion: row k, of 16 - k numbers, is the factor of a^-k as a polynomial in eta, the
// lowest power first.
inline constexpr int kTemmeRows = 11;
std::span<const double> temme_factors();
// log gamma(a) - (a - 1/2) log a + a - log(2 pi) / 2 in 1 / a, from 10 on: the odd powers, the
// highest first.
std::span<const double> stirling_factors();

}  // namespace oxy::ops
