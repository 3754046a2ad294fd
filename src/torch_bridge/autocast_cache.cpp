// Autocast's cache in recordings, and the ops that plans ask it by.
#include "torch_bridge/autocast_cache.h"

#include <ATen/autocast_mode.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <torch/library.h>

#include "support/check.h"
#include "torch_bridge/wide_gemms.h"

namespace oxy::bridge {
namespace {

constexpr auto kDevice = at::kCPU;

// Autocast as it was where the cast was recorded.
class RecordedAutocast {
 public:
  explicit RecordedAutocast(at::ScalarType dtype)
      : dtype_(at::autocast::get_autocast_dtype(kDevice)),
        cache_(at::autocast::is_autocast_cache_enabled()) {
    at::autocast::set_autocast_dtype(kDevice, dtype);
    at::autocast::set_autocast_cache_enabled(true);
  }
  ~RecordedAutocast() {
    at::autocast::set_autocast_dtype(kDevice, dtype_);
    at::autocast::set_autocast_cache_enabled(cache_);
  }
  C10_DISABLE_COPY_AND_ASSIGN(RecordedAutocast);

 private:
  const at::ScalarType dtype_;
  const bool cache_;
};

// Plans run below autograd, but what stays in the cache may meet code that wants gradients of the
// weight.
c10::impl::LocalDispatchKeySet with_autograd() {
  c10::impl::LocalDispatchKeySet keys = c10::impl::tls_local_dispatch_key_set();
  if (!c10::InferenceMode::is_enabled())
    keys.excluded_ = keys.excluded_ - c10::autograd_dispatch_keyset_with_ADInplaceOrView;
  return keys;
}

at::Tensor autocast_cast(const at::Tensor& self, at::ScalarType dtype, bool grad) {
  const RecordedAutocast autocast(dtype);
  const c10::impl::ForceDispatchKeyGuard keys(with_autograd());
  const c10::AutoGradMode mode(grad);
  at::Tensor out = at::autocast::cached_cast(dtype, self, kDevice);
  TORCH_CHECK(out.scalar_type() == dtype, "autocast's cache has the tensor in another dtype");
  return out;
}

}  // namespace

void register_autocast_ops() {
  register_wide_gemms();  // all ops of ours are there once one is
  using torch::Library;
  [[maybe_unused]] static const Library& ops = *[] {
    auto* library = new Library(Library::DEF, "oxyfuel", std::nullopt, __FILE__, __LINE__);
    library->def(
        "autocast_cast(Tensor self, ScalarType dtype, bool grad) -> Tensor",
        torch::dispatch(c10::DispatchKey::CompositeExplicitAutograd, TORCH_FN(autocast_cast)));
    library->def("clear_autocast_cache() -> ()", &at::autocast::clear_cache);
    return library;
  }();
}

KeptCasts kept_casts_now() {
  at::autocast::increment_nesting();
  const bool inside =
      at::autocast::decrement_nesting() > 0 || at::autocast::is_autocast_enabled(kDevice);
  return inside ? KeptCasts::All : KeptCasts::AtEnd;
}

bool AutocastCasts::add(const ir::Node& cast, const c10::TensorImpl* weight,
                        std::optional<ir::ValueId> entering, bool grad) {
  const ir::ValueId value = cast.args[0].value();
  const ir::ValueId first = kept_ == KeptCasts::All ? entering.value_or(value) : value;
  const auto found = first_.try_emplace(weight, First{first, cast.args[1]}).first->second;
  if (found.of != value || found.dtype != cast.args[1]) return false;
  if (entering) casts_.push_back({cast.id, grad});
  return true;
}

void AutocastCasts::ask_cache(ir::Graph& graph) const {
  register_autocast_ops();
  for (const Cast& cast : casts_) {
    ir::Node& node = graph.node(cast.node);
    const ir::NodeKind of = graph.def(node.args[0].value()).kind;
    if (of != ir::NodeKind::Input && of != ir::NodeKind::Attribute)
      throw Unsupported("autocast keeps the cast of a weight that has changed");
    node.target = "oxyfuel.autocast_cast.default";
    node.args = {node.arg(0), node.arg(1), cast.grad};
  }
}

void AutocastCasts::clear(ir::Graph& graph) {
  if (kept_ == KeptCasts::All) {
    ask_cache(graph);
    graph.add_call(ir::NodeKind::CallOp, "oxyfuel.clear_autocast_cache.default", {}, {});
  }
  casts_.clear();
  first_.clear();
}

void AutocastCasts::finish(ir::Graph& graph) const {
  if (kept_ != KeptCasts::None) ask_cache(graph);
}

}  // namespace oxy::bridge
