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
  Scalar last = e.c(0, d), sum = e.c(c[terms - 1], d);
  for (size_t k = terms - 1; k-- > 0;) {
    const Scalar next = e.add(e.fma(y, sum, e.op(LoopOp::Neg, last)), e.c(c[k], d));
    if (k == 0) return e.mul(e.c(0.5, d), e.sub(next, last));
    last = sum;
    sum = next;
  }
  OXY_FAIL("a series of one term");
}

}  // namespace oxy::ops
