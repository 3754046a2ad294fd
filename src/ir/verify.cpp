// Verifier: one walk over the graph in order, then its end.
#include "ir/verify.h"

#include <algorithm>

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
    for (; i < g_.order().size(); ++i) {
      require(g_.node(g_.order()[i]).kind != NodeKind::Input, "an input after the inputs");
    }
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
      type(g_.value(v).type);
    }
    if (n.kind == NodeKind::Input || n.kind == NodeKind::Attribute) {
      require(n.outputs.size() == 1, "an input or attribute has one value");
    } else if (g_.stage == Stage::Aten) {
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

  void usable(ValueId v) const {
    require(v.index < g_.value_count(), "reads a value that does not exist");
    require(!g_.def(v).dead, "reads a value of a removed node: ", g_.def(v).target);
    // Printing walks the graph, so the message is built only when it is needed.
    if (!defined_[v.index]) require(false, "reads ", print(g_, v), " before its definition");
  }

  void objects(const Arg& a) const {
    if (auto* o = a.get_if<Object>()) {
      require(o->index < g_.objects.size(), "object ", o->index, " does not exist");
    } else if (auto* items = a.items()) {
      for (const Arg& x : *items) objects(x);
    }
  }

  void type(const Type& t) const {
    if (t.is_tensor()) tensor(t.tensor);
  }
  void tensor(const TensorType& t) const {
    require(t.sizes.size() == t.strides.size(), "as many strides as sizes: ", t.strides.size(),
            " and ", t.sizes.size());
    require(t.dtype != DType::None, "a tensor without a dtype");
  }

  void results() const {
    for_each_value(g_.result, [&](ValueId v) { usable(v); });
    require(g_.stage == Stage::Torch || g_.result.is_none(), "the ATen stage returns `outputs`");
    require(g_.stage == Stage::Aten || (g_.outputs.empty() && g_.mutations.empty()),
            "the Torch stage returns `result`");
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
    if (o.kind == Kind::ViewOfInput || o.kind == Kind::ViewOfOutput) tensor(o.type);
  }

  const Graph& g_;
  const Node* node_ = nullptr;
  std::vector<bool> seen_, defined_;
};

}  // namespace

void verify(const Graph& g) { Verifier(g).run(); }

}  // namespace oxy::ir
