// Coefficients of the expansions of iterated operations, for the texts of kernels.
#pragma once

#include <span>

namespace oxy::ops {

// Temme's expansion: row k of kTemmeRows, of 16 - k numbers, is the factor of a^-k as a polynomial
// in eta, the lowest power first.
inline constexpr int kTemmeRows = 11;
std::span<const double> temme_factors();
// log gamma(a) - (a - 1/2) log a + a - log(2 pi) / 2 in 1 / a, from 10 on: the odd powers, the
// highest first.
std::span<const double> stirling_factors();
// Of Hurwitz's zeta function: (2k)! over Bernoulli's number B(2k), k = 1, 2, ...: what the terms of
// the correction are divided by.
std::span<const double> zeta_factors();

}  // namespace oxy::ops
