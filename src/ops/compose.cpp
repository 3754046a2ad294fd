// Short names for the ops that decompositions write.
#include "ops/compose.h"

namespace oxy::ops {
namespace {

// c10::MemoryFormat::Contiguous
constexpr ir::MemoryFormat kContiguous{0};

}  // namespace

ir::List list_of(const std::vector<int64_t>& xs) {
  ir::List l;
  for (int64_t x : xs) l.items.emplace_back(x);
  return l;
}

ir::List list_of(const std::vector<Expr>& xs) {
  ir::List l;
  for (Expr x : xs) l.items.emplace_back(x);
  return l;
}

ir::ValueId Compose::cast(ir::ValueId v, DType d) {
  if (type(v).dtype == d) return v;
  const ir::Arg none;
  return call("aten._to_copy.default", {v, d, none, none, none, false});
}

std::optional<ir::ValueId> Compose::as(ir::ValueId v, const ir::TensorType& t) {
  v = cast(v, t.dtype);
  if (type(v).strides == t.strides) return v;
  if (!t.is_row_major()) return std::nullopt;
  return call("aten.clone.default", {v, kContiguous});
}

ir::ValueId Compose::sum(ir::ValueId v, const std::vector<int64_t>& dims, bool keepdim) {
  return call("aten.sum.dim_IntList", {v, list_of(dims), keepdim});
}

ir::ValueId Compose::amax(ir::ValueId v, const std::vector<int64_t>& dims, bool keepdim) {
  return call("aten.amax.default", {v, list_of(dims), keepdim});
}

ir::ValueId Compose::view(ir::ValueId v, const std::vector<Expr>& sizes) {
  return call("aten.view.default", {v, list_of(sizes)});
}

}  // namespace oxy::ops
