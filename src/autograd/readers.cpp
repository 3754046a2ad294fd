// Depths of the forward in calls, then one walk backwards that hands on what reads a view to its
// base.
#include "autograd/readers.h"

#include <algorithm>

#include "autograd/recompute.h"
#include "passes/rewrite.h"

namespace oxy::autograd {
namespace {

using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::ValueId;

void merge(ReadBy& into, const ReadBy& from) {
  if (!into.backward_call) into.backward_call = from.backward_call;
  into.by_backward |= from.by_backward;
  into.in_memory |= from.in_memory;
  into.first = std::min(into.first, from.first);
  into.last = std::max(into.last, from.last);
}

// By node: how many times, on the way to it, a call has to be waited for.
std::vector<int32_t> depths(const Graph& g, const std::vector<bool>& loop) {
  std::vector<int32_t> depth(g.node_count());
  for (NodeId id : g.order()) {
    if (!is_call(g.node(id))) continue;
    for_each_value(g.node(id), [&](ValueId v) {
      const NodeId def = g.value(v).def;
      const bool waits = !loop[def.index] || !loop[id.index];
      depth[id.index] = std::max(depth[id.index], depth[def.index] + waits);
    });
  }
  return depth;
}

}  // namespace

Readers::Readers(const Graph& g, const Sides& sides) : read_by_(g.value_count()) {
  std::vector<bool> loop(g.node_count());
  for (NodeId id : g.order()) loop[id.index] = is_loop(g, g.node(id));
  const std::vector<int32_t> depth = depths(g, loop);
  for (size_t i = 0; i < g.outputs.size(); ++i) {
    if (g.outputs[i].kind != ir::OutputSpec::Kind::Value) continue;
    ReadBy& r = read_by_[g.outputs[i].value.index];
    (g.is_gradient(i) ? r.by_backward : r.in_memory) = true;
  }
  for (size_t i = g.order().size(); i-- > 0;) {
    const Node& n = g.node(g.order()[i]);
    if (!is_call(n)) continue;
    if (!loop[n.id.index])
      for (ValueId v : n.outputs) read_by_[v.index].in_memory = true;
    ReadBy here;
    if (passes::is_view(n)) {
      for (ValueId v : n.outputs) merge(here, read_by_[v.index]);
    } else if (sides.side[n.id.index] != Side::Forward) {
      here.by_backward = sides.needed[n.id.index];
      if (here.by_backward && !loop[n.id.index]) here.backward_call = &n;
    } else {
      // A call reads it one step earlier than it ends.
      here.first = here.last = depth[n.id.index] - !loop[n.id.index];
      here.in_memory = !loop[n.id.index];
    }
    for_each_value(n, [&](ValueId v) { merge(read_by_[v.index], here); });
  }
}

}  // namespace oxy::autograd
