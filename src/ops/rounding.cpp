// Rounding to the values of a dtype.
#include "ops/rounding.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace oxy::ops {
namespace {

using ir::DType;

// The nearest bf16 (ties to even), as a double.
double round_bf16(double v) {
  const auto f = static_cast<float>(v);
  if (std::isnan(f)) return f;
  auto bits = std::bit_cast<uint32_t>(f);
  bits += 0x7fff + ((bits >> 16) & 1);
  return std::bit_cast<float>(bits & 0xffff0000u);
}

// The nearest f16 (ties to even), as a double.
double round_f16(double v) {
  const auto f = static_cast<float>(v);
  if (!std::isfinite(f) || f == 0) return f;
  if (std::abs(f) >= 65520.0f) return std::copysign(HUGE_VAL, f);
  int exponent = std::ilogb(f);
  exponent = std::max(exponent, -14);
  const double unit = std::ldexp(1.0, exponent - 10);
  return std::nearbyint(f / unit) * unit;
}

}  // namespace

double round_to(double v, DType d) {
  switch (d) {
    case DType::BF16:
      return round_bf16(v);
    case DType::F16:
      return round_f16(v);
    case DType::F32:
      return static_cast<float>(v);
    default:
      return v;
  }
}

int64_t wrap_to(int64_t v, DType d) {
  switch (d) {
    case DType::B8:
      return v != 0;
    case DType::U8:
      return static_cast<uint8_t>(v);
    case DType::I8:
      return static_cast<int8_t>(v);
    case DType::I16:
      return static_cast<int16_t>(v);
    case DType::I32:
      return static_cast<int32_t>(v);
    default:
      return v;
  }
}

}  // namespace oxy::ops
