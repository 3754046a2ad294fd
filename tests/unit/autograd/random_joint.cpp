// Each operation appends its value and what hands a gradient on to its operands.
#include "random_joint.h"

#include <functional>
#include <map>

#include "ops/rewriter.h"

namespace oxy::autograd {
namespace {

using ir::Graph;
using ir::OutputSpec;
using ir::ValueId;
using Kind = OutputSpec::Kind;

const std::vector<int64_t> kTransposed = {1, 0};

class Maker {
 public:
  explicit Maker(uint32_t seed)
      : random_(seed), g_(ir::Stage::Joint), primals_(2 + pick(3)), tangents_(1 + pick(3)) {
    for (size_t i = 0; i < primals_; ++i) values_.push_back(g_.add_input(cat("p", i), type()));
    for (size_t i = 0; i < tangents_; ++i) ts_.push_back(g_.add_input(cat("t", i), type()));
    // Calls are written in front of this one.
    end_ = g_.add_call(ir::NodeKind::CallOp, "aten.neg.default", {values_[0]}, {type()}).id;
  }

  Graph make() {
    for (size_t i = 3 + pick(12); i > 0; --i) step();
    mutate();
    results();
    backward();
    g_.kill(end_);
    g_.compact();
    return std::move(g_);
  }

 private:
  using HandOn = std::function<void(ValueId gradient)>;

  size_t pick(size_t n) { return random_() % n; }
  ValueId any() { return values_[pick(values_.size())]; }
  static ir::Type type() {
    ir::TensorType t{.dtype = ir::DType::F64, .sizes = {4, 4}, .strides = {4, 1}};
    return ir::Type::of(t);
  }

  ops::Rewriter write() { return {g_, end_}; }
  ValueId call(std::string_view op, std::vector<ir::Arg> args) {
    return write().call(op, std::move(args));
  }
  ValueId mul(ValueId a, ValueId b) { return call("aten.mul.Tensor", {a, b}); }
  ValueId transposed(ValueId v) {
    return call("aten.permute.default", {v, ops::list_of(kTransposed)});
  }
  ValueId row_sums(ValueId v) {
    return call("aten.expand.default",
                {write().sum(v, {1}, true), ops::list_of(std::vector<int64_t>{4, 4})});
  }
  ValueId rows(ValueId v, int64_t from, int64_t to) {
    return call("aten.slice.Tensor", {v, 0, from, to, 1});
  }
  // The two halves of the rows, exchanged.
  ValueId turned(ValueId v) {
    return call("aten.cat.default", {ir::List{{rows(v, 2, 4), rows(v, 0, 2)}}, 0});
  }

  void add(ValueId v, HandOn hand_on) {
    values_.push_back(v);
    hand_on_[v] = std::move(hand_on);
  }

  void step() {
    const ValueId a = any(), b = any();
    switch (pick(10)) {
      case 0:
        return add(call("aten.sin.default", {a}),
                   [=, this](ValueId t) { give(a, mul(t, call("aten.cos.default", {a}))); });
      case 1: {
        const ValueId y = call("aten.tanh.default", {a});
        return add(y, [=, this](ValueId t) { give(a, write().sub(t, mul(t, mul(y, y)))); });
      }
      case 2:
        return add(write().add(a, b), [=, this](ValueId t) { give(a, t), give(b, t); });
      case 3:
        return add(mul(a, b), [=, this](ValueId t) { give(a, mul(t, b)), give(b, mul(t, a)); });
      case 4:
        return add(call("aten.mm.default", {a, b}), [=, this](ValueId t) {
          give(a, call("aten.mm.default", {t, transposed(b)}));
          give(b, call("aten.mm.default", {transposed(a), t}));
        });
      case 5: {
        const ValueId sums = row_sums(a);
        return add(mul(a, sums), [=, this](ValueId t) {
          give(a, write().add(mul(t, sums), row_sums(mul(t, a))));
        });
      }
      case 6:
        return add(transposed(a), [=, this](ValueId t) { give(a, transposed(t)); });
      case 7:
        return add(turned(a), [=, this](ValueId t) { give(a, turned(t)); });
      case 8: {
        const ValueId mask = write().cast(call("aten.gt.Scalar", {a, 0.0}), ir::DType::F64);
        return add(mul(a, mask), [=, this](ValueId t) { give(a, mul(t, mask)); });
      }
      default:
        return add(write().sub(a, b),
                   [=, this](ValueId t) { give(a, t), give(b, call("aten.neg.default", {t})); });
    }
  }

  // Into the sum of the gradients of `v`.
  void give(ValueId v, ValueId gradient) {
    auto [it, first] = gradients_.try_emplace(v, gradient);
    if (first) return;
    if (pick(2))
      it->second = write().add(it->second, gradient);
    else
      it->second = write().sub(gradient, call("aten.neg.default", {it->second}));
  }

  void mutate() {
    if (pick(2)) return;
    g_.mutations.push_back({.input = static_cast<uint32_t>(pick(primals_)), .value = any()});
    // Only what is laid out as its input is.
    if (g_.value(g_.mutations[0].value).type != type()) g_.mutations.clear();
  }

  void results() {
    // As many that have tangents; calls alone give tensors of their own.
    for (ValueId t : ts_) {
      ValueId v = values_.back();
      for (int tries = 0; tries < 4 || !hand_on_.contains(v); ++tries) v = any();
      g_.outputs.push_back({.kind = Kind::Value, .value = v});
      give(v, t);
    }
    if (pick(3) == 0) g_.outputs.push_back({.kind = Kind::Input, .index = 0});
    if (pick(3) == 0) g_.outputs.push_back({.kind = Kind::ViewOfOutput, .type = type().tensor});
    if (pick(3) == 0) g_.outputs.push_back({.kind = Kind::None});
    if (pick(3) == 0) g_.outputs.push_back({.kind = Kind::Value, .value = g_.outputs[0].value});
  }

  void backward() {
    for (size_t i = values_.size(); i-- > primals_;) {
      const auto it = gradients_.find(values_[i]);
      if (it != gradients_.end()) hand_on_[values_[i]](it->second);
    }
    for (size_t i = 0; i < primals_; ++i) {
      const auto it = gradients_.find(values_[i]);
      if (it == gradients_.end() || pick(4) == 0)
        g_.outputs.push_back({.kind = Kind::None});
      else
        g_.outputs.push_back({.kind = Kind::Value, .value = it->second});
    }
    g_.tangents = static_cast<uint32_t>(tangents_);
  }

  std::mt19937 random_;
  Graph g_;
  size_t primals_, tangents_;
  ir::NodeId end_;
  std::vector<ValueId> values_, ts_;
  std::map<ValueId, HandOn> hand_on_;
  std::map<ValueId, ValueId> gradients_;
};

}  // namespace

Graph random_joint(uint32_t seed) { return Maker(seed).make(); }

}  // namespace oxy::autograd
