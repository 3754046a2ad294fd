// Uniform values.
#include "passes/uniform.h"

#include <cmath>

#include "ops/promote.h"

namespace oxy::passes {
namespace {

using ir::DType;

constexpr double kExact = 9007199254740992.0;  // 2^53

std::optional<double> to_integer(double v, double lo, double hi) {
  if (!std::isfinite(v)) return std::nullopt;
  v = std::trunc(v) + 0.0;  // no -0
  if (v < lo || v > hi) return std::nullopt;
  return v;
}

std::optional<double> number_of(const ir::Arg& a) {
  if (auto* d = a.get_if<double>()) return *d;
  if (auto* b = a.get_if<bool>()) return *b;
  auto* e = a.get_if<ir::Expr>();
  if (!e || !e->is_const()) return std::nullopt;
  auto v = static_cast<double>(e->value());
  if (std::abs(v) > kExact) return std::nullopt;
  return v;
}

}  // namespace

std::optional<double> round_to(DType dtype, double v) {
  switch (dtype) {
    case DType::F64:
    case DType::F32:
    case DType::BF16:
      return ops::round_to(v, dtype);
    case DType::I64:
      return to_integer(v, -kExact, kExact);
    case DType::I32:
      return to_integer(v, INT32_MIN, INT32_MAX);
    case DType::I16:
      return to_integer(v, INT16_MIN, INT16_MAX);
    case DType::I8:
      return to_integer(v, INT8_MIN, INT8_MAX);
    case DType::U8:
      return to_integer(v, 0, UINT8_MAX);
    case DType::B8:
      return v != 0 ? 1.0 : 0.0;
    default:
      return std::nullopt;
  }
}

std::optional<Uniform> uniform_of(const ir::Graph& g, const ir::Arg& a) {
  if (!a.is_value()) {
    std::optional<double> v = number_of(a);
    if (!v) return std::nullopt;
    return Uniform{*v, DType::None};
  }
  const ir::Node& def = g.def(a.value());
  if (def.kind != ir::NodeKind::CallOp || def.target != "aten.full.default") return std::nullopt;
  const ir::Type& type = g.value(a.value()).type;
  std::optional<double> v = number_of(def.arg(1));
  if (v && type.is_tensor()) v = round_to(type.tensor.dtype, *v);
  if (!v || !type.is_tensor()) return std::nullopt;
  return Uniform{*v, type.tensor.dtype};
}

}  // namespace oxy::passes
