// One walk: the result of a layer norm, and the forward's views of it, have a twin that the
// backward reads instead.
#include "autograd/normalize_again.h"

#include <algorithm>

#include "autograd/sides.h"
#include "ops/normalization.h"
#include "passes/rewrite.h"

namespace oxy::autograd {
namespace {

using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::ValueId;

// By value: the caller gets it, or a view of it. It lives anyway.
std::vector<bool> given(const Graph& g) {
  std::vector<bool> out(g.value_count());
  for (const ir::OutputSpec& o : g.outputs)
    if (o.kind == ir::OutputSpec::Kind::Value) out[o.value.index] = true;
  for (const ir::Mutation& m : g.mutations) out[m.value.index] = true;
  for (size_t i = g.order().size(); i-- > 0;) {
    const Node& n = g.node(g.order()[i]);
    if (n.dead || !passes::is_view(n)) continue;
    for (ValueId v : n.outputs)
      if (out[v.index]) for_each_value(n, [&](ValueId base) { out[base.index] = true; });
  }
  return out;
}

// By value: a needed node of the backward reads it.
std::vector<bool> read_by_backward(const Graph& g, const Sides& sides) {
  std::vector<bool> out(g.value_count());
  for (NodeId id : g.order())
    if (sides.side[id.index] == Side::Backward && sides.needed[id.index])
      for_each_value(g.node(id), [&](ValueId v) { out[v.index] = true; });
  return out;
}

bool is_layer_norm(const Node& n) { return n.target == "aten.native_layer_norm.default"; }

class Twins {
 public:
  explicit Twins(Graph& g)
      : g_(g),
        sides_(sides_of(g)),
        given_(given(g)),
        read_(read_by_backward(g, sides_)),
        twin_(g.value_count()) {}

  void run() {
    const std::vector<NodeId> order = g_.order();
    for (size_t i = 0; i < order.size(); ++i) {
      const Node& n = g_.node(order[i]);
      if (!is_call(n)) continue;
      if (sides_.side[n.id.index] != Side::Forward)
        read_twins(g_.node(order[i]));
      else if (is_layer_norm(n) && i + 1 < order.size())
        normalize(n, order[i + 1]);
      else if (passes::is_view(n) && n.arg(0).is_value() && twin(n.args[0].value()).valid())
        view(n);
    }
  }

 private:
  ValueId twin(ValueId v) const { return v.index < twin_.size() ? twin_[v.index] : ValueId(); }
  ValueId twin_or_itself(ValueId v) const { return twin(v).valid() ? twin(v) : v; }

  void read_twins(Node& n) {
    for (ir::Arg& a : n.args) a = ir::map_values(a, [&](ValueId v) { return twin_or_itself(v); });
  }

  // Where its gradient reads the statistics: it keeps the input then, as eager does.
  void normalize(const Node& n, NodeId next) {
    if (given_[n.outputs[0].index] || !read_[n.outputs[1].index]) return;
    const size_t first = g_.node_count();
    ops::Rewriter rewriter(g_, next);
    std::optional<ValueId> made;
    const bool known = passes::where_shapes_are_known(g_, [&] {
      made = ops::layer_normalized(rewriter, n);
      return made.has_value();
    });
    if (!known) return passes::kill_from(g_, first);
    for (size_t i = first; i < g_.node_count(); ++i) adopt(g_.node(NodeId(i)), n);
    twin_[n.outputs[0].index] = *made;
  }

  void view(const Node& n) {
    std::vector<ir::Arg> args;
    for (const ir::Arg& a : n.args)
      args.push_back(ir::map_values(a, [&](ValueId v) { return twin_or_itself(v); }));
    std::vector<ir::Type> types;
    for (ValueId v : n.outputs) types.push_back(g_.value(v).type);
    Node& made = g_.insert_call(n.id, n.kind, n.target, std::move(args), std::move(types));
    made.returns = n.returns;
    adopt(made, n);
    for (size_t i = 0; i < n.outputs.size(); ++i) twin_[n.outputs[i].index] = made.outputs[i];
  }

  static void adopt(Node& made, const Node& n) {
    made.stack = n.stack;
    made.parent = n.parent;
  }

  Graph& g_;
  const Sides sides_;
  const std::vector<bool> given_, read_;
  std::vector<ValueId> twin_;  // by value
};

}  // namespace

void normalize_again(Graph& joint) {
  auto in_graph = [&](NodeId id) { return is_layer_norm(joint.node(id)); };
  if (std::ranges::any_of(joint.order(), in_graph)) Twins(joint).run();
}

}  // namespace oxy::autograd
