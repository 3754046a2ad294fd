// View simplification: each view looks through the view that it reads.
#include "passes/pass_list.h"

#include <algorithm>

#include "passes/rewrite.h"

namespace oxy::passes {
namespace {

using ir::Graph;
using ir::Node;

// The call whose result `n` views, or nullptr.
const Node* base_of(const Graph& g, const Node& n) {
  if (n.outputs.size() != 1 || !n.arg(0).is_value()) return nullptr;
  const Node& base = g.def(n.args[0].value());
  return base.kind == ir::NodeKind::CallOp && base.outputs.size() == 1 ? &base : nullptr;
}

// Keeps the elements in row-major order.
bool reshapes(const Node& n) {
  constexpr std::string_view kOps[] = {
      "aten.view.default", "aten.unsqueeze.default",    "aten.squeeze.default", "aten.squeeze.dim",
      "aten.squeeze.dims", "aten._unsafe_view.default", "aten.reshape.default"};
  return std::ranges::find(kOps, n.target) != std::end(kOps);
}

bool merge_reshapes(Graph& g, Node& n, const Node& base) {
  if (!reshapes(n) || !reshapes(base)) return false;
  const ir::TensorType& t = g.tensor_type(n.outputs[0]);
  return rewrite(g, n, "aten.view.default", {base.args[0], list_of(t.sizes)});
}

bool merge_permutes(Graph& g, Node& n, const Node& base) {
  if (n.target != "aten.permute.default" || base.target != n.target) return false;
  std::optional<std::vector<int64_t>> outer = integers(n.arg(1)), inner = integers(base.arg(1));
  if (!outer || !inner || outer->size() != inner->size()) return false;
  auto rank = static_cast<int64_t>(inner->size());
  std::vector<int64_t> dims;
  for (int64_t d : *outer) {
    int64_t i = (*inner)[static_cast<size_t>(d < 0 ? d + rank : d)];
    dims.push_back(i < 0 ? i + rank : i);
  }
  return rewrite(g, n, n.target, {base.args[0], list_of(dims)});
}

bool merge_expands(Graph& g, Node& n, const Node& base) {
  if (n.target != "aten.expand.default" || base.target != n.target) return false;
  const ir::TensorType& t = g.tensor_type(n.outputs[0]);
  return rewrite(g, n, n.target, {base.args[0], list_of(t.sizes)});
}

}  // namespace

bool simplify_views(Graph& g) {
  Replacements replacements(g);
  bool changed = false;
  for (ir::NodeId id : g.order()) {
    Node& n = g.node(id);
    if (n.dead || n.kind != ir::NodeKind::CallOp) continue;
    const Node* base = base_of(g, n);
    if (!base) continue;
    // squeeze(unsqueeze(x)) and the like: back where it began.
    if (reshapes(n) && reshapes(*base) && tensor_of(g, base->args[0]) &&
        replacements.replace_node(n, base->args[0].value()))
      continue;
    changed |=
        merge_reshapes(g, n, *base) || merge_permutes(g, n, *base) || merge_expands(g, n, *base);
  }
  return replacements.apply() || changed;
}

}  // namespace oxy::passes
