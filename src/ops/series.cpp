// Horner's rule and Clenshaw's recurrence.
#include "ops/series.h"

#include <cmath>

#include "support/check.h"

namespace oxy::ops {

Scalar polynomial(Element& e, Scalar x, std::span<const double> coefficients) {
  Scalar p = e.c(coefficients[0], x.dtype);
  for (double c : coefficients.subspan(1)) p = e.fma(p, x, e.c(c, x.dtype));
  return p;
}

Scalar quotient(Element& e, Scalar x, std::span<const double> top, std::span<const double> bottom) {
  return e.div(polynomial(e, x, top), polynomial(e, x, bottom));
}

Scalar chebyshev(Element& e, Scalar y, std::span<const double> c) {
  const DType d = y.dtype;
  size_t terms = c.size();
  const double least = (d == DType::F32 ? 1e-10 : 0.0) * std::abs(c[0]);
  while (std::abs(c[terms - 1]) < least) --terms;
  OXY_CHECK(terms > 1, "a series of one term");
  Scalar last = e.c(0, d), sum = e.c(c[terms - 1], d);
  for (size_t k = terms - 2; k > 0; --k) {
    const Scalar next = e.fma(y, sum, e.sub(e.c(c[k], d), last));
    last = sum;
    sum = next;
  }
  return e.fma(e.mul(e.c(0.5, d), y), sum, e.sub(e.c(0.5 * c[0], d), last));
}

}  // namespace oxy::ops
