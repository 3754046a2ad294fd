// Orthogonal polynomials by their three-term recurrences (codegen/cpp/prelude_iterated.cpp), of one
// number: what the vectors of kernels are compared with.
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
