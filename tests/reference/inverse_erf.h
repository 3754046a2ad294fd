// The inverse error function of one number.
#pragma once

#include <cmath>
#include <limits>
#include <numbers>

namespace oxy::ops {

// Halley's method from S. Winitzki's estimate.
template <class T>
T inverse_erf(T y) {
  const T size = std::abs(y), one = 1, pi = std::numbers::pi_v<T>;
  if (size == one) return std::copysign(std::numeric_limits<T>::infinity(), y);
  if (!(size < one)) return std::numeric_limits<T>::quiet_NaN();
  const T w = -std::log((one - size) * (one + size)), a = static_cast<T>(0.147);
  const T half = 2 / (pi * a) - w / 2;
  T x = std::sqrt(std::max(T{0}, std::sqrt(half * half + w / a) - half));
  for (int step = 0; step < 5; ++step) {
    const T error = size < T{0.5} ? std::erf(x) - size : (one - size) - std::erfc(x);
    const T change = error * std::sqrt(pi) / 2 * std::exp(x * x);
    x -= change / (one + x * change);
  }
  return std::copysign(x, y);
}

}  // namespace oxy::ops
