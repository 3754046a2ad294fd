// Type promotion of element-wise ops.
#include "ops/promote.h"

namespace oxy::ops {
namespace {

// Position among the signed integers, by width; bool and u8 apart.
int integer_rank(DType d) {
  switch (d) {
    case DType::B8:
      return 0;
    case DType::U8:
      return 1;
    case DType::I8:
      return 2;
    case DType::I16:
      return 3;
    case DType::I32:
      return 4;
    default:
      return 5;
  }
}

DType promote_integers(DType a, DType b) {
  const bool mixed_bytes = (a == DType::U8 && b == DType::I8) || (a == DType::I8 && b == DType::U8);
  if (mixed_bytes) return DType::I16;
  return integer_rank(a) > integer_rank(b) ? a : b;
}

DType promote_floats(DType a, DType b) {
  if (a == DType::F64 || b == DType::F64) return DType::F64;
  return DType::F32;  // f32 with anything smaller, and f16 with bf16
}

}  // namespace

bool is_computable(DType d) {
  switch (d) {
    case DType::B8:
    case DType::U8:
    case DType::I8:
    case DType::I16:
    case DType::I32:
    case DType::I64:
    case DType::F16:
    case DType::BF16:
    case DType::F32:
    case DType::F64:
      return true;
    default:
      return false;
  }
}

std::optional<DType> promote(DType a, DType b) {
  if (!is_computable(a) || !is_computable(b)) return std::nullopt;
  if (a == b) return a;
  const bool fa = ir::is_floating(a), fb = ir::is_floating(b);
  if (fa && fb) return promote_floats(a, b);
  if (fa || fb) return fa ? a : b;
  return promote_integers(a, b);
}

void ResultType::Class::add(DType d) {
  auto p = dtype ? promote(*dtype, d) : std::optional(d);
  unknown = unknown || !p || !is_computable(d);
  dtype = p.value_or(d);
}

void ResultType::add_tensor(const ir::TensorType& t) {
  (t.sizes.empty() ? scalars_ : dimensioned_).add(t.dtype);
}

void ResultType::add_number(NumberKind kind) {
  constexpr DType kDTypes[] = {DType::B8, DType::I64, DType::F32, DType::C64};
  numbers_.add(kDTypes[static_cast<size_t>(kind)]);
}

bool ResultType::add(const Args& args, size_t i) {
  if (const ir::TensorType* t = args.tensor(i)) {
    add_tensor(*t);
    return true;
  }
  auto kind = args.number_kind(i);
  if (kind) add_number(*kind);
  return kind.has_value();
}

std::optional<DType> ResultType::combine(std::optional<DType> higher, std::optional<DType> lower) {
  if (!higher) return lower;
  if (!lower || ir::is_floating(*higher)) return higher;
  if (*higher == DType::B8 || ir::is_floating(*lower)) return promote(*higher, *lower);
  return higher;
}

std::optional<DType> ResultType::result() const {
  if (dimensioned_.unknown || scalars_.unknown || numbers_.unknown) return std::nullopt;
  return combine(combine(dimensioned_.dtype, scalars_.dtype), numbers_.dtype);
}

}  // namespace oxy::ops
