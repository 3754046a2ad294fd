// The forward's graph, calls of its ops one by one, and autograd's engine.
#include "torch_bridge/gradient_function.h"

#include <ATen/ops/alias.h>
#include <ATen/ops/clone.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>

#include "ops/op_table.h"
#include "torch_bridge/host.h"
#include "torch_bridge/ivalue_convert.h"
#include "torch_bridge/view_replay.h"

namespace oxy::bridge {
namespace {

using ir::Graph;
using ir::NodeId;
using ir::ValueId;
using Kind = ir::OutputSpec::Kind;

constexpr std::string_view kCopy = "aten.copy.default";
constexpr std::string_view kNormWithState = "aten._native_batch_norm_legit_functional.default";
constexpr std::string_view kNoisy = "aten.rrelu_with_noise_functional.default";
constexpr std::string_view kNorm = "aten._native_batch_norm_legit.no_stats";

bool draws(const ir::Node& n) {
  const ops::OpInfo* info = ops::find(n);
  return n.kind == ir::NodeKind::CallOp &&
         ((info != nullptr && info->has(ops::Random)) ||
          find_op(n.target).hasTag(at::Tag::nondeterministic_seeded));
}

// Kills what is not of the first `end` nodes or not needed by the outputs. Random numbers are all
// drawn, so that each draw gives what it gave.
void keep_needed(Graph& g, size_t end, const Gradients& gradients) {
  std::vector<bool> needed(g.value_count());
  for (const ir::OutputSpec& o : g.outputs) needed[o.value.index] = true;
  const std::vector<NodeId> order = g.order();
  for (size_t i = order.size(); i-- > 0;) {
    const ir::Node& n = g.node(order[i]);
    if (n.dead || n.kind == ir::NodeKind::Input || n.kind == ir::NodeKind::Attribute) continue;
    const auto is_needed = [&](ValueId v) { return needed[v.index]; };
    if (i >= end || !(draws(n) || std::ranges::any_of(n.outputs, is_needed))) {
      g.kill(order[i]);
      continue;
    }
    ir::for_each_value(n, [&](ValueId v) { needed[v.index] = true; });
    for (const auto& [now, before] : gradients.kept_history)
      if (std::ranges::find(n.outputs, now) != n.outputs.end()) needed[before.index] = true;
  }
}

// Of a batch in training: the running statistics are not read, and the forward has written them. A
// layer that is called again goes on with those that its first call gave.
void forget_statistics(Graph& g) {
  for (size_t i = g.order().size(); i-- > 0;) {
    ir::Node& n = g.node(g.order()[i]);
    if (n.dead || n.target != kNormWithState) continue;
    const bool* training = n.arg(5).get_if<bool>();
    const std::vector<uint32_t> uses = g.use_counts();
    if (training == nullptr || !*training ||
        uses[n.outputs[3].index] + uses[n.outputs[4].index] > 0)
      continue;
    n.target = kNorm;
    n.args.erase(n.args.begin() + 3, n.args.begin() + 5);
    n.outputs.resize(3);
  }
}

// What inputs were given without grad mode has no history: they hold it still. As further inputs,
// which these are is returned.
std::vector<uint32_t> take_as_written(Graph& g, const std::vector<NodeId>& without_grad) {
  std::vector<uint32_t> out;
  for (const ir::Mutation& m : std::exchange(g.mutations, {})) {
    const ir::Value value = g.value(m.value);
    if (m.metadata || m.unseen || !std::ranges::binary_search(without_grad, value.def)) continue;
    const ValueId held = g.add_input("", value.type);
    g.replace_uses(m.value, held);
    out.push_back(m.input);
  }
  return out;
}

void require_repeatable(const Graph& g, const std::vector<bool>& written) {
  const std::vector<uint32_t> uses = g.use_counts();
  for (size_t p = 0; p < written.size(); p++)
    if (written[p] && uses[g.inputs()[p].index] > 0)
      throw Unsupported("a gradient that reads what the function writes");
  for (const NodeId id : g.order()) {
    const ir::Node& n = g.node(id);
    if (n.dead || n.kind == ir::NodeKind::Input || n.kind == ir::NodeKind::Attribute) continue;
    if (n.kind != ir::NodeKind::CallOp) throw Unsupported("a branch, a loop or a checkpoint");
    if (n.target == kNoisy) throw Unsupported(cat(n.target, ", whose formula reads the old noise"));
    if (find_op(n.target).schema().is_mutable()) throw Unsupported(cat(n.target, ", which writes"));
  }
}

using GeneratorState = runtime::DeviceApi::GeneratorState;

// The generator as it was in front of the forward, for a while.
class DrawsAgain {
 public:
  explicit DrawsAgain(const GeneratorState& then) { torch_cpu().restore_generator(then); }
  ~DrawsAgain() { torch_cpu().restore_generator(now_); }
  DrawsAgain(const DrawsAgain&) = delete;
  DrawsAgain& operator=(const DrawsAgain&) = delete;

 private:
  const GeneratorState now_ = torch_cpu().generator_state();
};

bool rebuilds_views(const ir::Node& n) { return n.target.find("_scatter.") != std::string::npos; }

// One run of the function.
class Run {
 public:
  Run(const Graph& g, std::vector<uint32_t> uses)
      : g_(g), left_(std::move(uses)), values_(g.value_count()) {}

  void set(ValueId v, const at::Tensor& t) {
    values_[v.index] = t;
    const ir::TensorType& type = g_.tensor_type(v);
    for (size_t d = 0; d < type.sizes.size(); d++) {
      set(type.sizes[d], t.sizes()[d]);
      set(type.strides[d], t.strides()[d]);
    }
    set(type.offset, t.storage_offset());
  }
  void set(ir::Expr e, int64_t value) {
    if (e.kind() == sym::Kind::Symbol) symbols_.try_emplace(e.symbol_index(), value);
  }

  void call(const ir::Node& n) {
    if (n.target == kCopy) return copy(n);
    const c10::OperatorHandle op = find_op(n.target);
    torch::jit::Stack stack;
    for (size_t i = 0; i < op.schema().arguments().size(); i++)
      stack.push_back(argument(n.arg(i), kind_of(op.schema().arguments()[i].real_type())));
    op.callBoxed(stack);
    size_t next = 0;
    for (const c10::IValue& v : stack) {
      if (v.isTensorList())
        for (const at::Tensor& t : v.toTensorVector()) put(n.outputs.at(next++), t);
      else
        put(n.outputs.at(next++), v.isTensor() ? v.toTensor() : at::Tensor());
      if (next == n.outputs.size()) break;
    }
    release(n);
  }

  // Gives one value the history of another.
  void keep_history(ValueId now, ValueId before) {
    at::Tensor kept = at::clone(get(before));
    {
      const c10::AutoGradMode off(false);
      kept.copy_(get(now));
    }
    put(now, std::move(kept));
    if (--left_[before.index] == 0) values_[before.index].reset();
  }

  const at::Tensor& get(ValueId v) const { return values_[v.index]; }
  at::Tensor view_of(ValueId base, const ir::TensorType& place) const {
    const at::Tensor& t = get(base);
    const ir::TensorType& as = g_.tensor_type(base);
    if (values_of(as.sizes) != t.sizes() || values_of(as.strides) != t.strides())
      throw Unsupported("a result that is a view of what lies otherwise");
    return view_at(t, {values_of(place.sizes), values_of(place.strides),
                       value_of(place.offset) - value_of(as.offset) + t.storage_offset()});
  }
  int64_t value_of(ir::Expr e) const {
    return sym::evaluate(e, [&](ir::Expr symbol) {
      const auto it = symbols_.find(symbol.symbol_index());
      if (it == symbols_.end()) throw Unsupported("a size that depends on data");
      return it->second;
    });
  }

 private:
  std::vector<int64_t> values_of(const std::vector<ir::Expr>& exprs) const {
    std::vector<int64_t> out;
    for (const ir::Expr& e : exprs) out.push_back(value_of(e));
    return out;
  }
  void put(ValueId v, at::Tensor t) {
    if (left_[v.index] > 0) values_[v.index] = std::move(t);
  }
  // Behind their last reader.
  void release(const ir::Node& n) {
    ir::for_each_value(n, [&](ValueId v) {
      if (--left_[v.index] == 0) values_[v.index].reset();
    });
  }

  // The functional op has no derivative.
  void copy(const ir::Node& n) {
    const at::Tensor to = get(n.arg(0).value()), from = get(n.arg(1).value());
    put(n.outputs[0], at::empty_strided(to.sizes(), to.strides(), to.options()).copy_(from));
    release(n);
  }

  c10::IValue argument(const ir::Arg& a, ArgKind kind) const {
    const bool is_number = kind == ArgKind::Scalar || kind == ArgKind::Float;
    if (a.is_value() && is_number) {
      const at::Scalar number = get(a.value()).detach().item();
      return kind == ArgKind::Float ? c10::IValue(number.toDouble()) : c10::IValue(number);
    }
    const ir::Arg constant = ir::map_leaves(a, [&](const ir::Arg& leaf) {
      const ir::Expr* e = leaf.get_if<ir::Expr>();
      return e != nullptr && !e->is_const() ? ir::Arg(value_of(*e)) : leaf;
    });
    return to_ivalue(constant, kind, [&](ValueId v) { return get(v); });
  }

  const Graph& g_;
  std::vector<uint32_t> left_;  // readers, by value
  GradientFunction::Tensors values_;
  std::unordered_map<uint32_t, int64_t> symbols_;
};

}  // namespace

GradientFunction::GradientFunction(Graph joint, const Gradients& gradients, Tensors attributes)
    : why_not_(gradients.no_second_order),
      graph_(std::move(joint)),
      gradients_(gradients),
      attributes_(std::move(attributes)) {}

void GradientFunction::prepare() {
  if (is_prepared_) return;
  Graph g = graph_;
  const size_t primals = g.primals();
  std::vector<bool> written(primals), has_gradient;
  for (const ir::Mutation& m : g.mutations) written[m.input] = true;
  for (size_t p = 0; p < primals; p++)
    has_gradient.push_back(g.outputs[g.outputs.size() - primals + p].kind != Kind::None);
  std::vector<ir::OutputSpec> roots;
  std::map<size_t, ir::TensorType> views;
  for (const uint32_t o : gradients_.outputs) {
    ir::OutputSpec root = g.outputs[o];
    if (root.kind != Kind::Value) {
      if (!std::ranges::binary_search(gradients_.views, o))
        throw Unsupported("a result that is a view");
      views.emplace(roots.size(), root.type);
      root.value =
          root.kind == Kind::ViewOfInput ? g.inputs()[root.index] : g.outputs[root.index].value;
      root.kind = Kind::Value;
    }
    roots.push_back(std::move(root));
  }
  for (const uint32_t m : gradients_.mutations) roots.push_back({.value = g.mutations[m].value});
  g.outputs = std::move(roots);
  g.stage = ir::Stage::Aten;
  as_written_ = take_as_written(g, gradients_.without_grad);
  keep_needed(g, as_written_.size() + gradients_.forward_nodes, gradients_);
  forget_statistics(g);
  for (const NodeId id : gradients_.without_grad)
    if (const ir::Node& n = g.node(id); !n.dead && rebuilds_views(n))
      throw Unsupported(cat(n.target, " of a view that was written"));
  require_repeatable(g, written);
  uses_ = g.use_counts();
  for (const auto& [now, before] : gradients_.kept_history) uses_[before.index]++;
  has_gradient_ = std::move(has_gradient);
  reads_.clear();
  for (size_t p = 0; p < primals; p++) reads_.push_back(uses_[g.inputs()[p].index] > 0);
  for (size_t i = 0; i < as_written_.size(); i++)
    if (uses_[g.inputs()[of_written(i)].index] > 0) reads_[as_written_[i]] = true;
  graph_ = std::move(g);
  views_ = std::move(views);
  is_prepared_ = true;
}

const std::vector<bool>& GradientFunction::reads() {
  const std::lock_guard lock(mutex_);
  if (!why_not_.empty()) throw Unsupported(why_not_);
  try {
    prepare();
  } catch (const Unsupported& e) {
    why_not_ = e.what();
    throw;
  }
  return reads_;
}

GradientFunction::Tensors GradientFunction::operator()(std::span<const Input> primals,
                                                       const Tensors& tangents,
                                                       const std::vector<bool>& asked,
                                                       const GeneratorState& then) const {
  const c10::AutoGradMode on(true);
  const c10::impl::ExcludeDispatchKeyGuard casts(c10::autocast_dispatch_keyset);
  Run run(graph_, uses_);
  Tensors inputs;
  std::vector<size_t> places;
  for (size_t p = 0; p < has_gradient_.size(); p++) {
    const ValueId v = graph_.inputs()[p];
    if (graph_.value(v).type.kind == ir::Type::Kind::Int)
      run.set(graph_.value(v).type.expr, primals[p].number);
    if (!reads_[p] || primals[p].tensor == nullptr) continue;
    at::Tensor t = *primals[p].tensor;
    if (t.requires_grad() && !graph_.tensor_type(v).requires_grad) {
      if (gradients_.read.at(p)) throw Unsupported("an input that was made to require gradients");
      t = t.detach();
    }
    // Of its own: one primal may be computed from another one.
    if (t.requires_grad()) t = at::alias(t);
    run.set(v, t);
    if (!t.requires_grad() || !has_gradient_[p] || (!asked.empty() && !asked[p])) continue;
    inputs.push_back(std::move(t));
    places.push_back(p);
  }
  for (size_t i = 0; i < as_written_.size(); i++)
    if (reads_[as_written_[i]])
      run.set(graph_.inputs()[of_written(i)], primals[as_written_[i]].tensor->detach());
  try {
    std::optional<DrawsAgain> drawing;
    if (then) drawing.emplace(then);
    size_t attribute = 0;
    for (const NodeId id : graph_.order()) {
      const ir::Node& n = graph_.node(id);
      if (n.kind == ir::NodeKind::Attribute) run.set(n.outputs[0], attributes_.at(attribute++));
      if (n.kind != ir::NodeKind::CallOp || n.dead) continue;
      {
        const c10::AutoGradMode as_recorded(
            !std::ranges::binary_search(gradients_.without_grad, id));
        run.call(n);
      }
      for (const auto& [now, before] : gradients_.kept_history)
        if (std::ranges::find(n.outputs, now) != n.outputs.end()) run.keep_history(now, before);
    }
  } catch (const c10::Error& e) {
    throw Unsupported(cat("the forward raises: ", e.what_without_backtrace()));
  }
  Tensors roots, by;
  for (size_t i = 0; i < tangents.size(); i++) {
    if (!tangents[i].defined()) continue;
    const ir::OutputSpec& o = graph_.outputs[i];
    at::Tensor root = run.get(o.value);
    if (const auto view = views_.find(i); view != views_.end())
      root = run.view_of(o.value, view->second);
    if (!root.requires_grad()) throw Unsupported("a result that has lost its history");
    roots.push_back(root);
    by.push_back(tangents[i]);
  }
  Tensors out(has_gradient_.size());
  if (inputs.empty() || roots.empty()) return out;
  const Tensors found =
      torch::autograd::grad(roots, inputs, by, /*retain_graph=*/true, /*create_graph=*/true,
                            /*allow_unused=*/true);
  for (size_t i = 0; i < places.size(); i++) out[places[i]] = found[i];
  return out;
}

}  // namespace oxy::bridge
