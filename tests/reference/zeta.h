// Hurwitz's zeta function of one number (codegen/cpp/prelude_iterated.cpp).
#pragma once

namespace oxy::ops {

double hurwitz_zeta(double x, double q);

}  // namespace oxy::ops
