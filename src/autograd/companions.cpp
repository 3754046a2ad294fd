// Walks along uses: from what a node is made of to loops, from calls to what waits for them.
#include "autograd/companions.h"

#include <algorithm>

#include "autograd/recompute.h"
#include "passes/rewrite.h"

namespace oxy::autograd {
namespace {

using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::ValueId;

// What a view is of.
ValueId base_of(const Graph& g, ValueId v) {
  while (passes::is_view(g.def(v)) && g.def(v).arg(0).is_value()) v = g.def(v).args[0].value();
  return v;
}

}  // namespace

Companions::Companions(const Graph& joint, const Sides& sides)
    : g_(joint), sides_(sides), users_(joint.value_count()) {
  for (NodeId id : g_.order()) {
    if (!is_call(g_.node(id))) continue;
    for_each_value(g_.node(id), [&](ValueId v) {
      if (users_[v.index].empty() || users_[v.index].back() != id) users_[v.index].push_back(id);
    });
  }
}

std::vector<NodeId> Companions::readers(ValueId v) const {
  std::vector<NodeId> out;
  std::vector<ValueId> work = {v};
  while (!work.empty()) {
    const ValueId at = work.back();
    work.pop_back();
    for (NodeId id : users_[at.index]) {
      const Node& n = g_.node(id);
      if (passes::is_view(n))
        work.insert(work.end(), n.outputs.begin(), n.outputs.end());
      else
        out.push_back(id);
    }
  }
  return out;
}

std::vector<bool> Companions::behind(const std::vector<NodeId>& nodes) const {
  std::vector<bool> out(g_.node_count());
  std::vector<NodeId> work = nodes;
  while (!work.empty()) {
    const NodeId at = work.back();
    work.pop_back();
    if (out[at.index]) continue;
    out[at.index] = true;
    for (ValueId v : g_.node(at).outputs)
      work.insert(work.end(), users_[v.index].begin(), users_[v.index].end());
  }
  return out;
}

bool Companions::is_loop_of_backward(NodeId id, ir::Expr elements) const {
  const Node& n = g_.node(id);
  return sides_.side[id.index] == Side::Backward && sides_.needed[id.index] && is_loop(g_, n) &&
         std::ranges::any_of(n.outputs, [&](ValueId v) {
           return g_.value(v).type.is_tensor() && g_.tensor_type(v).numel() == elements;
         });
}

bool Companions::has_one(const Node& n) const {
  if (n.outputs.size() != 1 || !g_.value(n.outputs[0]).type.is_tensor()) return false;
  const ir::Expr elements = g_.tensor_type(n.outputs[0]).numel();
  std::vector<NodeId> calls;
  for (NodeId id : readers(n.outputs[0]))
    if (sides_.side[id.index] != Side::Forward && !is_loop(g_, g_.node(id))) calls.push_back(id);
  const std::vector<bool> waits = behind(calls);
  std::vector<bool> seen(g_.node_count());
  std::vector<NodeId> work = {n.id};
  while (!work.empty()) {
    const Node& at = g_.node(work.back());
    work.pop_back();
    if (seen[at.id.index]) continue;
    seen[at.id.index] = true;
    bool found = false;
    for_each_value(at, [&](ValueId operand) {
      const ValueId v = base_of(g_, operand);
      if (found || !g_.value(v).type.is_tensor() || g_.tensor_type(v).numel() != elements) return;
      found = std::ranges::any_of(readers(v), [&](NodeId id) {
        return !waits[id.index] && is_loop_of_backward(id, elements);
      });
      const Node& def = g_.def(v);
      if (!found && is_call(def) && recompute_rule(g_, def).may == Recompute::Fusible)
        work.push_back(def.id);
    });
    if (found) return true;
  }
  return false;
}

}  // namespace oxy::autograd
