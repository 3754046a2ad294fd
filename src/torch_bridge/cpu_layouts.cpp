#include "torch_bridge/cpu_layouts.h"

namespace oxy::bridge {
namespace {

enum class Order { RowMajor, ColumnMajor };

struct Correction {
  const char* target;
  size_t ret;
  Order order;
};

// LAPACK's matrices are column-major; an empty result has the strides of a new tensor.
constexpr Correction kCorrections[] = {
    {"aten._linalg_svd.default", 2, Order::ColumnMajor},
    {"aten.linalg_eig.default", 1, Order::ColumnMajor},
    {"aten.nonzero_static.default", 0, Order::RowMajor},
};

void lay_out(ir::TensorType& t, Order order) {
  t.strides = ir::contiguous_strides(t.sizes);
  size_t rank = t.sizes.size();
  if (order != Order::ColumnMajor || rank < 2) return;
  t.strides[rank - 2] = 1;
  t.strides[rank - 1] = sym::max(t.sizes[rank - 2], sym::Expr(1));
}

}  // namespace

void correct_cpu_layouts(const std::string& target, std::vector<PredictedReturn>& returns) {
  for (const Correction& c : kCorrections) {
    if (target != c.target || c.ret >= returns.size()) continue;
    for (PredictedTensor& t : returns[c.ret].tensors) {
      if (t.defined && t.type.device.is_cpu() && t.type.dim() > 0) lay_out(t.type, c.order);
    }
  }
}

}  // namespace oxy::bridge
