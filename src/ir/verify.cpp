// Verifier: one walk over the graph in order, then its end.
#include "ir/text.h"
#include "support/check.h"

namespace oxy::ir {
namespace {

class Verifier {
 public:
  explicit Verifier(const Graph& g) : g_(g), seen_(g.node_count()), defined_(g.value_count()) {}

  void run() {
    inputs_come_first();
    for (NodeId id : g_.order()) {
      node_ = nullptr;
      require(id.index < g_.node_count(), "the order names a node that does not exist");
      node_ = &g_.node(id);
      require(node_->id == id, "a node has another id than its place");
      require(!seen_[id.index], "a node stands twice in the order");
      seen_[id.index] = true;
      if (!node_->dead) node();
    }
    node_ = nullptr;
    results();
    if (g_.stage == Stage::Joint) joint();
  }

 private:
  template <class... A>
  void require(bool ok, const A&... what) const {
    if (ok) return;
    if (node_ == nullptr) OXY_FAIL("graph \"", g_.name, "\": ", what...);
    OXY_FAIL("graph \"", g_.name, "\": ", what..., " at: ", print(g_, *node_));
  }

  void inputs_come_first() {
    size_t i = 0;
    for (ValueId v : g_.inputs()) {
      require(v.index < g_.value_count(), "an input does not exist");
      require(i < g_.order().size() && g_.order()[i] == g_.value(v).def, "input ", i,
              " is not at its place at the head of the order");
      ++i;
    }
    for (; i < g_.order().size(); ++i)
      require(g_.node(g_.order()[i]).kind != NodeKind::Input, "an input after the inputs");
  }

  void node() {
    const Node& n = *node_;
    for_each_value(n, [&](ValueId v) { usable(v); });
    for (const Arg& a : n.args) objects(a);
    for (const auto& [key, a] : n.kwargs) objects(a);
    for (size_t i = 0; i < n.outputs.size(); ++i) {
      ValueId v = n.outputs[i];
      require(v.index < g_.value_count(), "an output does not exist");
      require(g_.value(v).def == n.id && g_.value(v).index == i, "output ", i,
              " does not point back to its node");
      defined_[v.index] = true;
      if (const Type& t = g_.value(v).type; t.is_tensor()) tensor(t.tensor);
    }
    require(n.kind == NodeKind::Region || n.regions.empty(), "a node that may not have regions");
    if (n.kind == NodeKind::Input || n.kind == NodeKind::Attribute) {
      require(n.outputs.size() == 1, "an input or attribute has one value");
    } else if (n.kind == NodeKind::Region) {
      region_node();
    } else if (g_.stage != Stage::Torch) {
      aten_node();
    } else {
      require(n.kind != NodeKind::CallOp, "an ATen op in the Torch stage");
      require(n.outputs.size() <= 1, "a call of the Torch stage has one value");
    }
  }

  void aten_node() const {
    const Node& n = *node_;
    require(n.kind == NodeKind::CallOp, "only calls of ops belong to the ATen stage");
    require(n.kwargs.empty(), "no keyword arguments in the ATen stage");
    require(std::count(n.target.begin(), n.target.end(), '.') >= 2,
            "the target is not namespace.op.overload");
    if (n.returns.empty()) return;
    size_t count = 0;
    for (int32_t r : n.returns) count += r < 0 ? 1 : static_cast<size_t>(r);
    require(count == n.outputs.size(), "the returns say ", count, " outputs, there are ",
            n.outputs.size());
  }

  void region_node() const {
    const Node& n = *node_;
    const RegionOp* op = find_region_op(n.target);
    require(op != nullptr, "no op with regions");
    require(n.kwargs.empty() && n.returns.empty(), "an op with regions has plain arguments");
    require(n.regions.size() == op->region_count(), "there are ", n.regions.size(), " regions");
    require(n.args.size() >= op->arguments, "arguments are missing");
    const bool torch = g_.stage == Stage::Torch;
    require(!torch || n.outputs.size() == 1, "an op with regions has one value in the Torch stage");
    for (const Graph& r : n.regions) region(*op, r);
    const size_t given = result_count(n.regions.back()) - op->results;
    require(!op->carries || op->arguments + given <= n.args.size(),
            "carries more than it is given");
    require(torch || given == n.outputs.size(), "a region gives ", given, " results, there are ",
            n.outputs.size(), " outputs");
    if (n.target == "cond" || op->by_blocks())
      require(result_count(n.regions[0]) == given, "two regions that give unequal many results");
    if (!torch) region_types(*op);
  }

  void region(const RegionOp& op, const Graph& r) const {
    require(r.stage == (g_.stage == Stage::Torch ? Stage::Torch : Stage::Aten) && r.pool == g_.pool,
            "a region of another stage or with symbols of its own");
    require(r.inputs().size() + op.arguments == node_->args.size() + op.parameters,
            "a region with ", r.inputs().size(), " parameters");
    verify(r);
    require(r.mutations.empty(), "a region that mutates");
    for (NodeId id : r.order())
      require(r.node(id).dead || r.node(id).kind != NodeKind::Attribute,
              "a region with an attribute");
    require(r.stage != Stage::Torch || r.result.items() != nullptr, "a region without results");
    require(result_count(r) >= op.results, "a region without results");
    std::vector<bool> given(r.value_count());
    for (const OutputSpec& o : r.outputs) {
      const bool value = o.kind == OutputSpec::Kind::Value;
      require((value || o.kind == OutputSpec::Kind::Input) && !o.conj && !o.neg,
              "a region that gives no plain value");
      require(!value || !given[o.value.index], "a region that gives a value twice");
      if (value) given[o.value.index] = true;
    }
  }

  static const Type& result_type(const Graph& r, size_t i) {
    const OutputSpec& o = r.outputs[i];
    return r.value(o.kind == OutputSpec::Kind::Input ? r.inputs()[o.index] : o.value).type;
  }

  static bool same_kind(const Type& a, const Type& b) {
    return a.kind == b.kind && (!a.is_tensor() || same_layout(a.tensor, b.tensor));
  }

  void region_types(const RegionOp& op) const {
    const Node& n = *node_;
    for (size_t i = op.arguments; i < n.args.size(); ++i) {
      require(n.args[i].is_value(), "operand ", i, " is no value");
      for (const Graph& r : n.regions)
        require(same_kind(g_.value(n.args[i].value()).type,
                          r.value(r.inputs()[i - op.arguments + op.parameters]).type),
                "operand ", i, " is not of its parameter's type");
    }
    for (const Graph& r : n.regions) {
      if (n.target == "while_loop" && &r == &n.regions[0]) continue;
      for (size_t i = 0; i < n.outputs.size(); ++i) {
        const Type& out = g_.value(n.outputs[i]).type;
        const Type& made = result_type(r, i + op.results);
        const bool fits = op.by_blocks() ? made.is_tensor() && out.is_tensor() &&
                                               made.tensor.dtype == out.tensor.dtype &&
                                               made.tensor.dim() == out.tensor.dim()
                                         : same_kind(made, out);
        require(fits, "result ", i, " of a region is not of its output's type");
        require(!op.carries || same_kind(g_.value(n.args[op.arguments + i].value()).type, out),
                "what is carried changes its type");
      }
    }
    conditions(op);
  }

  void conditions(const RegionOp& op) const {
    const Node& n = *node_;
    auto is_condition = [](const Type& t) {
      return t.kind == Type::Kind::Bool || (t.is_tensor() && t.tensor.numel().is_const(1));
    };
    if (n.target == "while_loop")
      require(n.regions[0].outputs.size() == 1 && is_condition(result_type(n.regions[0], 0)),
              "the condition is no boolean");
    if (op.results > 0)
      require(is_condition(result_type(n.regions[0], 0)), "the condition is no boolean");
    if (op.arguments > 0 && !op.by_blocks()) {
      const Arg& a = n.args[op.arguments - 1];
      require(a.get_if<bool>() || (a.is_value() && is_condition(g_.value(a.value()).type)),
              "the condition is no boolean");
    }
  }

  // What the joint stage adds to the ATen stage.
  void joint() const {
    require(g_.tangents <= g_.inputs().size(), "more tangents than inputs");
    require(g_.outputs.size() >= g_.primals(), "a gradient is missing");
    const size_t forward = g_.outputs.size() - g_.primals();
    require(g_.tangents <= forward + g_.mutations.size(),
            "more tangents than results of the forward");
    for (size_t i = g_.primals(); i < g_.inputs().size(); ++i)
      require(g_.value(g_.inputs()[i]).type.is_tensor(), "a tangent that is no tensor");
    for (const Mutation& m : g_.mutations) require(!g_.is_tangent(m.input), "mutates a tangent");
    for (size_t i = 0; i < g_.primals(); ++i) {
      const OutputSpec& o = g_.outputs[forward + i];
      if (o.kind == OutputSpec::Kind::None) continue;
      const Type &primal = g_.value(g_.inputs()[i]).type, *gradient = nullptr;
      if (o.kind == OutputSpec::Kind::Value) gradient = &g_.value(o.value).type;
      require(gradient && gradient->is_tensor() && primal.is_tensor() &&
                  gradient->tensor.sizes == primal.tensor.sizes,
              "gradient ", i, " is not of its primal's sizes");
    }
  }

  void usable(ValueId v) const {
    require(v.index < g_.value_count(), "reads a value that does not exist");
    require(!g_.def(v).dead, "reads a value of a removed node: ", g_.def(v).target);
    // Printing walks the graph, so the message is built only when it is needed.
    if (!defined_[v.index]) require(false, "reads ", print(g_, v), " before its definition");
  }

  void objects(const Arg& a) const {
    if (auto* o = a.get_if<Object>())
      require(o->index < g_.objects.size(), "object ", o->index, " does not exist");
    else if (auto* items = a.items())
      for (const Arg& x : *items) objects(x);
  }

  void tensor(const TensorType& t) const {
    require(t.sizes.size() == t.strides.size(), "as many strides as sizes: ", t.strides.size(),
            " and ", t.sizes.size());
    require(t.dtype != DType::None, "a tensor without a dtype");
  }

  void results() const {
    for_each_value(g_.result, [&](ValueId v) { usable(v); });
    require(g_.stage == Stage::Torch || g_.result.is_none(), "the ATen stage returns `outputs`");
    require(g_.stage != Stage::Torch || (g_.outputs.empty() && g_.mutations.empty()),
            "the Torch stage returns `result`");
    require(g_.stage == Stage::Joint || g_.tangents == 0, "tangents outside the joint stage");
    for (size_t i = 0; i < g_.outputs.size(); ++i) output(i);
    std::vector<bool> mutated(g_.inputs().size());
    for (const Mutation& m : g_.mutations) {
      require(m.input < mutated.size(), "mutates input ", m.input, ", which does not exist");
      require(!mutated[m.input], "mutates input ", m.input, " twice");
      mutated[m.input] = true;
      usable(m.value);
      require(g_.value(m.value).type.is_tensor() && g_.value(g_.inputs()[m.input]).type.is_tensor(),
              "a mutation of something that is not a tensor");
      if (m.metadata) tensor(m.type);
    }
  }

  void output(size_t i) const {
    using Kind = OutputSpec::Kind;
    const OutputSpec& o = g_.outputs[i];
    if (o.kind == Kind::Value) {
      usable(o.value);
    } else if (o.kind == Kind::Input || o.kind == Kind::ViewOfInput) {
      require(o.index < g_.inputs().size(), "output ", i, " names input ", o.index,
              ", which does not exist");
    } else if (o.kind == Kind::ViewOfOutput) {
      require(o.index < g_.outputs.size() && g_.outputs[o.index].kind == Kind::Value, "output ", i,
              " is a view of output ", o.index, ", which is not a value");
    }
    if (o.is_view()) tensor(o.type);
  }

  const Graph& g_;
  const Node* node_ = nullptr;
  std::vector<bool> seen_, defined_;
};

}  // namespace

void verify(const Graph& g) { Verifier(g).run(); }

}  // namespace oxy::ir
