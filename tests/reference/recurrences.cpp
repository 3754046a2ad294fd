// The recurrences of orthogonal polynomials.
#include "reference/recurrences.h"

#include <cmath>
#include <cstdint>

namespace oxy::ops {
namespace {

// From 1 and `next`, the polynomials of degrees 0 and 1; `step` gives that of k + 1 from those of k
// and k - 1.
template <class T, class Step>
T polynomial_of(T degree, T next, Step&& step) {
  if (!(degree >= 1)) return 1;
  T last = 1;
  for (int64_t k = 1; static_cast<T>(k) < degree && !std::isnan(next); ++k) {
    const T u = step(k, next, last);
    last = next;
    next = u;
  }
  return next;
}

template <class T>
T real(int64_t k) {
  return static_cast<T>(k);
}

}  // namespace

template <class T>
T chebyshev_polynomial(T x, T first, T degree) {
  return polynomial_of(degree, first, [x](int64_t, T p, T q) { return std::fma(x + x, p, -q); });
}

template <class T>
T hermite_h_polynomial(T x, T degree) {
  return polynomial_of(degree, x + x, [x](int64_t k, T p, T q) {
    return std::fma(x + x, p, -(real<T>(2 * k) * q));
  });
}

template <class T>
T hermite_he_polynomial(T x, T degree) {
  return polynomial_of(degree, x,
                       [x](int64_t k, T p, T q) { return std::fma(x, p, -(real<T>(k) * q)); });
}

template <class T>
T laguerre_polynomial(T x, T degree) {
  return polynomial_of(degree, 1 - x, [x](int64_t k, T p, T q) {
    return std::fma(real<T>(2 * k) + (1 - x), p, -(real<T>(k) * q)) / real<T>(k + 1);
  });
}

template <class T>
T legendre_polynomial(T x, T degree) {
  return polynomial_of(degree, x, [x](int64_t k, T p, T q) {
    return std::fma(real<T>(2 * k + 1) * x, p, -(real<T>(k) * q)) / real<T>(k + 1);
  });
}

#define OXY_INSTANTIATE(T)                     \
  template T chebyshev_polynomial<T>(T, T, T); \
  template T hermite_h_polynomial<T>(T, T);    \
  template T hermite_he_polynomial<T>(T, T);   \
  template T laguerre_polynomial<T>(T, T);     \
  template T legendre_polynomial<T>(T, T);
OXY_INSTANTIATE(float)
OXY_INSTANTIATE(double)
#undef OXY_INSTANTIATE

}  // namespace oxy::ops
