// Dead code elimination: one backward walk, counting readers.
#include "passes/dce.h"

#include "passes/effects.h"

namespace oxy::passes {
namespace {

bool drop_idle_mutations(ir::Graph& g) {
  return std::erase_if(g.mutations, [&](const ir::Mutation& m) {
           return !m.metadata && m.value == g.inputs()[m.input];
         }) > 0;
}

}  // namespace

bool dce(ir::Graph& g) {
  bool changed = drop_idle_mutations(g);
  std::vector<uint32_t> uses = g.use_counts();
  const std::vector<ir::NodeId>& order = g.order();
  for (size_t i = order.size(); i-- > 0;) {
    ir::Node& n = g.node(order[i]);
    if (n.dead || !is_removable(n)) continue;
    bool read = false;
    for (ir::ValueId v : n.outputs) read |= uses[v.index] > 0;
    if (read) continue;
    n.dead = changed = true;
    for_each_value(n, [&](ir::ValueId v) { --uses[v.index]; });
  }
  g.compact();
  return changed;
}

}  // namespace oxy::passes
