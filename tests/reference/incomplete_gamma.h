// The regularised incomplete gamma functions of one number (codegen/cpp/prelude_iterated.cpp says
// what they are): what the vectors of kernels are compared with.
#pragma once

namespace oxy::ops {

double gamma_p(double a, double x);
double gamma_q(double a, double x);

}  // namespace oxy::ops
