// Polynomials in loop rules.
#pragma once

#include <span>

#include "ops/element.h"

namespace oxy::ops {

// Horner's rule; the coefficient of the highest power comes first.
Scalar polynomial(Element& e, Scalar x, std::span<const double> coefficients);

// A quotient of two.
Scalar quotient(Element& e, Scalar x, std::span<const double> top, std::span<const double> bottom);

// The sum of c[k] T_k(y / 2), c[0] halved, by Clenshaw's recurrence; f32 gets the terms that it can
// see.
Scalar chebyshev(Element& e, Scalar y, std::span<const double> c);

}  // namespace oxy::ops
