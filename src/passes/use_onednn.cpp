#include "passes/use_onednn.h"

#include "ops/own_kernels.h"

namespace oxy::passes {
namespace {

// x @ w, w as (in, out): oneDNN wants it (out, in).
void rewrite_product(ir::Graph& g, ir::Node& n, const ir::Arg& x, const ir::Arg& w,
                     const ir::Arg& bias) {
  ir::TensorType type = g.tensor_type(w.value());
  std::swap(type.sizes[0], type.sizes[1]);
  std::swap(type.strides[0], type.strides[1]);
  ir::Node& p = g.insert_call(n.id, ir::NodeKind::CallOp, "aten.permute.default",
                              {w, ir::Arg(ir::List{{1, 0}})}, {ir::Type::of(std::move(type))});
  p.stack = n.stack;
  p.parent = n.parent;
  n.args = {x, ir::Arg(p.outputs[0]), bias, "none", ir::Arg(ir::List{}), ""};
  n.target = "mkldnn._linear_pointwise.default";
}

}  // namespace

bool use_onednn(ir::Graph& g) {
  bool changed = false;
  const std::vector<ir::NodeId> order = g.order();
  for (ir::NodeId id : order) {
    ir::Node& n = g.node(id);
    if (n.dead || !ops::has_own_kernel(g, n) ||
        g.tensor_type(n.outputs[0]).dtype != ir::DType::F32 ||
        !g.tensor_type(n.outputs[0]).is_contiguous())
      continue;
    const std::vector<ir::Arg> args = n.args;
    if (n.target == "aten.mm.default")
      rewrite_product(g, n, args[0], args[1], ir::None{});
    else if (n.target == "aten.addmm.default")
      rewrite_product(g, n, args[1], args[2], args[0]);
    else
      continue;
    changed = true;
  }
  return changed;
}

}  // namespace oxy::passes
