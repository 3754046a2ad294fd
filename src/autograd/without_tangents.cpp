// One walk in order: each node that reads something undefined goes, is its other operand, or reads
// zeros. What says which nodes of autograd run then goes too.
#include <algorithm>
#include <numeric>

#include "autograd/partition.h"
#include "ops/op_table.h"
#include "ops/rewriter.h"
#include "passes/pass_list.h"
#include "passes/rewrite.h"
#include "support/check.h"

namespace oxy::autograd {
namespace {

using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::TensorType;
using ir::ValueId;
using Kind = ir::OutputSpec::Kind;

bool is_sum(const Node& n) {
  return n.target == "aten.add.Tensor" || n.target == "aten.sub.Tensor";
}

// A gradient of 0, of the size of what arrives.
bool makes_zeros(const Node& n) {
  return n.target == "aten.zeros_like.default" || n.target == "aten.new_zeros.default";
}

// It is not linear in what is undefined: it has an effect, gives no real numbers (a comparison),
// looks at sizes alone, or adds what is no gradient.
bool needs_values(const Graph& g, const Node& n, const auto& is_undefined) {
  const ops::OpInfo* info = ops::find(n);
  if (!passes::is_removable(n) || (info && info->has(ops::Creation) && !makes_zeros(n)))
    return true;
  if (is_sum(n))
    for (size_t i = 0; i < 2; ++i)
      if (!n.arg(i).is_value() || !is_undefined(n.arg(i).value())) return true;
  return std::ranges::any_of(n.outputs, [&](ValueId v) {
    const ir::Type& t = g.value(v).type;
    return t.is_tensor() && !ir::is_floating(t.tensor.dtype) && !ir::is_complex(t.tensor.dtype);
  });
}

class Remover {
 public:
  Remover(const Graph& backward, size_t tangents, const std::vector<bool>& defined,
          size_t gradients)
      : g_(backward) {
    OXY_CHECK(defined.size() == tangents && tangents <= g_.inputs().size(), "tangents: ", tangents);
    of_tangents_.resize(g_.value_count());
    undefined_.resize(g_.value_count());
    read_.resize(g_.value_count());
    for (NodeId id : g_.order())
      for_each_value(g_.node(id), [&](ValueId v) { read_[v.index] = true; });
    for (size_t i = gradients; i < g_.outputs.size(); ++i)
      if (g_.outputs[i].kind == Kind::Value) read_[g_.outputs[i].value.index] = true;
    first_ = g_.inputs().size() - tangents;
    for (size_t i = 0; i < tangents; ++i) mark(g_.inputs()[first_ + i], defined[i]);
  }

  Graph run() {
    const std::vector<NodeId> order = g_.order();
    for (NodeId id : order) {
      Node& n = g_.node(id);
      if (!n.dead && (n.kind == ir::NodeKind::CallOp || n.kind == ir::NodeKind::Region)) visit(n);
    }
    for (NodeId id : order)
      if (const Node& n = g_.node(id); !n.dead && n.target == ops::kMaterialize)
        replace(n, n.args[0].value());
    // Sums have gone to their operands.
    g_.replace_uses([&](ValueId v) { return resolve(v); });
    for (ir::OutputSpec& o : g_.outputs) finish(o);
    passes::dce(g_);
    for (size_t i = g_.inputs().size(); i-- > first_;)
      if (undefined_[g_.inputs()[i].index]) g_.drop_input(i);
    return std::move(g_);
  }

 private:
  bool is_undefined(ValueId v) const { return v.index < undefined_.size() && undefined_[v.index]; }
  bool is_of_tangents(ValueId v) const {
    return v.index < of_tangents_.size() && of_tangents_[v.index];
  }
  void mark(ValueId v, bool defined) { (defined ? of_tangents_ : undefined_)[v.index] = true; }

  ValueId resolve(ValueId v) const {
    while (v.index < stands_for_.size() && stands_for_[v.index].valid()) v = stands_for_[v.index];
    return v;
  }

  void replace(const Node& n, ValueId by) {
    stands_for_.resize(g_.value_count());
    stands_for_[n.outputs[0].index] = by;
    g_.kill(n.id);
  }

  // It stays until all is marked: what it is of depends on tangents, whatever its operand does.
  void materialize(Node& n) {
    const ValueId self = n.args[0].value();
    bool runs = false;
    for_each_value(n.args[1], [&](ValueId v) { runs |= !is_undefined(v); });
    mark(n.outputs[0], runs);
    if (!runs)
      g_.kill(n.id);
    else if (is_undefined(self))
      n.args[0] = zeros(self, n.id);
  }

  void visit(Node& n) {
    const auto is_undefined = [this](ValueId v) { return this->is_undefined(v); };
    for (ir::Arg& a : n.args) a = map_values(a, [&](ValueId v) { return resolve(v); });
    if (n.target == ops::kMaterialize) return materialize(n);
    bool undefined = false, of_tangents = false;
    for_each_value(n, [&](ValueId v) {
      undefined |= is_undefined(v);
      of_tangents |= is_of_tangents(v);
    });
    if (undefined && !of_tangents && !needs_values(g_, n, is_undefined)) {
      for (ValueId v : n.outputs) mark(v, false);
      g_.kill(n.id);
      return;
    }
    if (undefined && !take_other_operand(n)) read_zeros(n);
    if (!n.dead && of_tangents)
      for (ValueId v : n.outputs) mark(v, true);
  }

  // A gradient that nothing else reads may be laid out in any way, as in eager.
  bool can_stand_for(ValueId other, ValueId sum) const {
    const ir::Type &a = g_.value(other).type, &b = g_.value(sum).type;
    if (same_place(a, b)) return true;
    return !read_[sum.index] && a.is_tensor() && a.tensor.dtype == b.tensor.dtype &&
           a.tensor.device == b.tensor.device && a.tensor.sizes == b.tensor.sizes;
  }

  // Of a sum. Says whether it did.
  bool take_other_operand(Node& n) {
    if (!is_sum(n) || !n.arg(0).is_value() || !n.arg(1).is_value()) return false;
    if (!n.arg(2).is_none() && n.arg(2) != ir::Arg(1)) return false;
    const bool first_is_undefined = is_undefined(n.args[0].value());
    ValueId other = n.args[first_is_undefined ? 1 : 0].value();
    if (is_undefined(other) || !can_stand_for(other, n.outputs[0])) return false;
    if (first_is_undefined && n.target == "aten.sub.Tensor") {
      other = ops::Rewriter(g_, n.id).call("aten.neg.default", {other});
      if (of_tangents_.size() <= other.index) of_tangents_.resize(other.index + 1);
      of_tangents_[other.index] = true;
    }
    replace(n, other);
    return true;
  }

  void read_zeros(Node& n) {
    for (ir::Arg& a : n.args)
      a = map_values(a, [&](ValueId v) { return is_undefined(v) ? zeros(v, n.id) : v; });
  }

  // Laid out as the value would be, but for gaps.
  ValueId zeros(ValueId v, NodeId before) {
    zeros_.resize(std::max<size_t>(zeros_.size(), v.index + 1));
    if (zeros_[v.index].valid()) return zeros_[v.index];
    const TensorType t = g_.tensor_type(v);
    std::vector<ir::Expr> own = t.sizes;  // of memory: an expanded dimension has one element
    for (size_t i = 0; i < own.size(); ++i)
      if (t.strides[i].is_const(0)) own[i] = 1;
    std::vector<int64_t> outer(own.size());  // the dimensions, from the outermost in memory
    std::iota(outer.begin(), outer.end(), 0);
    std::ranges::stable_sort(outer, [&](int64_t a, int64_t b) {
      const auto stride = [&](int64_t i) { return t.strides[static_cast<size_t>(i)]; };
      return sym::layout_less(stride(b), stride(a)).value_or(false);
    });
    std::vector<ir::Expr> sizes;
    std::vector<int64_t> place(own.size());
    for (size_t i = 0; i < outer.size(); ++i) {
      sizes.push_back(own[static_cast<size_t>(outer[i])]);
      place[static_cast<size_t>(outer[i])] = static_cast<int64_t>(i);
    }
    ops::Rewriter r(g_, before);
    const bool whole = ir::is_integral(t.dtype, true);
    ValueId out = r.full(sizes, whole ? ir::Arg(0) : ir::Arg(0.0), t.dtype, t.device);
    if (!std::ranges::is_sorted(place))
      out = r.call("aten.permute.default", {out, ops::list_of(place)});
    if (own != t.sizes) out = r.call("aten.expand.default", {out, ops::list_of(t.sizes)});
    return zeros_[v.index] = out;
  }

  void finish(ir::OutputSpec& o) {
    if (o.kind == Kind::Input && is_undefined(g_.inputs()[o.index])) o = {.kind = Kind::None};
    if (o.kind != Kind::Value) return;
    if (is_undefined(o.value)) {
      o = {.kind = Kind::None};
      return;
    }
    const auto input = std::ranges::find(g_.inputs(), o.value);
    if (input != g_.inputs().end())
      o = {.kind = Kind::Input, .index = static_cast<uint32_t>(input - g_.inputs().begin())};
  }

  Graph g_;
  size_t first_ = 0;  // tangent, among the inputs
  // By value of the backward.
  std::vector<bool> of_tangents_, undefined_;
  std::vector<bool> read_;                   // by a node of it
  std::vector<ValueId> stands_for_, zeros_;  // by value
};

}  // namespace

Graph without_tangents(const Graph& backward, size_t tangents, const std::vector<bool>& defined,
                       size_t gradients) {
  return Remover(backward, tangents, defined, gradients).run();
}

bool vanish_with(const Graph& graph, size_t from, const std::vector<ValueId>& gradients,
                 const std::vector<ValueId>& results) {
  std::vector<bool> undefined(graph.value_count());
  for (ValueId v : gradients) undefined[v.index] = true;
  const auto is_undefined = [&](ValueId v) { return undefined[v.index]; };
  const std::vector<NodeId>& order = graph.order();
  for (size_t i = from; i < order.size(); ++i) {
    const Node& n = graph.node(order[i]);
    bool reads = false;
    for_each_value(n, [&](ValueId v) { reads |= is_undefined(v); });
    if (n.dead || !reads || needs_values(graph, n, is_undefined)) continue;
    for (ValueId v : n.outputs) undefined[v.index] = true;
  }
  return std::ranges::all_of(results, is_undefined);
}

}  // namespace oxy::autograd
