// Closures over the graph: up from what the forward must give, down from the tangents, up from the
// gradients.
#include "autograd/sides.h"

#include <algorithm>

#include "passes/rewrite.h"
#include "support/check.h"

namespace oxy::autograd {
namespace {

using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::NodeKind;
using ir::ValueId;
using Kind = ir::OutputSpec::Kind;

// Draws, effects, and what sizes depend on: it stays although nobody reads it.
bool is_root(const Node& n) { return is_call(n) && !passes::is_removable(n); }

// By node: what the marked ones take.
class Closure {
 public:
  explicit Closure(const Graph& g) : g_(g), taken(g.node_count()) {}

  void add(NodeId id) {
    std::vector<NodeId> work = {id};
    while (!work.empty()) {
      const NodeId at = work.back();
      work.pop_back();
      if (taken[at.index]) continue;
      taken[at.index] = true;
      for_each_value(g_.node(at), [&](ValueId v) { work.push_back(g_.value(v).def); });
    }
  }
  void add(ValueId v) { add(g_.value(v).def); }

 private:
  const Graph& g_;

 public:
  std::vector<bool> taken;
};

std::vector<bool> depends_on_tangents(const Graph& g) {
  std::vector<bool> out(g.node_count());
  for (size_t i = g.primals(); i < g.inputs().size(); ++i)
    out[g.value(g.inputs()[i]).def.index] = true;
  for (NodeId id : g.order()) {
    const Node& n = g.node(id);
    if (is_call(n))
      for_each_value(n, [&](ValueId v) {
        if (out[g.value(v).def.index]) out[id.index] = true;
      });
  }
  return out;
}

// Results and mutations, then the effects in front of the first call that reads a tangent.
std::vector<bool> forward_nodes(const Graph& g, const std::vector<bool>& of_tangents) {
  Closure forward(g);
  for (size_t i = 0; i < forward_results(g); ++i)
    if (g.outputs[i].kind == Kind::Value) forward.add(g.outputs[i].value);
  for (const ir::Mutation& m : g.mutations) forward.add(m.value);
  for (NodeId id : g.order()) {
    const Node& n = g.node(id);
    if (is_call(n) && of_tangents[id.index]) break;
    if (is_root(n)) forward.add(id);
  }
  for (size_t i = 0; i < g.node_count(); ++i)
    OXY_CHECK(!forward.taken[i] || !of_tangents[i], "the forward depends on a tangent");
  return forward.taken;
}

std::vector<bool> needed_nodes(const Graph& g, const std::vector<Side>& side) {
  Closure needed(g);
  for (size_t i = forward_results(g); i < g.outputs.size(); ++i)
    if (g.outputs[i].kind == Kind::Value) needed.add(g.outputs[i].value);
  for (NodeId id : g.order())
    if (side[id.index] == Side::Backward && is_root(g.node(id))) needed.add(id);
  return std::move(needed.taken);
}

}  // namespace

bool is_call(const Node& n) {
  return !n.dead && n.kind != NodeKind::Input && n.kind != NodeKind::Attribute;
}

size_t forward_results(const Graph& joint) { return joint.outputs.size() - joint.primals(); }

Sides sides_of(const Graph& g) {
  Sides out;
  const std::vector<bool> of_tangents = depends_on_tangents(g);
  const std::vector<bool> forward = forward_nodes(g, of_tangents);
  out.side.assign(g.node_count(), Side::Either);
  for (NodeId id : g.order()) {
    Side& side = out.side[id.index];
    if (forward[id.index]) {
      side = Side::Forward;
      continue;
    }
    if (of_tangents[id.index] || is_root(g.node(id))) side = Side::Backward;
    for_each_value(g.node(id), [&](ValueId v) {
      if (out.of(g, v) == Side::Backward) side = Side::Backward;
    });
  }
  out.needed = needed_nodes(g, out.side);
  return out;
}

}  // namespace oxy::autograd
