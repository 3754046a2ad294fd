// The backward of a recording: autograd's own engine, run on the fakes under the same mode.

#include <torch/csrc/autograd/anomaly_mode.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/generated/Functions.h>

#include <algorithm>
#include <memory>
#include <unordered_map>
#include <unordered_set>

#include "autograd/compact.h"
#include "support/check.h"
#include "torch_bridge/engine_order.h"
#include "torch_bridge/recorder.h"

namespace oxy::bridge {
namespace {

namespace engine = torch::autograd;
namespace functional = at::functionalization::impl;

// Stands where the node lies that made an input. Nobody runs it: what arrives here is the gradient.
class Entrance : public engine::Node {
 public:
  engine::variable_list apply(engine::variable_list&& gradients) override { return gradients; }
};

// Whether a leaf gets a gradient laid out like this as it is: AccumulateGrad does not look at
// strides of dimensions of size 1. Those of what is row-major depend on the tangents' of the call.
bool is_laid_out_as_leaf(const ir::TensorType& gradient, const ir::TensorType& leaf) {
  if (gradient.strides == ir::contiguous_strides(gradient.sizes)) return false;
  for (size_t d = 0; d < leaf.sizes.size(); ++d)
    if (!leaf.sizes[d].is_const(1) && gradient.strides[d] != leaf.strides[d]) return false;
  return true;
}

// What a gradient is laid out as: as autograd computes it, where that is memory without gaps; for a
// leaf, whose gradient has its layout in the end, as the leaf but for dimensions of size 1.
ir::TensorType layout_of_gradient(const ir::TensorType& computed, const ir::TensorType& primal,
                                  bool leaf) {
  ir::TensorType out = computed;
  out.offset = 0;
  out.requires_grad = false;
  const bool kept = leaf && primal.is_dense() ? is_laid_out_as_leaf(out, primal) : out.is_dense();
  if (!kept) out.strides = primal.is_dense() ? primal.strides : ir::contiguous_strides(out.sizes);
  return out;
}

// Adds the tangent of a result to what arrives there by others, behind all of that.
class TangentAdded : public engine::FunctionPreHook {
 public:
  TangentAdded(uint32_t result, at::Tensor tangent)
      : result_(result), tangent_(std::move(tangent)) {}
  engine::variable_list operator()(const engine::variable_list& gradients) override {
    engine::variable_list out = gradients;
    at::Tensor& g = out.at(result_);
    g = g.defined() ? tangent_.add(g) : tangent_;
    return out;
  }

 private:
  const uint32_t result_;
  const at::Tensor tangent_;
};

// Of the gradient by what the caller gets: its layout, without gaps.
ir::TensorType tangent_type(const ir::Graph& g, const ir::OutputSpec& o) {
  return autograd::compact(o.is_view() ? o.type : g.tensor_type(o.value));
}
ir::TensorType tangent_type(const ir::Graph& g, const ir::Mutation& m) {
  return autograd::compact(m.metadata ? m.type : g.tensor_type(g.inputs()[m.input]));
}

// What autograd's engine is given.
struct Start {
  engine::edge_list from;
  engine::variable_list tangents;

  // A tangent by root that requires gradients.
  void add(Recording& r, const std::vector<at::Tensor>& roots, const auto& specs,
           std::vector<uint32_t>& rooted) {
    for (uint32_t i = 0; i < roots.size(); ++i) {
      if (!roots[i].defined()) continue;
      rooted.push_back(i);
      const ir::TensorType type = tangent_type(r.graph, specs[i]);
      const auto name = cat("tangents_", ++r.graph.tangents);
      from.push_back(engine::impl::gradient_edge(roots[i]));
      // The caller's tensor is a lazy view of the value: autograd's own node stands between them.
      at::Tensor tangent = r.add_input(r.new_fake(type), name, {}).wrapper;
      if (roots[i].is_conj()) tangent = tangent.conj();
      if (roots[i].is_neg()) tangent = at::_neg_view(tangent);
      tangents.push_back(std::move(tangent));
    }
  }

  // Leaves the roots that nothing comes to by others; the tangents of those come where it does.
  void put_in(const std::vector<uint32_t>& levels) {
    Start first;
    for (size_t i = 0; i < from.size(); ++i) {
      if (levels[i] == 0) {
        first.from.push_back(from[i]);
        first.tangents.push_back(tangents[i]);
      } else {
        from[i].function->add_tensor_pre_hook(
            std::make_unique<TangentAdded>(from[i].input_nr, tangents[i]));
      }
    }
    *this = std::move(first);
  }
};

// Anomaly mode looks at the values of gradients, which fakes have none of: it does so when the plan
// runs.
class NoAnomalies {
 public:
  NoAnomalies() { Mode::set_enabled(false, checks_); }
  ~NoAnomalies() { Mode::set_enabled(enabled_, checks_); }
  NoAnomalies(const NoAnomalies&) = delete;
  NoAnomalies& operator=(const NoAnomalies&) = delete;

 private:
  using Mode = engine::AnomalyMode;
  const bool enabled_ = Mode::is_enabled(), checks_ = Mode::should_check_nan();
};

// Eager's gradients of complex eigenvectors and singular vectors raise where the loss depends on a
// phase, which no vector has of its own: they look at values. So eager has these gradients.
class NoVectors : public engine::FunctionPreHook {
 public:
  explicit NoVectors(bool values_first) : first_(values_first ? 1 : 0) {}
  engine::variable_list operator()(const engine::variable_list& gradients) override {
    for (size_t i = first_; i < gradients.size(); ++i)
      if (gradients[i].defined() && gradients[i].is_complex())
        throw Unsupported("a gradient of complex vectors that are known up to a phase");
    return gradients;
  }

 private:
  const size_t first_;  // of the op's results that may be such vectors
};

void look_for_vectors(const Recording& r, const engine::edge_list& from) {
  constexpr std::string_view kOps[] = {"aten.linalg_eig.default", "aten._linalg_eigh.default",
                                       "aten._linalg_svd.default"};
  auto decomposes = [&](ir::NodeId id) {
    return std::ranges::find(kOps, r.graph.node(id).target) != std::end(kOps);
  };
  if (std::ranges::none_of(r.graph.order(), decomposes)) return;
  std::unordered_set<engine::Node*> seen;
  std::vector<engine::Node*> open;
  auto add = [&](const engine::edge_list& edges) {
    for (const engine::Edge& e : edges)
      if (e.function && seen.insert(e.function.get()).second) open.push_back(e.function.get());
  };
  add(from);
  while (!open.empty()) {
    engine::Node* n = open.back();
    open.pop_back();
    if (is_of_vectors(*n)) throw Unsupported("a gradient of singular vectors of singular vectors");
    if (gives_complex_vectors(*n))
      n->add_pre_hook(std::make_unique<NoVectors>(n->name() == "LinalgEigBackward0"));
    add(n->next_edges());
  }
}

// Whether its op, called again, gives the node: not a function with a formula of its own, and
// nobody's hook changes what arrives. Of torch's nodes the names end in a number.
bool is_of_op(engine::Node& n) {
  constexpr std::string_view kNames[] = {"torch::autograd::CopyBackwards",
                                         "torch::autograd::CopySlices",
                                         "torch::autograd::AccumulateGrad"};
  const std::string name = n.name();
  std::string_view stem = name;
  if (stem.ends_with("_copy")) stem.remove_suffix(5);
  const std::string_view unnumbered = stem.substr(0, stem.find_last_not_of("0123456789") + 1);
  const bool has_hooks = !n.tensor_pre_hooks().empty() || !n.retains_grad_hooks().empty() ||
                         !n.pre_hooks().empty() || !n.post_hooks().empty();
  return !has_hooks && ((unnumbered != stem && unnumbered.ends_with("Backward")) ||
                        dynamic_cast<Entrance*>(&n) != nullptr ||
                        std::ranges::find(kNames, name) != std::end(kNames));
}

// A result may depend on nothing but leaves that are no inputs: views made under no_grad, of what
// requires gradients. What such a backward saves, checks and lets go of is no part of a graph.
void look_for_unreached(const ReachedResults& reached) {
  std::vector<bool> leads(reached.levels.size());
  for (const ResultSet& results : reached.to_inputs)
    for (const uint32_t t : results) leads[t] = true;
  if (std::ranges::find(leads, false) != leads.end())
    throw Unsupported("a result whose gradient leads to no input");
}

// Where in the graph the formula stands of the op that has made a result.
struct Formula {
  size_t begin = 0, end = 0;
};

class Begins : public engine::FunctionPreHook {
 public:
  Begins(const ir::Graph& graph, std::shared_ptr<Formula> formula)
      : graph_(graph), formula_(std::move(formula)) {}
  engine::variable_list operator()(const engine::variable_list& gradients) override {
    formula_->begin = graph_.order().size();
    return gradients;
  }

 private:
  const ir::Graph& graph_;
  const std::shared_ptr<Formula> formula_;
};

class Ends : public engine::FunctionPostHook {
 public:
  Ends(const ir::Graph& graph, std::shared_ptr<Formula> formula)
      : graph_(graph), formula_(std::move(formula)) {}
  engine::variable_list operator()(const engine::variable_list& outputs,
                                   const engine::variable_list&) override {
    formula_->end = graph_.order().size();
    return outputs;
  }

 private:
  const ir::Graph& graph_;
  const std::shared_ptr<Formula> formula_;
};

// By output, for the engine to fill in; null where it requires no gradients.
std::vector<std::shared_ptr<Formula>> watch_formulas(const ir::Graph& g,
                                                     const std::vector<at::Tensor>& roots) {
  std::vector<std::shared_ptr<Formula>> out;
  std::unordered_map<const engine::Node*, std::shared_ptr<Formula>> known;
  for (const at::Tensor& root : roots) {
    auto& of = out.emplace_back();
    if (!root.defined()) continue;
    const auto node = engine::impl::gradient_edge(root).function;
    auto& made = known[node.get()];
    if (!made) {
      made = std::make_shared<Formula>();
      node->add_pre_hook(std::make_unique<Begins>(g, made));
      node->add_post_hook(std::make_unique<Ends>(g, made));
    }
    of = made;
  }
  return out;
}

bool is_checkpoint(const ir::Node& n) {
  return n.kind == ir::NodeKind::Region && n.target == "checkpoint";
}

// By input, and behind them by output: whether nodes from position `from`, or checkpoints, read it.
// The formula of the op that has made a result reads what that gave, whatever the tensor has
// become.
std::vector<bool> find_read(const ir::Graph& g, size_t primals, size_t from,
                            const std::vector<std::shared_ptr<Formula>>& formulas) {
  std::vector<std::vector<size_t>> readers(g.value_count());
  for (size_t i = 0; i < g.order().size(); ++i) {
    const ir::Node& n = g.node(g.order()[i]);
    if (i < from && !is_checkpoint(n)) continue;
    ir::for_each_value(n, [&](ir::ValueId v) { readers[v.index].push_back(i); });
  }
  std::vector<bool> out;
  for (size_t p = 0; p < primals; ++p) out.push_back(!readers[g.inputs()[p].index].empty());
  for (size_t o = 0; o < formulas.size(); ++o) {
    const auto is_other = [&](size_t i) {
      return !formulas[o] || i < formulas[o]->begin || i >= formulas[o]->end;
    };
    out.push_back(g.outputs[o].kind == ir::OutputSpec::Kind::Value &&
                  std::ranges::any_of(readers[g.outputs[o].value.index], is_other));
  }
  return out;
}

// What the node of an autograd.Function gets and gives. It runs as soon as one of the results that
// lead to it has a gradient, and has zeros in the place of gradients that do not arrive. Which do
// is known when the graph runs.
class Materializes : public engine::FunctionPreHook, public engine::FunctionPostHook {
 public:
  // `tangents`: of these results.
  Materializes(Recording& r, OpRecorder& ops, std::vector<ir::Arg> tangents)
      : r_(r), ops_(ops), tangents_{std::move(tangents)} {}

  engine::variable_list operator()(const engine::variable_list& gradients) override {
    engine::variable_list out = gradients;
    for (at::Tensor& t : out)
      if (t.defined()) t = materialized(t);
    return out;
  }
  engine::variable_list operator()(const engine::variable_list& outputs,
                                   const engine::variable_list&) override {
    return operator()(outputs);
  }

 private:
  at::Tensor materialized(const at::Tensor& t) const {
    functional::sync(t);
    auto* w = wrapper_of(t);
    if (!w) throw Unsupported("a gradient that the recording did not make");
    const ir::ValueId v = r_.value_of(ops_.with_marks(w->value(), {}));
    if (r_.sparse.contains(v)) return t;  // no other op takes it
    ir::Type type = r_.graph.value(v).type;
    type.tensor.requires_grad = false;
    const ir::Node& n =
        r_.add_call(ir::NodeKind::CallOp, std::string(ops::kMaterialize), {v, tangents_}, {type});
    at::Tensor out = functional::to_functional_tensor(r_.another_fake(n.outputs[0]));
    forbid_data(out);
    return out;
  }

  Recording& r_;
  OpRecorder& ops_;
  const ir::List tangents_;
};

// Formulas of torch's own are linear in what arrives, as autograd/without_tangents takes all to be.
void materialize_gradients(Recording& r, OpRecorder& ops, const engine::edge_list& from,
                           const std::vector<engine::Node*>& order) {
  if (from.size() < 2) return;  // the one result has its gradient
  if (std::ranges::none_of(order, [](const auto* node) { return is_of_python(*node); })) return;
  std::unordered_map<const engine::Node*, std::vector<bool>> leading;  // results, by node
  for (const engine::Node* node : order) leading[node].resize(from.size());
  for (size_t t = 0; t < from.size(); ++t) leading[from[t].function.get()][t] = true;
  const size_t first = r.graph.inputs().size() - from.size();
  for (engine::Node* node : order) {
    const std::vector<bool>& here = leading[node];
    std::vector<ir::Arg> tangents;
    for (size_t t = 0; t < from.size(); ++t)
      if (here[t]) tangents.emplace_back(r.graph.inputs()[first + t]);
    for (const engine::Edge& e : node->next_edges())
      for (size_t t = 0; e.function && t < from.size(); ++t)
        if (here[t]) leading[e.function.get()][t] = true;
    if (!is_of_python(*node)) continue;
    node->add_pre_hook(std::make_unique<Materializes>(r, ops, tangents));
    node->add_post_hook(std::make_unique<Materializes>(r, ops, tangents));
  }
}

// A product of one factor: as a quotient of numbers its gradient is none where these are none.
// Eager looks for zeros first, which a recording cannot, and so it has no quotient.
class Divides : public engine::FunctionPostHook {
 public:
  Divides(at::Tensor factor, at::Tensor product)
      : factor_(std::move(factor)), product_(std::move(product)) {}
  engine::variable_list operator()(const engine::variable_list& outputs,
                                   const engine::variable_list&) override {
    engine::variable_list out = outputs;
    at::Tensor& g = out.at(0);
    if (!g.defined()) return out;
    const at::Tensor factor = factor_.to(g.scalar_type());
    const at::Tensor quotient = product_.reshape_symint(factor.sym_sizes()).div(factor).conj();
    g = at::where(factor.eq(0).any(), g, g.mul(quotient));
    return out;
  }

 private:
  const at::Tensor factor_, product_;
};

void divide_single_factors(const std::vector<engine::Node*>& order) {
  namespace of_torch = engine::generated;
  for (engine::Node* node : order) {
    at::Tensor factor, product;
    const auto take = [&](auto& n) {
      factor = n.self_.unpack();
      product = n.result_.unpack(n.getptr());
      return factor.dim() > 0;
    };
    bool single = false;
    if (auto* all = dynamic_cast<of_torch::ProdBackward0*>(node))
      single = take(*all) && factor.sym_numel() == 1;
    else if (auto* rows = dynamic_cast<of_torch::ProdBackward1*>(node))
      single = take(*rows) && factor.sym_size(rows->dim) == 1;
    if (single) node->add_post_hook(std::make_unique<Divides>(factor, product));
  }
}

Unlocked unlocked_ = [](const std::function<void()>& f) { f(); };

engine::variable_list run_engine(const engine::edge_list& from,
                                 const engine::variable_list& tangents,
                                 const engine::edge_list& to) {
  engine::variable_list out;
  if (to.empty()) return out;
  const NoAnomalies values_are_not_there;
  auto run = [&] {
    out = engine::Engine::get_default_engine().execute(from, tangents, /*keep_graph=*/false,
                                                       /*create_graph=*/false,
                                                       /*accumulate_grad=*/false, to);
  };
  try {
    unlocked_(run);
    return out;
  } catch (const c10::Error& e) {
    const std::string what = e.what_without_backtrace();
    throw BackwardRaises(cat("a backward that raises: ", what.substr(0, what.find('\n'))));
  }
}

// Inputs as the engine comes to them.
std::vector<uint32_t> order_of_arrival(const std::vector<engine::Node*>& order,
                                       const engine::edge_list& of_inputs) {
  std::unordered_map<const engine::Node*, uint32_t> inputs;
  for (uint32_t i = 0; i < of_inputs.size(); ++i)
    if (of_inputs[i].is_valid()) inputs.emplace(of_inputs[i].function.get(), i);
  std::vector<uint32_t> out;
  for (const engine::Node* node : order)
    if (const auto it = inputs.find(node); it != inputs.end()) out.push_back(it->second);
  return out;
}

ir::OutputSpec gradient_of(Recording& r, OpRecorder& ops, const RecordedSource& primal,
                           const at::Tensor& gradient) {
  ir::OutputSpec out;
  out.kind = ir::OutputSpec::Kind::None;
  if (!gradient.defined()) return out;
  functional::sync(gradient);
  auto* w = wrapper_of(gradient);
  if (!w) throw Unsupported("a gradient that the recording did not make");
  const ir::ValueId value = r.value_of(ops.with_marks(w->value(), {}));
  const ir::TensorType& of = r.graph.tensor_type(primal.value);
  out.kind = ir::OutputSpec::Kind::Value;
  if (r.sparse.contains(value)) {
    out.type = r.graph.tensor_type(value);
    out.value = value;
    return out;
  }
  out.type = layout_of_gradient(r.graph.tensor_type(value), of, primal.real.is_leaf());
  out.value = laid_out_as(r.graph, out.type, value);
  return out;
}

// The gaps of a gradient's layout take at most so many times its memory: parts of complex numbers,
// and quarters of matrices, but not pieces of long rows.
constexpr int64_t kMostGaps = 4;

// See Gradients::orders.
std::vector<Gradients::Dim> own_order(const at::Tensor& gradient, const ir::OutputSpec& as) {
  if (as.kind != ir::OutputSpec::Kind::Value || gradient.layout() != at::kStrided) return {};
  const ir::TensorType own = type_of(gradient);
  if (same_layout(own, as.type)) return {};
  std::vector<Gradients::Dim> out;
  if (const auto dense = own.dense_order()) {
    for (const size_t d : *dense) out.push_back({d});
    return out;
  }
  std::vector<size_t> left;
  for (size_t d = own.sizes.size(); d-- > 0;)
    if (own.strides[d].is_const(0))
      out.push_back({d, 0});
    else
      left.push_back(d);
  ir::Expr inside = 1;
  int64_t gaps = 1;
  for (int64_t gap = 1; !left.empty();) {
    const auto next = std::ranges::find_if(
        left, [&](size_t d) { return own.strides[d] == inside * ir::Expr(gap); });
    if (next == left.end()) {
      if (++gap * gaps > kMostGaps) return {};
      continue;
    }
    out.push_back({*next, gap});
    inside = own.strides[*next] * own.sizes[*next];
    gaps *= gap;
    gap = 1;
    left.erase(next);
  }
  return out;
}

}  // namespace

bool gives_complex_vectors(const engine::Node& n) {
  constexpr std::string_view kNames[] = {"LinalgEigBackward0", "LinalgEighBackward0",
                                         "LinalgSvdBackward0"};
  if (std::ranges::find(kNames, n.name()) == std::end(kNames)) return false;
  for (uint32_t i = 0; i < n.num_inputs(); ++i)
    if (at::isComplexType(at::typeMetaToScalarType(n.input_metadata(i).dtype()))) return true;
  return false;
}

bool is_of_vectors(const engine::Node& n) {
  constexpr std::string_view kName = "LinalgSvdBackward0";
  if (n.name() != kName) return false;
  const engine::Edge& of = n.next_edge(0);
  return of.function && of.input_nr != 1 && of.function->name() == kName;
}

void set_unlocked(Unlocked unlocked) { unlocked_ = unlocked; }

engine::Edge require_gradients(const at::Tensor& wrapper, bool leaf) {
  if (leaf) {
    wrapper.set_requires_grad(true);
    return engine::impl::gradient_edge(wrapper);
  }
  auto entrance = c10::make_intrusive<Entrance>();
  entrance->add_input_metadata(wrapper);
  const engine::Edge edge(std::move(entrance), 0);
  engine::impl::set_gradient_edge(wrapper, edge);
  return edge;
}

void add_backward(Recording& r, OpRecorder& ops, const std::vector<at::Tensor>& of_outputs,
                  const std::vector<at::Tensor>& of_mutations, Gradients& gradients) {
  for (const RecordedSource& a : r.attributes)
    if (a.wrapper.requires_grad()) throw Unsupported("an attribute that requires gradients");
  const size_t primals = r.inputs.size();
  Start start;
  start.add(r, of_outputs, r.graph.outputs, gradients.outputs);
  start.add(r, of_mutations, r.graph.mutations, gradients.mutations);
  engine::edge_list of_inputs, to;
  for (size_t i = 0; i < primals; ++i) {
    of_inputs.push_back(r.inputs[i].edge);
    if (r.inputs[i].edge.is_valid()) to.push_back(r.inputs[i].edge);
  }
  r.graph.stage = ir::Stage::Joint;
  const size_t of_forward = gradients.forward_nodes = r.graph.order().size();
  r.begin_backward();
  gradients.reached = reached_results(start.from, of_inputs);
  look_for_unreached(gradients.reached);
  const std::vector<engine::Node*> order = in_engine_order(start.from);
  materialize_gradients(r, ops, start.from, order);
  gradients.order = order_of_arrival(order, of_inputs);
  for (const engine::Edge& e : start.from) gradients.names.push_back(e.function->name());
  for (engine::Node* node : order)
    if (!is_of_op(*node))
      gradients.no_second_order = cat("a hook or a function of autograd: ", node->name());
  divide_single_factors(order);
  start.put_in(gradients.reached.levels);
  look_for_vectors(r, start.from);
  const auto formulas = watch_formulas(r.graph, of_outputs);
  const engine::variable_list found = run_engine(start.from, start.tangents, to);
  gradients.read = find_read(r.graph, primals, of_forward, formulas);
  size_t next = 0;
  for (size_t i = 0; i < primals; ++i) {
    const bool wanted = r.inputs[i].edge.is_valid();
    const at::Tensor gradient = wanted ? found.at(next++) : at::Tensor();
    r.graph.outputs.push_back(gradient_of(r, ops, r.inputs[i], gradient));
    gradients.orders.push_back(own_order(gradient, r.graph.outputs.back()));
  }
}

}  // namespace oxy::bridge
