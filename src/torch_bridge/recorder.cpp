// Enters and leaves the thread's state of a recording, and puts its parts together.
#include "torch_bridge/recorder.h"

#include <ATen/SavedTensorHooks.h>
#include <ATen/ThreadLocalState.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/functional.h>
#include <ATen/record_function.h>
#include <c10/core/GradMode.h>
#include <c10/util/ScopeExit.h>

#include <algorithm>
#include <unordered_set>
#include "autograd/partition.h"
#include "ir/specialize.h"
#include "ops/args.h"
#include "ops/op_table.h"
#include "passes/pass_list.h"
#include "support/check.h"
#include "torch_bridge/exact_views.h"
#include "torch_bridge/region_gradients.h"

namespace oxy::bridge {

// Everything of the thread that a recording changes, put back on destruction.
class Recorder::ThreadState {
 public:
  ThreadState(const std::shared_ptr<Mode>& mode, Recording& recording, OpRecorder& ops,
              AutocastCasts& casts)
      : saved_(at::ThreadLocalState()), views_(recording, ops, casts) {
    // An inference graph is the same without inference mode; its fakes are normal tensors.
    if (c10::InferenceMode::is_enabled()) {
      no_inference_.emplace(false);
      c10::GradMode::set_enabled(false);
    }
    // They see what a call saves, not what the recording does.
    at::SavedTensorDefaultHooks::set_tracing(true);
    at::enableRecordFunction(false);  // a profiler would look at the memory of fakes
    c10::impl::tls_set_dispatch_key_included(c10::DispatchKey::Functionalize, true);
    at::functionalization::impl::setFunctionalizationReapplyViewsTLS(true);
    c10::impl::TorchDispatchModeTLS::push_non_infra_mode_onto_stack(mode);
    if (recording.shapes) hear_meta_tensors();
  }
  ~ThreadState() { at::autocast::set_autocast_cache_enabled(autocast_cache_); }
  C10_DISABLE_COPY_AND_ASSIGN(ThreadState);

 private:
  VtableGuard vtable_;
  at::ThreadLocalStateGuard saved_;
  ExactViews views_;
  std::optional<c10::InferenceMode> no_inference_;
  // ThreadLocalState does not keep it.
  const bool autocast_cache_ = at::autocast::is_autocast_cache_enabled();
};

Recorder::Recorder(Options o)
    : recording_(o.symbolic, std::move(o.symbolic_number),
                 o.around ? &o.around->recording_ : nullptr),
      ops_(recording_, o.shape_rules, o.of_data),
      casts_(o.kept_casts),
      mode_(make_mode(o.mode_object, ops_)) {}

Recorder::~Recorder() {
  leave();
  silence(*mode_);
}

void Recorder::leave() { state_.reset(); }

at::Tensor Recorder::add_runtime_number(const at::Tensor& real, const std::string& name) {
  const RecordedSource& input = recording_.add_input(real, name, {});
  if (real.scalar_type() == at::kDouble)
    ops_.add_runtime_number(input.value, real.item<double>());
  else
    ops_.add_runtime_number(input.value);
  return input.wrapper;
}

bool Recorder::is_placed(const at::Tensor& number) const {
  at::functionalization::impl::sync(number);
  return ops_.is_placed(recording_.value_of(wrapper_of(number)->value()));
}

void Recorder::allow_number(const at::Tensor& t, std::optional<double> like) {
  at::functionalization::impl::sync(t);
  const ir::ValueId value = recording_.value_of(wrapper_of(t)->value());
  like ? ops_.add_runtime_number(value, *like) : ops_.add_runtime_number(value);
}

void Recorder::allow_read(const at::Tensor& t) {
  at::functionalization::impl::sync(t);
  ops_.add_read_number(recording_.value_of(wrapper_of(t)->value()));
}

std::optional<ScalarProgram> Recorder::scalar_program(const at::Tensor& t) const {
  at::functionalization::impl::sync(t);
  const ir::ValueId* v = recording_.find(wrapper_of(t)->value().unsafeGetTensorImpl());
  if (!v) return std::nullopt;
  auto constant = [&](ir::ValueId a) -> std::optional<double> {
    for (const RecordedSource& s : recording_.attributes)
      if (s.value == a && s.fresh && !s.real.is_complex()) return s.real.item<double>();
    return std::nullopt;
  };
  return bridge::scalar_program(recording_.graph, *v, constant);
}

c10::SymInt Recorder::add_symbolic_number(int64_t hint, const std::string& name,
                                          const std::optional<std::string>& group) {
  SymbolicShapes& shapes = recording_.shapes.value();
  const ir::Expr e = group ? shapes.symbol_for(hint, *group) : shapes.symbol_of_number(hint);
  recording_.add_number(e, name);
  return to_sym_int(e, recording_.shapes->facts());
}

std::vector<at::Tensor> Recorder::add_regions(const std::string& op,
                                              const std::vector<at::Tensor>& args,
                                              std::vector<RecordedRegion> regions) {
  OXY_CHECK(state_, "regions are added while a recording is entered");
  const auto needs_gradient = [](const at::Tensor& t) { return t.defined() && t.requires_grad(); };
  if (c10::GradMode::is_enabled() && std::ranges::any_of(args, needs_gradient)) {
    if (op != "cond") throw Unsupported(cat(op, " of what requires gradients"));
    ops_.note_grad_mode();
    return add_differentiable_branches(recording_, ops_, args, std::move(regions));
  }
  // Views of written memory may be taken anew; autograd has nothing to add there.
  c10::impl::ExcludeDispatchKeyGuard below(c10::autograd_dispatch_keyset_with_ADInplaceOrView);
  return bridge::add_regions(recording_, op, args, std::move(regions));
}

void Recorder::forget_draws(size_t from) {
  recording_.graph.kill_with_readers(from, [](const ir::Node& n) {
    const ops::OpInfo* op = ops::find(n);
    return op && op->has(ops::Random);
  });
}

bool Recorder::vanish_with(size_t from, const std::vector<at::Tensor>& gradients,
                           const std::vector<at::Tensor>& results) const {
  auto values = [this](const std::vector<at::Tensor>& tensors) {
    std::vector<ir::ValueId> out;
    for (const at::Tensor& t : tensors) {
      at::functionalization::impl::sync(t);
      out.push_back(recording_.value_of(wrapper_of(t)->value()));
    }
    return out;
  };
  return autograd::vanish_with(recording_.graph, from, values(gradients), values(results));
}

void Recorder::enter() {
  OXY_CHECK(!state_, "a recording is entered twice");
  state_ = std::make_unique<ThreadState>(mode_, recording_, ops_, casts_);
}

void Recorder::expect_op(const std::string& name) {
  auto [it, is_new] = mutable_ops_.try_emplace(name);
  if (is_new) it->second = make_functional(name);
}

void Recorder::end_autocasts() {
  if (kept_casts_now() != KeptCasts::All && casts_in_regions() == KeptCasts::None) clear_casts();
}

bool Recorder::owns(const at::Tensor& t) const {
  if (!t.defined()) return true;
  auto* w = wrapper_of(t);
  return w && recording_.find(w->value().unsafeGetTensorImpl());
}

void Recorder::set_unseen(const at::Tensor& t) {
  torch::autograd::impl::set_version_counter(t, c10::VariableVersion(/*version=*/0));
  recording_.unseen.push_back(t);
}

void Recorder::keep_memory(const at::Tensor& input) {
  recording_.no_second_order = "an assignment to data";
  for (RecordedSource& s : recording_.inputs)
    if (s.wrapper.defined() && s.wrapper.is_same(input) && !s.memory.defined())
      s.memory = at::Tensor(input.unsafeGetTensorImpl()->shallow_copy_and_detach(
          /*version_counter=*/0, /*allow_tensor_metadata_change=*/true));
}

ir::Graph Recorder::finish(const std::vector<at::Tensor>& results,
                           const std::map<size_t, sym::Expr>& numbers, Gradients* gradients) {
  if (!state_) enter();
  const auto left = c10::make_scope_exit([this] { leave(); });
  recording_.set_position({}, {});
  if (recording_.inference || !(recording_.grad || ops_.grad_mode_seen())) gradients = nullptr;
  if (gradients) gradients->turns_grad_on = !recording_.grad;
  std::vector<at::Tensor> roots, written;
  const size_t without_grad = recording_.without_grad.size();
  {
    // Rebuilding views runs ops on fakes; autograd has nothing to add there.
    c10::impl::ExcludeDispatchKeyGuard below(c10::autograd_dispatch_keyset_with_ADInplaceOrView);
    recording_.simplify_sizes();
    written = add_mutations(recording_, ops_, gradients != nullptr);
    roots = add_outputs(recording_, ops_, results, gradients != nullptr);
    for (const auto& [position, e] : numbers) {
      ir::OutputSpec& out = recording_.graph.outputs[position];
      out.kind = ir::OutputSpec::Kind::Value;
      out.value = recording_
                      .add_call(ir::NodeKind::CallOp, std::string(ops::kNumber), {e},
                                {ir::Type::integer(e)})
                      .outputs[0];
    }
    recording_.simplify_sizes();
    casts_.finish(recording_.graph);
  }
  passes::keep_checks(recording_.graph, recording_.in_try);
  recording_.without_grad.resize(without_grad);
  for (ir::OutputSpec& o : recording_.graph.outputs) {
    if (gradients) gradients->required.push_back(o.type.requires_grad);
    o.type.requires_grad = false;
  }
  const auto has_root = [](const at::Tensor& t) { return t.defined(); };
  if (std::ranges::any_of(roots, has_root) || std::ranges::any_of(written, has_root)) {
    c10::impl::ExcludeDispatchKeyGuard casts(c10::autocast_dispatch_keyset);
    gradients->views = add_roots_of_views(recording_, results, gradients->required, written, roots);
    add_backward(recording_, ops_, roots, written, *gradients);
    recording_.simplify_sizes();
    gradients->without_grad = std::move(recording_.without_grad);
    gradients->kept_history = std::move(recording_.kept_history);
    if (!recording_.no_second_order.empty())
      gradients->no_second_order = std::move(recording_.no_second_order);
  }
  recording_.check_written_splits();
  return std::move(recording_.graph);
}

std::vector<at::Tensor> Recorder::attributes() const {
  return c10::fmap(recording_.attributes, [](const RecordedSource& s) { return s.real; });
}

std::vector<at::Tensor> Recorder::sources() const {
  std::vector<at::Tensor> out;
  for (const auto* sources : {&recording_.inputs, &recording_.attributes})
    for (const RecordedSource& s : *sources)
      if (s.wrapper.defined()) out.push_back(s.wrapper);
  return out;
}

}  // namespace oxy::bridge
