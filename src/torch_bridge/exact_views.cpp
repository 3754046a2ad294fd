// Views with inverses of our own, which give each place in memory one value.
#include "torch_bridge/exact_views.h"

#include <ATen/ExpandUtils.h>
#include <ATen/FunctionalStorageImpl.h>
#include <ATen/Functions.h>
#include <ATen/Operators.h>
#include <ATen/autocast_mode.h>
#include <ATen/ops/empty_meta_dispatch.h>
#include <c10/core/GradMode.h>
#include <torch/library.h>

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "ops/op_table.h"
#include "support/check.h"
#include "torch_bridge/autocast_cache.h"
#include "torch_bridge/masked_writes.h"
#include "torch_bridge/op_recorder.h"
#include "torch_bridge/recorder.h"
#include "torch_bridge/symbolic_composites.h"
#include "torch_bridge/symbolic_shapes.h"

namespace oxy::bridge {
namespace {

namespace functional = at::functionalization::impl;
using at::functionalization::ViewMeta;

constexpr auto kKey = c10::DispatchKey::TESTING_ONLY_GenericMode;
constexpr c10::DispatchKeySet kBelow(c10::DispatchKeySet::FULL_AFTER, kKey);
// Of views: torch makes those of zeros without memory above its functionalisation, and would copy
// the wrapper.
constexpr c10::DispatchKeySet kBelowOfViews = kBelow.remove(c10::DispatchKey::ZeroTensor);

thread_local ExactViews* current = nullptr;

// Whether an op has come down to the recording: the levels of torch.func pass it through these
// kernels first, and then again with the tensors that they have wrapped.
bool is_transformed() {
  return c10::impl::tls_is_dispatch_key_included(c10::DispatchKey::FuncTorchDynamicLayerFrontMode);
}
bool is_at_recording() { return current && !is_transformed(); }

// While an op runs that autocast may have a kernel for: whether casts that it makes are kept.
thread_local std::optional<bool> keeps_casts;

// That kernel runs with its key switched off. Torch's own cache would keep casts of fakes.
class UnderAutocast {
 public:
  UnderAutocast() : on_(current && !keeps_casts && at::autocast::is_autocast_enabled(at::kCPU)) {
    if (!on_) return;
    // Of what torch.func has wrapped it would keep casts of the wrappers, which end with the level.
    keeps_casts = at::autocast::is_autocast_cache_enabled() && !is_transformed();
    at::autocast::set_autocast_cache_enabled(false);
  }
  ~UnderAutocast() {
    if (on_) at::autocast::set_autocast_cache_enabled(*std::exchange(keeps_casts, std::nullopt));
  }
  C10_DISABLE_COPY_AND_ASSIGN(UnderAutocast);

 private:
  const bool on_;
};

Recording& recording() {
  OXY_CHECK(current, "a write is carried back outside of its recording");
  return current->recording;
}

[[noreturn]] void refuse_write() {
  recording().give_up("a write to a tensor that overlaps itself");
}

// Whether all elements are known to be the same, as after fill_.
bool is_uniform(const at::Tensor& fake) {
  const ir::Graph& graph = recording().graph;
  const ir::Node* n = &graph.def(recording().value_of(fake));
  while (n->kind == ir::NodeKind::CallOp) {
    const std::string_view op = n->target;
    if (op == "aten.fill.Scalar" || op == "aten.zero.default") return true;
    const ops::OpInfo* info = ops::find(*n);
    if (op != "aten.clone.default" && !(info && info->has(ops::View))) return false;
    n = &graph.def(n->args[0].value());
  }
  return false;
}

// Refuses a tensor whose elements are one in memory unless all are the same.
void check_copies(const at::Tensor& written) {
  if (!is_uniform(written)) refuse_write();
}

// A written tensor in the layout of the one before.
at::Tensor lay_out(const at::Tensor& before, const at::Tensor& result) {
  Recording& r = recording();
  const ir::TensorType wanted = r.graph.tensor_type(r.value_of(before));
  if (wanted.may_overlap_itself()) r.give_up("an input that changes overlaps itself");
  const at::Tensor written = current->ops.with_marks(result, marks_of(before));
  const ir::ValueId computed = r.value_of(written), value = laid_out_as(r.graph, wanted, computed);
  at::Tensor out = written;
  if (value != computed) {
    r.computed_of[value] = computed;
    out = r.another_fake(value);
    set_marks(out, marks_of(written));
  }
  if (!wanted.is_dense() || !wanted.offset.is_const(0) || r.rebuilt.contains(storage_of(before))) {
    if (r.strided.contains(storage_of(before)))
      r.give_up("a write to an input with gaps or an offset that as_strided has viewed");
    r.rebuilt.insert(storage_of(out));
  }
  return out;
}

// torch's view with another inverse: the new base, of the base before and the written view.
class OurView final : public ViewMeta {
 public:
  using Inverse =
      std::function<at::Tensor(ViewMeta& original, const at::Tensor& base, const at::Tensor& view)>;

  OurView(std::shared_ptr<ViewMeta> original, Inverse inverse)
      : ViewMeta(original->has_symbolic_inputs, original->is_multi_output, original->is_as_strided,
                 original->out_index),
        original_(std::move(original)),
        inverse_(std::move(inverse)) {}

  at::Tensor forward(const at::Tensor& base) override { return original_->forward(base); }
  at::Tensor reverse(const at::Tensor& base, const at::Tensor& view) override {
    return inverse_(*original_, base, view);
  }

 private:
  std::shared_ptr<ViewMeta> original_;
  Inverse inverse_;
};

// All of the memory.
class Whole final : public ViewMeta {
 public:
  Whole() : ViewMeta(/*has_symbolic_inputs=*/false) {}

  at::Tensor forward(const at::Tensor& base) override { return base; }
  at::Tensor reverse(const at::Tensor& base, const at::Tensor& view) override {
    return lay_out(base, view);
  }
};

void set_inverse(const at::Tensor& view, OurView::Inverse inverse) {
  const auto* wrapper = current ? wrapper_of(view) : nullptr;
  if (!wrapper || wrapper->view_metas().empty()) return;
  // torch has no way to say this: a view's steps are only ever appended to.
  auto& last = const_cast<std::shared_ptr<ViewMeta>&>(wrapper->view_metas().back());
  last = std::make_shared<OurView>(last, std::move(inverse));
}

// The first copy along each dimension that was expanded; they are all the same.
at::Tensor without_copies(const at::Tensor& base, const at::Tensor& view) {
  if (view.sym_numel() == 0) return base.clone();  // a write all the same
  const int64_t added = view.dim() - base.dim();
  bool copies = false;
  at::Tensor once = view;
  for (int64_t d = 0; d < view.dim(); ++d) {
    const bool one = view.sym_size(d) == 1;
    if (d < added) {
      copies = copies || !one;
      once = once.select(0, 0);
    } else if (!one && base.sym_size(d - added) == 1) {
      copies = true;
      once = once.narrow(d - added, 0, 1);
    }
  }
  if (copies) check_copies(view);
  once = once.contiguous();
  // contiguous() takes any stride of a dimension of size 1.
  const bool alike = base.is_contiguous() && !is_symbolic(base);
  return alike && once.strides() != base.strides() ? once.as_strided(base.sizes(), base.strides())
                                                   : once;
}

// Places that are one in memory have one value: each is taken once.
at::Tensor without_shared_places(const at::Tensor& base, at::Tensor view,
                                 std::vector<c10::SymInt> sizes, c10::SymIntArrayRef strides,
                                 std::optional<c10::SymInt> offset) {
  check_copies(view);
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (strides[d] != 0 || sizes[d] == 0) continue;
    view = view.narrow(static_cast<int64_t>(d), 0, 1);
    sizes[d] = 1;
  }
  return at::_ops::as_strided_scatter::call(base, view, sizes, strides, std::move(offset));
}

at::Tensor as_strided(c10::DispatchKeySet keys, const at::Tensor& self, c10::SymIntArrayRef size,
                      c10::SymIntArrayRef stride, std::optional<c10::SymInt> offset) {
  // Of the memory as it is now: refused here, not when the view is made again.
  if (current && at::functionalization::impl::isFunctionalTensor(self))
    at::functionalization::impl::sync(self);
  at::Tensor view =
      at::_ops::as_strided::redispatch(keys & kBelowOfViews, self, size, stride, offset);
  if (!type_of(view).may_overlap_itself()) return view;
  set_inverse(view, [sizes = size.vec(), strides = stride.vec(), offset](
                        ViewMeta&, const at::Tensor& base, const at::Tensor& written) {
    return without_shared_places(base, written, sizes, strides, offset);
  });
  return view;
}

at::Tensor expand(c10::DispatchKeySet keys, const at::Tensor& self, c10::SymIntArrayRef size,
                  bool implicit) {
  // torch's own kernel takes no symbols: of a meta tensor, which only sizes are asked of, and of a
  // number that torch has made a tensor of.
  const bool symbolic = std::ranges::any_of(size, &c10::SymInt::is_heap_allocated);
  const bool fits = static_cast<int64_t>(size.size()) >= self.dim();
  if (current && symbolic && fits && self.is_meta()) {
    std::vector<c10::SymInt> sizes = size.vec();
    for (int64_t d = self.dim(); d > 0; --d) {
      c10::SymInt& wanted = sizes[sizes.size() - static_cast<size_t>(d)];
      if (wanted.maybe_as_int() == -1) wanted = self.sym_size(-d);
    }
    return at::meta::empty_symint(sizes, self.options());
  }
  if (is_at_recording() && symbolic && !functional::isFunctionalTensor(self) &&
      !current->recording.find(self.unsafeGetTensorImpl()))
    return at::_ops::expand::call(current->recording.met(self).wrapper, size, implicit);
  at::Tensor view = at::_ops::expand::redispatch(keys & kBelow, self, size, implicit);
  set_inverse(view, [](ViewMeta&, const at::Tensor& base, const at::Tensor& written) {
    return without_copies(base, written);
  });
  return view;
}

// True where a window covers the element; the windows do not overlap. Along `dim` of a tensor of so
// many dimensions.
at::Tensor covered(const at::Tensor& base, int64_t dim, int64_t size, int64_t step) {
  const int64_t length = base.size(dim), windows = (length - size) / step + 1;
  const at::Tensor place =
      at::arange(length, at::TensorOptions().dtype(at::kLong).device(base.device()));
  const at::Tensor inside = place.remainder(step).lt(size).logical_and(place.lt(windows * step));
  std::vector<int64_t> shape(static_cast<size_t>(base.dim()), 1);
  shape[static_cast<size_t>(dim)] = length;
  return inside.view(shape);
}

// With so many zeros behind the elements along `dim`, or without the last ones.
at::Tensor padded(const at::Tensor& t, int64_t dim, const c10::SymInt& zeros) {
  if (zeros == 0) return t;
  std::vector<c10::SymInt> pads(static_cast<size_t>(2 * (t.dim() - dim)), 0);
  pads.back() = zeros;
  return at::constant_pad_nd_symint(t, pads);
}

// The windows side by side, where torch adds them to zeros, which -0.0 does not survive.
at::Tensor laid_out(const at::Tensor& base, const at::Tensor& view, int64_t dim, int64_t size,
                    int64_t step) {
  const at::Tensor windows = padded(view.movedim(-1, dim + 1), dim + 1, step - size);
  return padded(windows.flatten(dim, dim + 1), dim, base.sym_size(dim) - view.sym_size(dim) * step);
}

at::Tensor without_windows(ViewMeta& original, const at::Tensor& base, const at::Tensor& view,
                           int64_t dim, int64_t size, int64_t step) {
  if (view.sym_numel() == 0) return base.clone();  // a write all the same
  if (base.dim() == 0) return view.select(0, 0);
  dim = dim < 0 ? dim + base.dim() : dim;
  if (step < size) return original.reverse(base, view);  // refuses windows that overlap
  const at::Tensor written = laid_out(base, view, dim, size, step);
  if (step == size && base.sym_size(dim) % step == 0) return written;
  return at::where(covered(base, dim, size, step), written, base);
}

at::Tensor unfold(c10::DispatchKeySet keys, const at::Tensor& self, int64_t dim, int64_t size,
                  int64_t step) {
  at::Tensor view = at::_ops::unfold::redispatch(keys & kBelow, self, dim, size, step);
  set_inverse(view, [=](ViewMeta& original, const at::Tensor& base, const at::Tensor& written) {
    return without_windows(original, base, written, dim, size, step);
  });
  return view;
}

// torch's inverse asks for sizes as numbers.
std::vector<at::Tensor> unbind(c10::DispatchKeySet keys, const at::Tensor& self, int64_t dim) {
  std::vector<at::Tensor> pieces = at::_ops::unbind_int::redispatch(keys & kBelow, self, dim);
  for (size_t i = 0; i < pieces.size(); ++i)
    set_inverse(pieces[i], [=](ViewMeta&, const at::Tensor& base, const at::Tensor& written) {
      return at::select_scatter(base, written, dim, static_cast<int64_t>(i));
    });
  return pieces;
}

// Eager's unsafe_split is a split that autograd does not know of: its results share memory with
// what was split.
template <class Unsafe, class Plain, class Size>
std::vector<at::Tensor> unsafe_split(c10::DispatchKeySet keys, const at::Tensor& self, Size size,
                                     int64_t dim) {
  const bool plain = is_at_recording() && !(c10::GradMode::is_enabled() && self.requires_grad());
  const auto split = plain ? &Plain::redispatch : &Unsafe::redispatch;
  std::vector<at::Tensor> parts = split(keys & kBelow, self, std::move(size), dim);
  for (const at::Tensor& part : parts) {
    const auto* wrapper = current && !plain ? wrapper_of(part) : nullptr;
    if (!wrapper) continue;
    Recording& r = recording();
    r.unsafe_splits.emplace(r.graph.def(r.value_of(wrapper->value())).id, std::nullopt);
  }
  return parts;
}

// Where the parts begin is read from memory.
std::vector<at::Tensor> tensor_split(c10::DispatchKeySet keys, const at::Tensor& self,
                                     const at::Tensor& places, int64_t dim) {
  if (current && functional::isFunctionalTensor(places))
    throw DataDependent("aten.tensor_split: the shape of its result depends on data", false);
  return at::_ops::tensor_split_tensor_indices_or_sections::redispatch(keys & kBelow, self, places,
                                                                       dim);
}

// A kernel of autocast has cast a tensor, and would keep that in its cache if the tensor is a
// weight. A leaf that requires gradients is what it takes for one.
void hear_cast(const at::Tensor& from, const at::Tensor& to) {
  if (from.scalar_type() != at::kFloat || !from.requires_grad() || !from.is_leaf() ||
      from.is_view() || to.scalar_type() != at::autocast::get_autocast_dtype(at::kCPU))
    return;
  Recording& r = recording();
  const ir::Node& cast = r.graph.def(r.value_of(wrapper_of(to)->value()));
  if (!current->casts.add(cast, from.unsafeGetTensorImpl(), r.entering(from),
                          c10::GradMode::is_enabled()))
    r.give_up("autocast casts a weight that has changed, or to two dtypes");
}

at::Tensor to_copy(c10::DispatchKeySet keys, const at::Tensor& self,
                   std::optional<at::ScalarType> dtype, std::optional<at::Layout> layout,
                   std::optional<at::Device> device, std::optional<bool> pin_memory,
                   bool non_blocking, std::optional<at::MemoryFormat> format) {
  at::Tensor out = at::_ops::_to_copy::redispatch(keys & kBelow, self, dtype, layout, device,
                                                  pin_memory, non_blocking, format);
  if (is_at_recording() && keeps_casts.value_or(false) &&
      !at::autocast::is_autocast_enabled(at::kCPU))
    hear_cast(self, out);
  return out;
}

// Eager lets an op that gives all elements one value write to places that are one in memory.
bool may_write_copies(const c10::OperatorHandle& op) {
  static const c10::OperatorName fill("aten::fill_", "Scalar"), zero("aten::zero_", "");
  return op.operator_name() == fill || op.operator_name() == zero;
}

// An argument that an op writes, or an item of it.
struct WrittenArgument {
  at::Tensor tensor;
  size_t position, item = 0;  // of a list
};

template <class F>
void for_each_written(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> args, F&& visit) {
  const auto& formal = op.schema().arguments();
  auto on_tensor = [&](const at::Tensor& t, size_t position, size_t item) {
    if (functional::isFunctionalTensor(t)) visit(WrittenArgument{t, position, item});
  };
  for (size_t i = 0; i < args.size(); ++i) {
    if (!formal[i].alias_info() || !formal[i].alias_info()->isWrite()) continue;
    if (args[i].isTensor()) on_tensor(args[i].toTensor(), i, 0);
    if (!args[i].isTensorList()) continue;
    size_t item = 0;
    for (const at::Tensor& t : args[i].toTensorVector()) on_tensor(t, i, item++);
  }
}

at::functionalization::FunctionalStorageImpl& memory_of(const at::Tensor& t) {
  return *static_cast<at::functionalization::FunctionalStorageImpl*>(
      t.storage().unsafeGetStorageImpl());
}

bool keeps_layout(const at::Tensor& t) {
  const auto& metas = wrapper_of(t)->view_metas();
  return !metas.empty() && dynamic_cast<Whole*>(metas.front().get()) != nullptr;
}

// A tensor, and the value of its memory before a write.
struct Written {
  at::Tensor wrapper, memory;
};

// What is known of the unsafe split that the memory is a part of; null for any other.
std::optional<size_t>* unsafe_split_of(const at::Tensor& memory) {
  Recording& r = recording();
  const auto found = r.unsafe_splits.find(r.graph.def(r.value_of(memory)).id);
  return found == r.unsafe_splits.end() ? nullptr : &found->second;
}

// A write leaves strides as they were; functionalisation has those of what was computed.
void keep_strides(const Written& written) {
  auto& memory = memory_of(written.wrapper);
  const at::Tensor &before = written.memory, now = memory.base();
  const ir::TensorType was = type_of(before), is = type_of(now);
  if (was.sizes != is.sizes) return;  // of out=, see check_out
  // Where an input of symbolic sizes begins is another matter (GuardedPlaces).
  if (was.strides == is.strides && (is_symbolic(was) || was.offset == is.offset)) return;
  if (was.offset != is.offset && !unsafe_split_of(before)) refuse_write();
  // Rebuilding views runs ops on fakes; autograd has nothing to add there.
  c10::impl::ExcludeDispatchKeyGuard below(c10::autograd_dispatch_keyset_with_ADInplaceOrView);
  memory.add_update(lay_out(before, now), {});
  functional::sync(written.wrapper);
}

// What was computed has no marks of torch's lazy views; those that are made of what was written ask
// its value for them.
void keep_marks(const at::Tensor& written) {
  const LazyMarks marks = marks_of(written);
  auto* w = wrapper_of(written);
  if (marks.any() && marks_of(w->value()) != marks)
    w->replace_(current->ops.with_marks(w->value(), marks));
}

// Behind an op with out=, whose nodes begin at `from`: refuses one whose k-th result has another
// shape than the tensor had, which it then gets, where somebody else sees that.
void check_out(const c10::OperatorHandle& op, size_t from, size_t k, const at::Tensor& wrapper,
               c10::IntArrayRef sizes_before) {
  Recording& r = recording();
  const bool view = !wrapper_of(wrapper)->view_metas().empty();
  if (!view && wrapper.storage().use_count() == 1 && !r.entering(wrapper)) return;
  auto check = [&](bool same) {
    if (!same) r.give_up("out= of another shape than the result's");
  };
  check(wrapper.sizes() == sizes_before);
  // A view keeps its shape: what the functional op has computed tells.
  const std::string name = target_of({op.operator_name().name, ""});
  const auto prefix = std::string_view(name).substr(0, name.rfind('.') + 1);
  for (size_t i = from; view && i < r.graph.order().size(); i++) {
    const ir::Node& n = r.graph.node(r.graph.order()[i]);
    if (n.target.starts_with(prefix) && k < n.outputs.size())
      check(std::ranges::equal(r.graph.tensor_type(n.outputs[k]).sizes, sizes_before, {},
                               [](const sym::Expr& e) { return e.is_const() ? e.value() : -1; }));
  }
}

// Whether an op in place reads each element in front of its write to it.
bool writes_by_element(const c10::OperatorHandle& op) {
  std::string name = op.operator_name().name;
  if (!name.ends_with('_')) return true;  // out=: another kernel than in place
  if (name == "aten::copy_" || name.starts_with("aten::_foreach_") ||
      name.starts_with("aten::_fused_"))
    return true;
  name.pop_back();
  const ops::OpInfo* info = ops::find(target_of({name, op.operator_name().overload_name}));
  return info != nullptr && info->has(ops::Pointwise);
}

// Whether another argument has what is written: in other places, where eager raises or what it
// computes hangs on the order of the elements, or at all, where the op does not go element by
// element. So has another item of a list.
bool meets_another(const c10::OperatorHandle& op, const WrittenArgument& written,
                   c10::ArrayRef<c10::IValue> args) {
  const ir::TensorType type = type_of(written.tensor);
  bool out = false;
  for (size_t i = 0; i < args.size(); ++i) {
    size_t item = 0;
    map_tensors(args[i], [&](const at::Tensor& t) {
      const bool beside = args[i].isTensorList() && item != written.item;
      const bool itself = i == written.position && !beside;
      ++item;
      out |= t.defined() && !itself && may_share_elements(t, written.tensor, /*at_hints=*/true) &&
             (beside || !same_place(type_of(t), type) || !writes_by_element(op));
      return t;
    });
  }
  return out;
}

// Without a formula of its own eager differentiates the ops that the kernel calls.
bool has_formula(const c10::OperatorHandle& op) {
  using c10::DispatchKey;
  const std::string& name = op.operator_name().name;
  constexpr std::string_view kTorchs[] = {"aten::", "prims::", "prim::", "_c10d_functional::"};
  const auto keys = {DispatchKey::AutogradCPU, DispatchKey::Autograd,
                     DispatchKey::CompositeImplicitAutograd};
  return std::ranges::any_of(kTorchs, [&](auto torchs) { return name.starts_with(torchs); }) ||
         std::ranges::any_of(keys, [&](auto key) { return op.hasKernelForDispatchKey(key); });
}

// Refuses an op that eager finds its gradient for in the code of its kernel.
void check_formula(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> args) {
  if (!c10::GradMode::is_enabled() || has_formula(op)) return;
  const auto check = [](const at::Tensor& t) {
    if (t.defined() && t.requires_grad())
      recording().give_up("an op without a formula for its gradient");
    return t;
  };
  for (const c10::IValue& a : args) map_tensors(a, check);
}

thread_local bool inside_write = false;

struct InsideWrite {
  InsideWrite() { inside_write = true; }
  ~InsideWrite() { inside_write = before; }
  const bool before = inside_write;
};

bool is_in_forward_without_grad() {
  return !c10::GradMode::is_enabled() && recording().graph.stage != ir::Stage::Joint;
}

// Views of what was written before are made anew where they are met: that is no part of the op.
void make_views_anew(c10::ArrayRef<c10::IValue> args) {
  const c10::AutoGradMode on(true);
  for (const c10::IValue& a : args)
    for_each_tensor(a, [](const at::Tensor& t) {
      if (wrapper_of(t) != nullptr) functional::sync(t);
    });
}

// A tensor keeps its history where it is written without grad mode.
class KeptHistory {
 public:
  void add(const at::Tensor& t) {
    if (!is_in_forward_without_grad()) return;
    if (t.is_view() && (t.requires_grad() || t._base().requires_grad()))
      recording().no_second_order = "a view that is written without grad mode";
    else if (t.requires_grad())
      before_.emplace_back(t, recording().value_of(wrapper_of(t)->value()));
  }
  void note() const {
    for (const auto& [t, before] : before_) {
      functional::sync(t);
      const ir::ValueId now = recording().value_of(wrapper_of(t)->value());
      if (recording().graph.value(now).def.index < nodes_)
        recording().no_second_order = "a write of what others have, without grad mode";
      recording().kept_history.emplace_back(now, before);
    }
  }

 private:
  const size_t nodes_ = recording().graph.node_count();
  std::vector<std::pair<at::Tensor, ir::ValueId>> before_;
};

// Where torch's code takes a tensor for a subclass it may give its result back and leave `outs` as
// they are (linalg.matrix_rank).
void write_results(torch::jit::Stack& stack, c10::ArrayRef<at::Tensor> outs) {
  for (size_t k = 0; k < outs.size(); k++) {
    c10::IValue& result = stack[stack.size() - outs.size() + k];
    if (result.toTensor().is_same(outs[k])) continue;
    outs[k].copy_(result.toTensor());
    result = outs[k];
  }
}

void run_write(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const size_t n = op.schema().arguments().size();
  const bool copies = may_write_copies(op);
  const bool may_resize = written_arguments(op.schema()).empty();  // by out=
  KeptHistory kept;
  bool meets = false;
  std::vector<Written> written;
  std::vector<std::pair<at::Tensor, std::vector<int64_t>>> outs;  // with the sizes before
  std::vector<at::Tensor> results;                                // of out=, which it gives back
  bool in_rows = true;
  const size_t recorded = recording().graph.order().size();
  const c10::ArrayRef<c10::IValue> args(stack->data() + stack->size() - n, n);
  std::unordered_map<const c10::StorageImpl*, size_t> having;  // arguments, by their memory
  for (const c10::IValue& a : args)
    for_each_tensor(a, [&](const at::Tensor& t) {
      if (t.has_storage()) ++having[storage_of(t)];
    });
  for_each_written(op, args, [&](const WrittenArgument& argument) {
    const at::Tensor& t = argument.tensor;
    if (!copies && type_of(t).may_overlap_itself()) refuse_write();
    recording().check_write(t);
    kept.add(t);
    meets |= having[storage_of(t)] > 1 && meets_another(op, argument, args);
    at::Tensor base = memory_of(t).base();
    if (auto* split = unsafe_split_of(base); split && !*split) *split = recorded;
    if (may_resize && !is_symbolic(t)) outs.emplace_back(t, t.sizes().vec());
    if (op.schema().arguments()[argument.position].is_out()) {
      results.push_back(t);
      in_rows &= t.is_contiguous();
    }
    if (!keeps_layout(t)) written.push_back({t, std::move(base)});
  });
  const size_t draws = heard().draws;
  {
    const InsideWrite inside;
    op.redispatchBoxed(keys & kBelow, stack);
    if (op.schema().returns().size() == results.size()) write_results(*stack, results);
  }
  // Behind what raises in eager too.
  if (!in_rows && heard().draws != draws)
    recording().give_up("random numbers for out= that is not row-major");
  if (meets) recording().give_up("a write to what another argument has as well");
  for (size_t k = 0; k < outs.size(); k++)
    check_out(op, recorded, k, outs[k].first, outs[k].second);
  for (const Written& w : written) {
    keep_strides(w);
    keep_marks(w.wrapper);
  }
  kept.note();
}

// The zeros that forward AD makes: torch's kernels for them ask what their sizes are, and a symbol
// would become a number. A product is zeros again, which is the answer; all else computes with
// zeros, and torch's kernels for marked ones must not be asked any more: they take what has no mark
// for the answer. Views keep the mark by themselves.
bool answer_for_zeros(const c10::OperatorHandle& op, c10::DispatchKeySet& keys,
                      torch::jit::Stack& stack) {
  const c10::FunctionSchema& schema = op.schema();
  const size_t base = stack.size() - schema.arguments().size();
  bool zero = false, symbolic = false, differentiated = false;
  const auto look = [&](const at::Tensor& t) {
    zero |= t._is_zerotensor();
    symbolic |= is_symbolic(t);
    differentiated |= t.requires_grad() && c10::GradMode::is_enabled();
    return t;
  };
  for (size_t i = base; i < stack.size(); ++i) map_tensors(stack[i], look);
  if (!zero || !symbolic || schema.is_mutable() || schema.hasAnyAliasInfo() ||
      op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd))
    return false;
  static const c10::OperatorName product("aten::mul", "Tensor");
  if (op.operator_name() == product && !differentiated) {
    const at::Tensor other = torch::jit::pop(stack).toTensor();
    const at::Tensor self = torch::jit::pop(stack).toTensor();
    const auto sizes = at::infer_size_symdimvector(self.sym_sizes(), other.sym_sizes());
    const auto options = self.options().dtype(at::result_type(self, other));
    stack.emplace_back(at::_efficientzerotensor_symint(sizes, options));
    return true;
  }
  const auto dense = [](const at::Tensor& t) {
    return t._is_zerotensor() ? at::zeros_symint(t.sym_sizes(), t.options()) : t;
  };
  for (size_t i = base; i < stack.size(); ++i) stack[i] = map_tensors(stack[i], dense);
  keys = keys.remove(c10::DispatchKey::ZeroTensor);
  return false;
}

// What an op that writes in place asks of its operands.
enum class WriteKind : uint8_t {
  Unknown,
  ByElement,  // that they broadcast to what is written
  AsItIs,     // nothing: the result has the shape and the dtype of what is written
};

// Of one that writes to its first argument.
WriteKind kind_of_write(const c10::OperatorHandle& op) {
  static const std::unordered_set<std::string_view> as_it_is = {
      "bernoulli",      "cauchy",     "exponential", "fill",       "geometric",
      "index_add",      "index_copy", "index_fill",  "log_normal", "masked_fill",
      "masked_scatter", "normal",     "random",      "scatter",    "scatter_add",
      "tril",           "triu",       "uniform",     "zero",
  };
  const c10::OperatorName& name = op.operator_name();
  const c10::FunctionSchema& schema = op.schema();
  if (!name.name.ends_with('_') || op.hasTag(at::Tag::inplace_view) || schema.returns().size() != 1)
    return WriteKind::Unknown;
  std::string_view word = name.name;
  if (!word.starts_with("aten::")) return WriteKind::Unknown;
  word = word.substr(6, word.size() - 7);
  if (as_it_is.contains(word)) return WriteKind::AsItIs;
  if (op.hasTag(at::Tag::pointwise)) return WriteKind::ByElement;
  for (const std::string& overload : {name.overload_name, std::string("default")})
    if (const ops::OpInfo* functional = ops::find(cat("aten.", word, '.', overload)))
      if (functional->has(ops::Pointwise)) return WriteKind::ByElement;
  return WriteKind::Unknown;
}

// Of integers these stay integers, of truths with truths the last ones truths.
bool keeps_dtype(const c10::OperatorHandle& op, c10::ScalarType type) {
  static const std::unordered_set<std::string_view> of_integers = {
      "aten::abs_", "aten::add_", "aten::clamp_",     "aten::clamp_max_", "aten::clamp_min_",
      "aten::mul_", "aten::neg_", "aten::remainder_", "aten::sub_",       "aten::floor_divide_",
  };
  static const std::unordered_set<std::string_view> of_truths = {
      "aten::__iand__",     "aten::__ior__",      "aten::__ixor__",     "aten::bitwise_and_",
      "aten::bitwise_or_",  "aten::bitwise_xor_", "aten::fill_",        "aten::logical_and_",
      "aten::logical_not_", "aten::logical_or_",  "aten::logical_xor_", "aten::masked_fill_",
      "aten::zero_",
  };
  const std::string_view name = op.operator_name().name;
  return c10::isFloatingType(type) || c10::isComplexType(type) || of_truths.contains(name) ||
         (type != at::kBool && of_integers.contains(name));
}

// Whether a result of such a kind can be written to elements of this type.
bool can_hold(c10::ScalarType type, bool is_complex, bool is_floating) {
  return c10::isComplexType(type) || (!is_complex && (c10::isFloatingType(type) || !is_floating));
}

// For sure.
bool broadcasts_to(c10::SymIntArrayRef from, c10::SymIntArrayRef to) {
  const auto is_same = [](const c10::SymInt& a, const c10::SymInt& b) {
    if (!a.is_symbolic() || !b.is_symbolic())
      return a.maybe_as_int() && a.maybe_as_int() == b.maybe_as_int();
    return expr_of(a) == expr_of(b);
  };
  return from.size() <= to.size() &&
         std::equal(from.rbegin(), from.rend(), to.rbegin(), [&](const auto& a, const auto& b) {
           return a.maybe_as_int() == 1 || is_same(a, b);
         });
}

// Functionalisation runs an op that writes in place on tensors without memory first, so that a
// shape or dtype which does not fit raises. Torch has many of these kernels in Python, and they
// import sympy or its compiler, which takes longer than a capture. True where it is plain that
// nothing is raised but what the op that does not write raises as well: the stack has the result
// then.
bool answer_check_of_write(const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  const WriteKind kind = kind_of_write(op);
  if (kind == WriteKind::Unknown) return false;
  const size_t base = stack.size() - op.schema().arguments().size();
  const at::Tensor& self = stack[base].toTensor();
  const c10::ScalarType type = self.scalar_type();
  if (!self.is_meta() || !keeps_dtype(op, type)) return false;
  const auto fits = [&](const c10::IValue& a) {
    if (a.isComplexDouble() || a.isDouble()) return can_hold(type, a.isComplexDouble(), true);
    if (a.isInt() && type == at::kBool) return false;
    if (!a.isTensor()) return !a.isTensorList() && !a.isList();
    const at::Tensor& t = a.toTensor();
    return t.defined() && t.is_meta() && can_hold(type, t.is_complex(), t.is_floating_point()) &&
           (type != at::kBool || t.scalar_type() == at::kBool) &&
           (kind == WriteKind::AsItIs || broadcasts_to(t.sym_sizes(), self.sym_sizes()));
  };
  if (!std::all_of(stack.begin() + static_cast<ptrdiff_t>(base), stack.end(), fits)) return false;
  stack.resize(base + 1);
  return true;
}

void hear_op(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const UnderAutocast autocast;
  // Wrappers of torch.func's have the mark as well.
  if (current && current->recording.shapes && answer_for_zeros(op, keys, *stack)) return;
  if (current && inside_write && answer_check_of_write(op, *stack)) return;
  const bool views = current && op.schema().hasAnyAliasInfo() && !op.schema().is_mutable();
  if (is_at_recording()) {
    const auto args =
        c10::ArrayRef<c10::IValue>(*stack).slice(stack->size() - op.schema().arguments().size());
    check_formula(op, args);
    if (!views && is_in_forward_without_grad()) make_views_anew(args);
  }
  if (is_at_recording() && op.schema().is_mutable() && !op.hasTag(at::Tag::inplace_view))
    return run_write(op, keys, stack);
  op.redispatchBoxed(keys & (views ? kBelowOfViews : kBelow), stack);
}

// One that changes nothing leaves the strides as well.
const at::Tensor& resize_(c10::DispatchKeySet keys, const at::Tensor& self,
                          c10::SymIntArrayRef size, std::optional<at::MemoryFormat> format) {
  if (current && !format && self.sym_sizes() == size) return self;
  return at::_ops::resize_::redispatch(keys & kBelow, self, size, format);
}

void put_by_index(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                  torch::jit::Stack* stack) {
  constexpr size_t kArguments = 4;
  const c10::ArrayRef<c10::IValue> args(stack->data() + stack->size() - kArguments, kArguments);
  const std::optional<at::Tensor> chosen = current ? chosen_by_mask(args) : std::nullopt;
  if (!chosen) return hear_op(op, keys, stack);
  at::Tensor out = *chosen;
  if (op.schema().is_mutable()) out = args[0].toTensor().copy_(out);
  torch::jit::drop(*stack, kArguments);
  stack->emplace_back(std::move(out));
}

// What torch makes of the two bounds outside of training: of integers f32.
double middle_slope(const c10::Scalar& lower, const c10::Scalar& upper) {
  if (lower.isFloatingPoint() || upper.isFloatingPoint())
    return (lower.toDouble() + upper.toDouble()) / 2;
  return static_cast<float>(lower.toLong() + upper.toLong()) / 2;
}

// Outside of training leaky_relu, which leaves the noise alone. The functional op's result lies as
// its operand.
void rrelu(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  constexpr size_t kArguments = 6;
  const c10::ArrayRef<c10::IValue> args(stack->data() + stack->size() - kArguments, kArguments);
  const bool in_place = op.schema().arguments()[0].alias_info() != nullptr;
  if (current && !args[4].toBool() &&
      args[0].toTensor().sym_sizes() == args[1].toTensor().sym_sizes()) {
    at::Tensor self = args[0].toTensor();
    const double slope = middle_slope(args[2].toScalar(), args[3].toScalar());
    at::Tensor out =
        in_place ? at::leaky_relu_(self, slope) : at::leaky_relu(self.contiguous(), slope);
    torch::jit::drop(*stack, kArguments);
    stack->emplace_back(std::move(out));
    return;
  }
  hear_op(op, keys, stack);
  if (in_place) return;
  const at::Tensor out = stack->back().toTensor();
  const bool in_rows = is_symbolic(out)
                           ? out.is_contiguous()
                           : out.strides().equals(c10::contiguous_strides(out.sizes()));
  if (!in_rows) stack->back() = out.clone(at::MemoryFormat::Contiguous);
}

// torch adds a bias to a product in place, but where a mode listens.
void linear(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const std::vector<c10::IValue> args(stack->end() - 3, stack->end());
  hear_op(op, keys, stack);
  if (!is_at_recording() || at::autocast::is_autocast_enabled(at::kCPU) || args[2].isNone()) return;
  const at::Tensor input = args[0].toTensor(), weight = args[1].toTensor();
  c10::SymDimVector sizes(input.sym_sizes().slice(0, input.dim() - 1));
  if (weight.dim() == 2) sizes.push_back(weight.sym_size(0));
  const at::Tensor& out = stack->back().toTensor();
  if (out.scalar_type() == input.scalar_type() && out.sym_sizes() == sizes) return;
  if (!c10::canCast(out.scalar_type(), input.scalar_type()))
    recording().give_up("a bias that the product does not hold");
  stack->back() = at::linear(input, weight).add_(args[2].toTensor());
}

// At the first recording: until then other libraries find the key as torch has it.
void register_kernels() {
  using torch::Library;
  [[maybe_unused]] static const Library& every_op = *[] {
    auto* library = new Library(Library::IMPL, "_", kKey, __FILE__, __LINE__);
    library->fallback(torch::CppFunction::makeFromBoxedFunction<&hear_op>());
    return library;
  }();
  [[maybe_unused]] static const Library& aten = *[] {
    auto* library = new Library(Library::IMPL, "aten", kKey, __FILE__, __LINE__);
    namespace ops = at::_ops;
    library->impl("_to_copy", TORCH_FN(to_copy));
    library->impl("as_strided", TORCH_FN(as_strided));
    library->impl("expand", TORCH_FN(expand));
    library->impl("unfold", TORCH_FN(unfold));
    library->impl("unbind.int", TORCH_FN(unbind));
    library->impl("resize_", TORCH_FN(resize_));
    library->impl("tensor_split.tensor_indices_or_sections", TORCH_FN(tensor_split));
    library->impl(
        "unsafe_split.Tensor",
        TORCH_FN((unsafe_split<ops::unsafe_split_Tensor, ops::split_Tensor, c10::SymInt>)));
    library->impl("unsafe_split_with_sizes",
                  TORCH_FN((unsafe_split<ops::unsafe_split_with_sizes, ops::split_with_sizes,
                                         c10::SymIntArrayRef>)));
    for (const char* name : {"index_put", "index_put_"})
      library->impl(name, torch::CppFunction::makeFromBoxedFunction<&put_by_index>());
    library->impl("linear", torch::CppFunction::makeFromBoxedFunction<&linear>());
    for (const char* name : {"rrelu_with_noise", "rrelu_with_noise_"})
      library->impl(name, torch::CppFunction::makeFromBoxedFunction<&rrelu>());
    register_symbolic_composites(*library, kBelow);
    return library;
  }();
}

}  // namespace

ExactViews::ExactViews(Recording& recording, OpRecorder& ops, AutocastCasts& casts)
    : recording(recording),
      ops(ops),
      casts(casts),
      before_(current),
      was_included_(c10::impl::tls_is_dispatch_key_included(kKey)) {
  register_kernels();
  current = this;
  c10::impl::tls_set_dispatch_key_included(kKey, true);
}

ExactViews::~ExactViews() {
  current = before_;
  c10::impl::tls_set_dispatch_key_included(kKey, was_included_);
}

bool is_inside_write() { return inside_write; }

at::Tensor keeping_layout(const at::Tensor& fake) {
  const at::Tensor base = functional::to_functional_tensor(fake);
  return at::detail::make_tensor<at::FunctionalTensorWrapper>(
      fake, functional::unsafeGetFunctionalWrapper(base), std::make_shared<Whole>());
}

}  // namespace oxy::bridge
