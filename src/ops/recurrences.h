// Orthogonal polynomials by their three-term recurrences, of one number: what the vectors of
// kernels are compared with.
//
//   Chebyshev   u(k+1) = 2 x u(k) - u(k-1), from 1 and `first`: x, 2x, 2x - 1 or 2x + 1 for the
//               four kinds
//   Hermite     H(k+1) = 2 x H(k) - 2 k H(k-1), from 1 and 2x; He(k+1) = x He(k) - k He(k-1), from
//               1 and x
//   Laguerre    L(k+1) = ((2k + 1 - x) L(k) - k L(k-1)) / (k + 1), from 1 and 1 - x
//   Legendre    P(k+1) = ((2k + 1) x P(k) - k P(k-1)) / (k + 1), from 1 and x
//
// The product with u(k) and the difference are rounded once, as eager's compiler does it. NaN ends
// a recurrence. A degree is a whole number, and what is below 1 gives 1.
#pragma once

namespace oxy::ops {

// T: float or double, the precision of every step.
template <class T>
T chebyshev_polynomial(T x, T first, T degree);
template <class T>
T hermite_h_polynomial(T x, T degree);
template <class T>
T hermite_he_polynomial(T x, T degree);
template <class T>
T laguerre_polynomial(T x, T degree);
template <class T>
T legendre_polynomial(T x, T degree);

}  // namespace oxy::ops
