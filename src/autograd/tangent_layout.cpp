// The layout of a gradient, and a backward that takes it.
#include "autograd/tangent_layout.h"

#include <algorithm>

#include "ops/rewriter.h"

namespace oxy::autograd {

TangentLayout::TangentLayout(std::span<const int64_t> sizes, std::span<const int64_t> strides)
    : is_other_(true) {
  for (size_t d = sizes.size(); d-- > 0;)
    if (sizes[d] > 1 && strides[d] != 0) dims_.push_back({static_cast<int64_t>(d), strides[d]});
  std::ranges::stable_sort(dims_, {}, &Dim::gap);
  int64_t full = 1;
  for (Dim& at : dims_) {
    const int64_t stride = at.gap;
    if (stride == full) at.gap = 0;
    full = stride * sizes[static_cast<size_t>(at.dim)];
  }
}

bool TangentLayout::is_free(const ir::TensorType& type) {
  std::vector<ir::Expr> of_sizes, of_strides;
  for (const ir::Expr e : type.sizes) sym::collect_symbols(e, of_sizes);
  for (const ir::Expr e : type.strides) sym::collect_symbols(e, of_strides);
  return std::ranges::all_of(
      of_strides, [&](ir::Expr s) { return std::ranges::find(of_sizes, s) != of_sizes.end(); });
}

std::vector<ir::Expr> TangentLayout::strides(const std::vector<ir::Expr>& sizes) const {
  std::vector<ir::Expr> out(sizes.size(), ir::Expr(0));
  ir::Expr full = 1;
  for (const Dim& at : dims_) {
    const auto d = static_cast<size_t>(at.dim);
    out[d] = at.gap == 0 ? full : ir::Expr(at.gap);
    full = out[d] * sizes[d];
  }
  return out;
}

void TangentLayout::give_to(ir::Graph& graph, size_t input, size_t gradients) const {
  if (!is_other_) return;
  const ir::ValueId tangent = graph.inputs()[input];
  ir::TensorType expected = graph.tensor_type(tangent);
  graph.value(tangent).type.tensor.strides = strides(expected.sizes);
  expected.requires_grad = false;
  const auto call = [&](std::string op, std::vector<ir::Arg> args) {
    return graph
        .add_call(ir::NodeKind::CallOp, std::move(op), std::move(args), {ir::Type::of(expected)})
        .outputs[0];
  };
  const ir::ValueId memory =
      call("aten.new_empty_strided.default",
           {tangent, ops::list_of(expected.sizes), ops::list_of(expected.strides)});
  const ir::ValueId copy = call("aten.copy.default", {memory, tangent});
  for (size_t i = gradients; i < graph.outputs.size(); i++) {
    ir::OutputSpec& o = graph.outputs[i];
    if (o.kind == ir::OutputSpec::Kind::Input && o.index == input)
      o = {.kind = ir::OutputSpec::Kind::Value, .value = copy};
  }
  graph.replace_uses(tangent, copy);
  graph.def(memory).args[0] = tangent;
  graph.def(copy).args[1] = tangent;
  std::vector<ir::NodeId> order = graph.order();
  const auto first = std::ranges::find_if(
      order, [&](ir::NodeId id) { return graph.node(id).kind != ir::NodeKind::Input; });
  std::rotate(first, order.end() - 2, order.end());
  graph.set_order(std::move(order));
}

}  // namespace oxy::autograd
