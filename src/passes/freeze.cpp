// Constants of a frozen graph: which values they are, batch norm folded into them, and the graph
// that computes them.
#include "passes/pass_list.h"
#include "passes/rewrite.h"
#include "support/text.h"
#include "support/tuning.h"

namespace oxy::passes {
namespace {

using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::NodeKind;
using ir::ValueId;

// Bytes of a tensor's elements; INT64_MAX where they are not known.
int64_t bytes_of(const ir::TensorType& t) {
  int64_t bytes = ir::byte_size(t.dtype);
  for (ir::Expr size : t.sizes) {
    if (!size.is_const() || __builtin_mul_overflow(bytes, size.value(), &bytes)) return INT64_MAX;
  }
  return bytes;
}

bool has_symbols(const ir::TensorType& t) {
  auto symbolic = [](ir::Expr e) { return !e.is_const(); };
  return std::ranges::any_of(t.sizes, symbolic) || std::ranges::any_of(t.strides, symbolic) ||
         symbolic(t.offset);
}

bool has_symbols(const ir::Arg& a) {
  if (const auto* e = a.get_if<ir::Expr>()) return !e->is_const();
  bool found = false;
  ir::for_each_child(a, [&](const ir::Arg& child) { found |= has_symbols(child); });
  return found;
}

class Constants {
 public:
  Constants(const Graph& g, const std::vector<bool>& frozen)
      : g_(g), what_(g.value_count()), results_(g.value_count()) {
    for (size_t i = 0; i < g.inputs().size(); ++i) {
      if (i < frozen.size() && frozen[i]) what_[g.inputs()[i].index] = What::Content;
    }
    mark_results();
    for (NodeId id : g.order()) {
      const Node& n = g.node(id);
      if (!n.dead) visit(n);
    }
  }

  // Derived from constants, and from one that has content.
  bool is_constant(ValueId v) const { return what_[v.index] == What::Content; }

  bool is_constant(const Node& n) const { return !n.outputs.empty() && is_constant(n.outputs[0]); }

 private:
  enum class What : uint8_t {
    Varies,
    Made,  // of no tensor at all: a loop makes it again for nothing
    Content,
  };

  // Results and written values stay where they are.
  void mark_results() {
    for (const ir::OutputSpec& o : g_.outputs) {
      if (o.kind == ir::OutputSpec::Kind::Value && o.value.valid()) results_[o.value.index] = true;
    }
    for (const ir::Mutation& m : g_.mutations) results_[m.value.index] = true;
  }

  void visit(const Node& n) {
    if (n.kind == NodeKind::Attribute) what_[n.outputs[0].index] = What::Content;
    if (n.kind != NodeKind::CallOp || !is_mergeable(n)) return;
    What what = What::Made;
    int64_t read = 0;
    bool varies = std::ranges::any_of(n.args, [](const ir::Arg& a) { return has_symbols(a); });
    for_each_value(n, [&](ValueId v) {
      what = std::max(what, what_[v.index]);
      varies |= what_[v.index] == What::Varies || !g_.value(v).type.is_tensor();
      if (g_.value(v).type.is_tensor())
        __builtin_add_overflow(read, bytes_of(g_.tensor_type(v)), &read);
    });
    for (ValueId v : n.outputs) {
      varies |=
          results_[v.index] || !g_.value(v).type.is_tensor() || has_symbols(g_.tensor_type(v));
      if (varies) return;
      const int64_t bytes = bytes_of(g_.tensor_type(v));
      varies |= bytes > tuning::freeze_small && !is_view(n) && bytes / tuning::freeze_growth > read;
    }
    if (varies) return;
    for (ValueId v : n.outputs) what_[v.index] = what;
  }

  const Graph& g_;
  std::vector<What> what_;
  std::vector<bool> results_;
};

// Inference batch norm: where its arguments stand.
struct BatchNorm {
  ValueId x, mean, variance;
  ir::Arg weight, bias;
  double eps = 0;
};

std::optional<BatchNorm> inference_batch_norm(const Node& n) {
  size_t eps = 0;
  if (n.target == "aten._native_batch_norm_legit_no_training.default")
    eps = 6;
  else if (n.target == "aten.native_batch_norm.default" && n.arg(5) == ir::Arg(false))
    eps = 7;
  else
    return std::nullopt;
  const double* value = n.arg(eps).get_if<double>();
  if (!value || !n.arg(3).is_value() || !n.arg(4).is_value()) return std::nullopt;
  return BatchNorm{n.args[0].value(), n.args[3].value(), n.args[4].value(),
                   n.arg(1),          n.arg(2),          *value};
}

class BatchNormFolder {
 public:
  BatchNormFolder(Graph& g, const std::vector<bool>& frozen)
      : g_(g), constants_(g, frozen), uses_(g.use_counts()) {}

  bool run() {
    return replace_calls(g_, [&](ops::Rewriter& r, const Node& n) { return folded(r, n); });
  }

 private:
  bool known(const ir::Arg& a) const {
    return a.is_none() || (a.is_value() && constants_.is_constant(a.value()) &&
                           g_.tensor_type(a.value()).dtype == ir::DType::F32);
  }

  // A convolution that nothing else reads, of weights (out, in, ...).
  bool is_foldable(const Node& conv, ValueId x) const {
    return conv.target == "aten.convolution.default" && uses_[x.index] == 1 &&
           conv.arg(6) == ir::Arg(false) && conv.arg(1).is_value() && known(conv.arg(1)) &&
           known(conv.arg(2));
  }

  std::optional<ValueId> folded(ops::Rewriter& r, const Node& n) {
    const std::optional<BatchNorm> norm = inference_batch_norm(n);
    if (!norm || !is_foldable(g_.def(norm->x), norm->x)) return std::nullopt;
    for (const ir::Arg& a :
         {ir::Arg(norm->mean), ir::Arg(norm->variance), norm->weight, norm->bias})
      if (!known(a)) return std::nullopt;
    for (size_t i = 1; i < n.outputs.size(); ++i)
      if (uses_[n.outputs[i].index] > 0) return std::nullopt;
    return folded(r, n.id, *norm);
  }

  ValueId folded(ops::Rewriter& r, NodeId at, const BatchNorm& norm) {
    const Node& conv = g_.def(norm.x);
    ValueId scale =
        r.call("aten.rsqrt.default", {r.call("aten.add.Scalar", {norm.variance, norm.eps, 1})});
    if (norm.weight.is_value()) scale = r.mul(scale, norm.weight.value());
    std::vector<ir::Expr> sizes(r.type(conv.args[1].value()).sizes.size(), ir::Expr(1));
    sizes[0] = r.type(scale).sizes[0];
    const ValueId filters = r.view(scale, sizes);
    ValueId shift = norm.mean;
    if (conv.arg(2).is_value()) shift = r.sub(shift, conv.args[2].value());
    shift = r.call("aten.neg.default", {r.mul(shift, scale)});
    if (norm.bias.is_value()) shift = r.add(shift, norm.bias.value());
    std::vector<ir::Arg> args = conv.args;
    args[1] = r.mul(conv.args[1].value(), filters);
    args[2] = shift;
    Node& made =
        g_.insert_call(at, NodeKind::CallOp, conv.target, std::move(args), {g_.value(norm.x).type});
    made.stack = conv.stack;
    made.parent = conv.parent;
    return made.outputs[0];
  }

  Graph& g_;
  const Constants constants_;
  const std::vector<uint32_t> uses_;
};

// The constants that something else reads, views of them seen through.
std::vector<ValueId> border(const Graph& g, const Constants& constants) {
  std::vector<bool> read(g.value_count(), false);
  std::vector<ValueId> out;
  const std::vector<NodeId>& order = g.order();
  for (size_t i = order.size(); i-- > 0;) {
    const Node& n = g.node(order[i]);
    if (n.dead || n.kind != NodeKind::CallOp) continue;
    bool wanted = !constants.is_constant(n);
    for (ValueId v : n.outputs) wanted |= read[v.index];
    if (!wanted) continue;
    if (!constants.is_constant(n) || is_view(n))
      for_each_value(n, [&](ValueId v) { read[v.index] = true; });
    else
      for (ValueId v : n.outputs)
        if (read[v.index]) out.push_back(v);
  }
  std::reverse(out.begin(), out.end());
  return out;
}

Graph graph_of(const Graph& g, const std::vector<ValueId>& values) {
  Graph out = g;
  out.name = cat(g.name, " constants");
  out.mutations.clear();
  out.outputs.clear();
  for (ValueId v : values) out.outputs.push_back({ir::OutputSpec::Kind::Value, v, 0, {}});
  dce(out);
  return out;
}

// Inputs, then attributes, then calls.
void order_sources_first(Graph& g) {
  std::vector<NodeId> order = g.order();
  std::ranges::stable_sort(order, {}, [&](NodeId id) {
    const NodeKind kind = g.node(id).kind;
    return kind == NodeKind::Input ? 0 : kind == NodeKind::Attribute ? 1 : 2;
  });
  g.set_order(std::move(order));
}

}  // namespace

bool fold_batch_norm(Graph& g, const std::vector<bool>& frozen) {
  return BatchNormFolder(g, frozen).run();
}

Graph lift_constants(Graph& g, const std::vector<bool>& frozen) {
  const std::vector<ValueId> values = border(g, Constants(g, frozen));
  Graph constants = graph_of(g, values);
  std::vector<ValueId> to(g.value_count());
  for (size_t i = 0; i < values.size(); ++i) {
    ir::TensorType type = g.tensor_type(values[i]);
    type.offset = 0;
    to[values[i].index] = g.add_attribute(cat("folded", i), ir::Type::of(std::move(type)));
  }
  g.replace_uses(
      [&](ValueId v) { return v.index < to.size() && to[v.index].valid() ? to[v.index] : v; });
  order_sources_first(g);
  dce(g);
  return constants;
}

}  // namespace oxy::passes
