// One walk over the draws, one over all that reads them.
#include "autograd/narrow_draws.h"

#include <algorithm>
#include <optional>
#include <unordered_map>

#include "autograd/recompute.h"
#include "passes/rewrite.h"

namespace oxy::autograd {
namespace {

using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::ValueId;

bool draws_mask(const Graph& g, const Node& n) {
  return !n.dead && n.target.starts_with("aten.bernoulli.") &&
         ir::is_floating(g.tensor_type(n.outputs[0]).dtype);
}

// By value: something else than a loop that runs element by element takes it.
std::vector<bool> read_elsewhere(const Graph& g) {
  std::vector<bool> out(g.value_count());
  for (NodeId id : g.order()) {
    const Node& n = g.node(id);
    if (n.dead || recompute_rule(g, n).may == Recompute::Fusible) continue;
    for_each_value(n, [&](ValueId v) { out[v.index] = true; });
  }
  for (const ir::OutputSpec& o : g.outputs)
    if (o.kind == ir::OutputSpec::Kind::Value) out[o.value.index] = true;
  for (const ir::Mutation& m : g.mutations) out[m.value.index] = true;
  return out;
}

}  // namespace

void narrow_draws(Graph& g) {
  const std::vector<NodeId> order = g.order();
  if (std::ranges::none_of(order, [&](NodeId id) { return draws_mask(g, g.node(id)); })) return;
  const std::vector<bool> elsewhere = read_elsewhere(g);
  const std::vector<uint32_t> uses = g.use_counts();
  std::unordered_map<uint32_t, ValueId> instead;  // by draw
  for (size_t i = 0; i + 1 < order.size(); ++i) {
    const Node& draw = g.node(order[i]);
    if (!draws_mask(g, draw)) continue;
    const ValueId mask = draw.outputs[0];
    if (elsewhere[mask.index] || uses[mask.index] == 0) continue;
    ops::Rewriter rewriter(g, order[i + 1]);
    const size_t first = g.node_count();
    const auto back = passes::where_shapes_are_known(g, [&] {
      const ValueId bools = rewriter.call("aten.ne.Scalar", {mask, 0});
      return std::optional(rewriter.cast(bools, g.tensor_type(mask).dtype));
    });
    if (!back || !same_place(g.value(*back).type, g.value(mask).type)) {
      passes::kill_from(g, first);
      continue;
    }
    for (size_t n = first; n < g.node_count(); ++n) {
      g.node(NodeId(n)).stack = draw.stack;
      g.node(NodeId(n)).parent = draw.parent;
    }
    instead[mask.index] = *back;
  }
  for (NodeId id : order) {
    Node& n = g.node(id);
    for (ir::Arg& a : n.args)
      a = ir::map_values(a, [&](ValueId v) {
        const auto it = instead.find(v.index);
        return it == instead.end() ? v : it->second;
      });
  }
}

}  // namespace oxy::autograd
