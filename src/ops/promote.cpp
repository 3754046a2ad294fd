// Type promotion of element-wise ops, and rounding to dtypes.
#include "ops/promote.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace oxy::ops {
namespace {

// Of two that differ.
DType promote_integers(DType a, DType b) {
  if (a == DType::B8 || b == DType::B8) return a == DType::B8 ? b : a;
  if (ir::byte_size(a) == ir::byte_size(b)) return DType::I16;  // u8 and i8
  return ir::byte_size(a) > ir::byte_size(b) ? a : b;
}

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
  const double unit = std::ldexp(1.0, std::max(std::ilogb(f), -14) - 10);
  return std::nearbyint(f / unit) * unit;
}

// Of two classes of operands.
std::optional<DType> combine(std::optional<DType> higher, std::optional<DType> lower) {
  if (!higher) return lower;
  if (!lower || ir::is_floating(*higher)) return higher;
  if (*higher == DType::B8 || ir::is_floating(*lower)) return promote(*higher, *lower);
  return higher;
}

}  // namespace

bool is_computable(DType d) {
  return ir::is_floating(d)
             ? ir::byte_size(d) > 1
             : ir::is_integral(d, true) && d != DType::U16 && d != DType::U32 && d != DType::U64;
}

bool is_converted(DType d) { return is_computable(d) || is_f8(d); }

std::optional<DType> promote(DType a, DType b) {
  if (!is_computable(a) || !is_computable(b)) return std::nullopt;
  if (a == b) return a;
  const bool fa = ir::is_floating(a), fb = ir::is_floating(b);
  // f32 with anything smaller, and f16 with bf16.
  if (fa && fb) return a == DType::F64 || b == DType::F64 ? DType::F64 : DType::F32;
  if (fa || fb) return fa ? a : b;
  return promote_integers(a, b);
}

double round_to(double v, DType d) {
  if (d == DType::BF16) return round_bf16(v);
  if (d == DType::F16) return round_f16(v);
  return d == DType::F32 ? static_cast<float>(v) : v;
}

int64_t wrap_to(int64_t v, DType d) {
  if (!is_computable(d) || ir::is_floating(d)) return v;
  if (d == DType::B8) return v != 0;
  if (d == DType::U8) return static_cast<uint8_t>(v);
  const int unused = 64 - 8 * ir::byte_size(d);
  return v << unused >> unused;
}

void ResultType::Class::add(DType d) {
  auto p = dtype ? promote(*dtype, d) : std::optional(d);
  unknown = unknown || !p || !is_computable(d);
  dtype = p.value_or(d);
}

void ResultType::add_tensor(const ir::TensorType& t) {
  (t.sizes.empty() ? scalars_ : dimensioned_).add(t.dtype);
}

bool ResultType::add(const Args& args, size_t i) {
  constexpr DType kDTypes[] = {DType::B8, DType::I64, DType::F32, DType::C64};
  const ir::TensorType* t = args.tensor(i);
  const auto kind = args.number_kind(i);
  if (t) add_tensor(*t);
  if (kind) numbers_.add(kDTypes[static_cast<size_t>(*kind)]);
  return t || kind;
}

std::optional<DType> ResultType::result() const {
  if (dimensioned_.unknown || scalars_.unknown || numbers_.unknown) return std::nullopt;
  return combine(combine(dimensioned_.dtype, scalars_.dtype), numbers_.dtype);
}

}  // namespace oxy::ops
