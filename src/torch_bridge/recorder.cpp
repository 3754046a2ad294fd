// Enters and leaves the thread's state of a recording, and puts its parts together.
#include "torch_bridge/recorder.h"

#include <ATen/ThreadLocalState.h>
#include <ATen/autocast_mode.h>
#include <c10/core/GradMode.h>

#include "support/check.h"
#include "torch_bridge/exact_views.h"
#include "torch_bridge/op_recorder.h"

namespace oxy::bridge {
namespace {

// Everything of the thread that a recording changes, put back on destruction.
class ThreadState {
 public:
  ThreadState(const std::shared_ptr<Mode>& mode, Recording& recording, OpRecorder& ops,
              AutocastCasts& casts)
      : saved_(at::ThreadLocalState()), views_(recording, ops, casts) {
    // An inference graph is the same without inference mode; its fakes are normal tensors.
    if (c10::InferenceMode::is_enabled()) {
      no_inference_.emplace(false);
      c10::GradMode::set_enabled(false);
    }
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

}  // namespace

struct Recorder::Impl {
  explicit Impl(Options o)
      : recording(o.symbolic, std::move(o.symbolic_number)),
        ops(recording, o.shape_rules),
        casts(o.kept_casts),
        mode(make_mode(o.mode_object, ops)) {}
  ~Impl() {
    state.reset();
    silence(*mode);
  }
  C10_DISABLE_COPY_AND_ASSIGN(Impl);

  Recording recording;
  OpRecorder ops;
  AutocastCasts casts;
  std::shared_ptr<Mode> mode;
  std::optional<ThreadState> state;
  std::unordered_map<std::string, std::vector<c10::RegistrationHandleRAII>> mutable_ops;
};

Recorder::Recorder(Options options) : impl_(std::make_unique<Impl>(std::move(options))) {}
Recorder::~Recorder() = default;

at::Tensor Recorder::add_input(const at::Tensor& real, const std::string& name,
                               std::span<const int64_t> dynamic_dims) {
  return impl_->recording.add_input(real, name, dynamic_dims).wrapper;
}

at::Tensor Recorder::add_runtime_number(const at::Tensor& real, const std::string& name) {
  const RecordedSource& input = impl_->recording.add_input(real, name, {});
  impl_->ops.add_runtime_number(input.value);
  return input.wrapper;
}

c10::SymInt Recorder::add_symbolic_number(int64_t hint, const std::string& name) {
  const ir::Expr e = impl_->recording.shapes.value().symbol_for(hint);
  impl_->recording.add_number(e, name);
  return to_sym_int(e, impl_->recording.shapes->facts());
}

void Recorder::add_number(int64_t value, const std::string& name) {
  impl_->recording.add_number(value, name);
}

at::Tensor Recorder::add_attribute(const at::Tensor& real, const std::string& name) {
  return impl_->recording.attribute(real, name).wrapper;
}

std::vector<at::Tensor> Recorder::add_regions(const std::string& op,
                                              const std::vector<at::Tensor>& args,
                                              std::vector<RecordedRegion> regions) {
  OXY_CHECK(impl_->state, "regions are added while a recording is entered");
  // Views of written memory may be taken anew; autograd has nothing to add there.
  c10::impl::ExcludeDispatchKeyGuard below(c10::autograd_dispatch_keyset_with_ADInplaceOrView);
  return bridge::add_regions(impl_->recording, op, args, std::move(regions));
}

void Recorder::enter() {
  OXY_CHECK(!impl_->state, "a recording is entered twice");
  impl_->state.emplace(impl_->mode, impl_->recording, impl_->ops, impl_->casts);
}

void Recorder::expect_op(const std::string& name) {
  auto [it, is_new] = impl_->mutable_ops.try_emplace(name);
  if (is_new) it->second = make_functional(name);
}

void Recorder::expect_write(std::string_view function, bool out) {
  impl_->ops.expect_write(function, out);
}

void Recorder::leave() { impl_->state.reset(); }

void Recorder::clear_casts() { impl_->casts.clear(impl_->recording.graph); }

void Recorder::end_autocasts() {
  if (kept_casts_now() != KeptCasts::All && casts_in_regions() == KeptCasts::None) clear_casts();
}

bool Recorder::has_casts() const { return impl_->casts.any(); }

KeptCasts Recorder::casts_in_regions() const { return impl_->casts.in_regions(); }

void Recorder::set_position(std::vector<ir::Frame> stack, ir::NodeId torch_node) {
  set_position(impl_->recording.graph.add_stack(std::move(stack)), torch_node);
}

void Recorder::set_position(ir::StackId stack, ir::NodeId torch_node) {
  impl_->recording.set_position(stack, torch_node);
}

ir::StackId Recorder::add_frame(ir::StackId caller, ir::Frame innermost) {
  return impl_->recording.graph.add_frame(caller, std::move(innermost));
}

bool Recorder::owns(const at::Tensor& t) const {
  if (!t.defined()) return true;
  auto* w = wrapper_of(t);
  return w && impl_->recording.find(w->value().unsafeGetTensorImpl());
}

const std::optional<std::string>& Recorder::failure() const { return impl_->recording.failure; }

ir::Graph Recorder::finish(const std::vector<at::Tensor>& results) {
  if (!impl_->state) enter();
  Recording& r = impl_->recording;
  r.set_position({}, {});
  {
    // Rebuilding views runs ops on fakes; autograd has nothing to add there.
    c10::impl::ExcludeDispatchKeyGuard below(c10::autograd_dispatch_keyset_with_ADInplaceOrView);
    r.simplify_sizes();
    add_mutations(r, impl_->ops);
    add_outputs(r, impl_->ops, results);
    r.simplify_sizes();
    impl_->casts.finish(r.graph);
  }
  leave();
  return std::move(r.graph);
}

std::vector<at::Tensor> Recorder::attributes() const {
  std::vector<at::Tensor> out;
  for (const RecordedSource& s : impl_->recording.attributes) out.push_back(s.real);
  return out;
}

std::vector<at::Tensor> Recorder::sources() const {
  std::vector<at::Tensor> out;
  for (const auto* sources : {&impl_->recording.inputs, &impl_->recording.attributes})
    for (const RecordedSource& s : *sources)
      if (s.wrapper.defined()) out.push_back(s.wrapper);
  return out;
}

std::shared_ptr<const sym::ShapeFacts> Recorder::facts() const {
  return impl_->recording.shapes ? impl_->recording.shapes->facts() : nullptr;
}

const std::shared_ptr<sym::ExprPool>& Recorder::pool() const { return impl_->recording.graph.pool; }

}  // namespace oxy::bridge
