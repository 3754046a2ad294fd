// The two halves of joint graphs as regions, and the node between them.
#include "torch_bridge/region_gradients.h"

#include <torch/csrc/autograd/saved_variable.h>

#include <algorithm>

#include "ops/op_table.h"
#include "ops/rewriter.h"
#include "passes/pass_list.h"
#include "passes/rewrite.h"

namespace oxy::bridge {
namespace {

namespace engine = torch::autograd;
using Kind = ir::OutputSpec::Kind;

constexpr const char* kChoice = "cond";

bool is_differentiable(const ir::TensorType& t) {
  return ir::is_floating(t.dtype) || ir::is_complex(t.dtype);
}

// How a value is laid out as a gradient: without gaps.
ir::TensorType dense(ir::TensorType t) {
  if (!t.is_dense()) t.strides = ir::contiguous_strides(t.sizes);
  t.offset = 0;
  t.requires_grad = false;
  return t;
}

ir::ValueId zeros(ir::Graph& g, const ir::TensorType& like) {
  const ir::TensorType wanted = dense(like);
  ir::TensorType t = wanted;
  t.strides = ir::contiguous_strides(t.sizes);
  const ir::Node& n = g.add_call(
      ir::NodeKind::CallOp, "aten.full.default",
      {ops::list_of(t.sizes), ir::Arg(0.0), t.dtype, ir::Arg(), t.device}, {ir::Type::of(t)});
  return laid_out_as(g, wanted, n.outputs[0]);
}

// Only the values of the graph; it stays as it is where it is no joint one.
size_t results_of(const ir::Graph& g) {
  return g.outputs.size() - (g.stage == ir::Stage::Joint ? g.primals() : 0);
}

ir::Graph forward_of(const ir::Graph& joint) {
  ir::Graph g = joint;
  g.outputs.resize(results_of(joint));
  g.stage = ir::Stage::Aten;
  g.tangents = 0;
  passes::dce(g);
  for (size_t i = g.inputs().size(); i-- > joint.primals();) g.drop_input(i);
  return g;
}

// What the region gives as a gradient: memory of its own, which nothing else is.
ir::OutputSpec given(ir::Graph& g, ir::ValueId v, std::vector<ir::ValueId>& seen) {
  const bool own = g.def(v).kind != ir::NodeKind::Input && !passes::is_view(g.def(v)) &&
                   std::ranges::find(seen, v) == seen.end();
  if (!own) {
    const ir::TensorType t = g.tensor_type(v);
    v = g.add_call(ir::NodeKind::CallOp, "aten.clone.default", {v}, {ir::Type::of(t)}).outputs[0];
  }
  seen.push_back(v);
  ir::OutputSpec out;
  out.value = v;
  out.type = g.tensor_type(v);
  return out;
}

// Takes the operands, then a tangent by differentiable result; gives a gradient by operand that
// wants one.
ir::Graph backward_of(const RecordedRegion& region, const std::vector<bool>& wanted) {
  ir::Graph g = region.graph;
  const bool joint = g.stage == ir::Stage::Joint;
  const std::vector<ir::OutputSpec> outputs = std::exchange(g.outputs, {});
  const size_t results = results_of(region.graph), primals = g.primals();
  std::vector<ir::ValueId> inputs(g.inputs().begin(),
                                  g.inputs().begin() + static_cast<ptrdiff_t>(primals));
  size_t next = primals;
  for (uint32_t i = 0; i < results; ++i) {
    const ir::TensorType& type = region.graph.tensor_type(outputs[i].value);
    if (!is_differentiable(type)) continue;
    const auto& rooted = region.gradients.outputs;
    const bool has_tangent = joint && std::ranges::find(rooted, i) != rooted.end();
    inputs.push_back(has_tangent
                         ? g.inputs()[next++]
                         : g.add_input(cat("unused_tangent_", i), ir::Type::of(dense(type))));
  }
  g.stage = ir::Stage::Aten;
  g.tangents = 0;
  g.arrange_inputs(std::move(inputs));
  std::vector<ir::ValueId> seen;
  for (size_t i = 0; i < primals; ++i) {
    if (!wanted[i]) continue;
    const ir::TensorType type = dense(g.tensor_type(g.inputs()[i]));
    const ir::OutputSpec* found = joint ? &outputs[results + i] : nullptr;
    const bool is_there = found && found->kind == Kind::Value;
    const ir::ValueId v = is_there ? laid_out_as(g, type, found->value) : zeros(g, type);
    g.outputs.push_back(given(g, v, seen));
  }
  passes::dce(g);
  return g;
}

class Choice : public engine::Node {
 public:
  Choice(Recording& r, OpRecorder& ops) : r_(r), ops_(ops) {}

  // `args`: what decides, then the operands.
  void connect(const std::vector<at::Tensor>& args, std::vector<RecordedRegion> backward) {
    for (const at::Tensor& t : args) {
      args_.push_back(r_.arg_of(t).value());
      saved_.emplace_back(t, /*is_output=*/false);
    }
    for (const at::Tensor& t : std::span(args).subspan(1))
      if (t.requires_grad()) add_next_edge(engine::impl::gradient_edge(t));
    backward_ = std::move(backward);
  }
  void add_result(const at::Tensor& t) {
    engine::impl::set_gradient_edge(t, {getptr(), add_input_metadata(t)});
    types_.push_back(dense(type_of(t)));
  }

  engine::variable_list apply(engine::variable_list&& gradients) override {
    for (engine::SavedVariable& s : saved_) s.unpack(getptr());  // raises where one was written
    const c10::impl::ExcludeDispatchKeyGuard below(
        c10::autograd_dispatch_keyset_with_ADInplaceOrView);
    std::vector<at::Tensor> args;
    for (const ir::ValueId v : args_) args.push_back(r_.another_fake(v));
    for (size_t i = 0; i < types_.size(); ++i)
      args.push_back(r_.another_fake(tangent(gradients[i], types_[i])));
    return bridge::add_regions(r_, kChoice, std::move(args), backward_);
  }
  void release_variables() override {
    for (engine::SavedVariable& s : saved_) s.reset_data();
  }
  std::string name() const override { return "CondAutogradOpBackward"; }

 private:
  ir::ValueId tangent(const at::Tensor& gradient, const ir::TensorType& type) {
    if (!gradient.defined()) return zeros(r_.graph, type);
    at::functionalization::impl::sync(gradient);
    auto* w = wrapper_of(gradient);
    if (!w) throw Unsupported("a gradient that the recording did not make");
    return laid_out_as(r_.graph, type, r_.value_of(ops_.with_marks(w->value(), {})));
  }

  Recording& r_;
  OpRecorder& ops_;
  std::vector<ir::ValueId> args_;
  std::vector<engine::SavedVariable> saved_;
  std::vector<RecordedRegion> backward_;
  std::vector<ir::TensorType> types_;  // of the tangents
};

}  // namespace

std::vector<at::Tensor> add_differentiable_branches(Recording& r, OpRecorder& ops,
                                                    const std::vector<at::Tensor>& args,
                                                    std::vector<RecordedRegion> regions) {
  std::vector<bool> wanted;
  for (const at::Tensor& t : std::span(args).subspan(1)) wanted.push_back(t.requires_grad());
  std::vector<RecordedRegion> backward;
  for (RecordedRegion& region : regions) {
    backward.push_back({backward_of(region, wanted), region.attributes, {}});
    region.graph = forward_of(region.graph);
  }
  auto node = c10::make_intrusive<Choice>(r, ops);
  node->connect(args, std::move(backward));
  std::vector<at::Tensor> out;
  {
    // Views of written memory may be taken anew; autograd has nothing to add there.
    const c10::impl::ExcludeDispatchKeyGuard below(
        c10::autograd_dispatch_keyset_with_ADInplaceOrView);
    out = bridge::add_regions(r, kChoice, args, std::move(regions));
  }
  for (const at::Tensor& t : out)
    if (is_differentiable(type_of(t))) node->add_result(t);
  return out;
}

}  // namespace oxy::bridge
