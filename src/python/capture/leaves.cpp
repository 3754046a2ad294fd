// Leaves of autograd: those that captured code makes, and those of before the call whose
// `requires_grad` it changes.
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>

#include "python/capture/capture.h"
#include "python/cpython/boundary.h"
#include "python/transform_levels.h"

namespace oxy::python {
namespace {

namespace engine = torch::autograd;

// Of leaves, each with what it becomes behind it.
PyObject* require_gradients(PyObject*, PyObject* args) {
  return boundary(
      [&] {
        for (Py_ssize_t i = 0; i + 1 < PyTuple_GET_SIZE(args); i += 2)
          THPVariable_Unpack(PyTuple_GET_ITEM(args, i))
              .set_requires_grad(PyTuple_GET_ITEM(args, i + 1) == Py_True);
        return Py_NewRef(Py_None);
      },
      nullptr);
}

}  // namespace

// `made` is what a call has given. A leaf has a `grad` and an identity that a result of the graph
// cannot have, a parameter its class.
void Graphs::note_leaf(const py::object& made) {
  const at::Tensor& t = THPVariable_Unpack(made.ptr());
  if (t.requires_grad()) inference().refuse_inside("a leaf");
  const bool is_parameter = py::type::of(made).is(member_of<"torch.nn", "Parameter">());
  if (!(t.requires_grad() || is_parameter) || !t.is_leaf() || inner_ != nullptr || is_wrapped(t) ||
      heap().tracked(made)->source.valid())
    return;
  made_leaves_.try_emplace(made.ptr(), MadeLeaf{py::none(), frames().here()});
}

void Graphs::refuse_made_leaf(py::handle tensor) const {
  auto it = made_leaves_.find(tensor.ptr());
  if (it != made_leaves_.end()) it->second.place.refuse(BreakId::made_leaf, "");
}

// What such a leaf, or a tensor that retains its gradient, has as its `grad`; null for all else.
py::object* Graphs::gradient_kept(py::handle tensor) {
  if (auto it = retained_.find(tensor.ptr()); it != retained_.end()) return &it->second;
  auto it = made_leaves_.find(tensor.ptr());
  return it == made_leaves_.end() ? nullptr : &it->second.gradient;
}

// `tensor.requires_grad_(wanted)`
py::object Graphs::require_gradient(const py::object& tensor, bool wanted) {
  if (THPVariable_Unpack(tensor.ptr()).requires_grad() == wanted) return tensor;
  inference().refuse_inside("a change of requires_grad");
  if (inner_ != nullptr || inference().is_inference(THPVariable_Unpack(tensor.ptr())))
    throw Break(BreakId::tensor_attribute, "a change of requires_grad");
  if (heap().tracked(tensor)->source.valid()) return change_leaf(tensor, wanted), tensor;
  py::object out =
      record(ir::NodeKind::CallMethod, "requires_grad_", {}, {tensor, py::bool_(wanted)}, {});
  if (wanted)
    note_leaf(out);
  else
    made_leaves_.erase(tensor.ptr());
  return out;
}

// Of one from before the call: the real one is changed once the graph has run.
void Graphs::change_leaf(const py::object& tensor, bool wanted) {
  const Tracked& k = *heap().tracked(tensor);
  auto refuse = [] { throw Break(BreakId::tensor_attribute, "a change of requires_grad"); };
  if (!k.original || is_transformed()) refuse();
  const at::Tensor& real = THPVariable_Unpack(k.original.ptr());
  if (!real.is_leaf() || real.is_view() || real.is_inference() ||
      !(real.is_floating_point() || real.is_complex()))
    refuse();
  if (changed_.insert(tensor.ptr()).second)
    changed_leaves_.push_back({tensor, !wanted, frames().here()});
  record(ir::NodeKind::CallMethod, "requires_grad_", {}, {tensor, py::bool_(wanted)}, {});
}

// All of them at once, where they are not what they were.
void Graphs::change_real_leaves() {
  const py::object& function = function_object<require_gradients>("require_gradients");
  Arguments args;
  for (const ChangedLeaf& leaf : changed_leaves_) {
    const bool now = THPVariable_Unpack(leaf.tensor.ptr()).requires_grad();
    if (now == leaf.before) continue;
    args.push_back(leaf.tensor);
    args.push_back(py::bool_(now));
  }
  if (!args.empty()) calls().call_behind(function, args);
}

// `tensor.detach_()`
py::object Graphs::detach_in_place(const py::object& tensor) {
  auto refuse = [] { throw Break(BreakId::torch_call, "Tensor.detach_"); };
  inference().refuse_inside("Tensor.detach_");
  const at::Tensor& t = THPVariable_Unpack(tensor.ptr());
  if (inner_ != nullptr || is_transformed() || inference().is_inference(t)) refuse();
  if (const Tracked& k = *heap().tracked(tensor); k.source.valid()) {
    if (!k.original || changed_.contains(tensor.ptr())) refuse();
    const at::Tensor& real = THPVariable_Unpack(k.original.ptr());
    if (real.is_view() || real.is_inference()) refuse();
    if (t.requires_grad())
      detached_.try_emplace(k.source.index, std::pair(tensor, frames().here()));
  }
  made_leaves_.erase(tensor.ptr());
  record(ir::NodeKind::CallMethod, "detach_", {}, {tensor}, {});
  return tensor;
}

// Those that have got no other history since.
void Graphs::detach_real_inputs() {
  for (const auto& [source, detached] : detached_) {
    const auto& [tensor, place] = detached;
    const at::Tensor& real = THPVariable_Unpack(heap().tracked(tensor)->original.ptr());
    const bool has_history = THPVariable_Unpack(tensor.ptr()).requires_grad();
    if (has_history && (real.is_leaf() || changed_.contains(tensor.ptr())))
      place.refuse(BreakId::torch_call, "Tensor.detach_");
    if (!has_history)
      calls().call_behind(own_function("oxyfuel.gradients", "detach_in_place"), {tensor});
  }
}

// The graph knows an input as it came. Where it required no gradients, no result's can lead there,
// nor through what shares its memory.
void Graphs::restore_leaves(const std::vector<at::Tensor>& outputs) {
  if (changed_leaves_.empty()) return;
  std::unordered_set<const at::TensorImpl*> reached;
  for (const auto& node : nodes_behind(outputs))
    if (const auto* end = dynamic_cast<const engine::AccumulateGrad*>(node.get()))
      reached.insert(end->variable.unsafeGetTensorImpl());
  // Of memory, the tensor that has it; null where there are several.
  std::unordered_map<const c10::StorageImpl*, const at::TensorImpl*> holder;
  const auto add = [&](const at::Tensor& t) {
    if (!t.defined() || !t.has_storage()) return;
    const auto [it, is_new] =
        holder.try_emplace(t.storage().unsafeGetStorageImpl(), t.unsafeGetTensorImpl());
    if (!is_new && it->second != t.unsafeGetTensorImpl()) it->second = nullptr;
  };
  for (const auto& [real, fake] : heap().fakes()) add(THPVariable_Unpack(fake.ptr()));
  for (const at::Tensor& t : outputs) add(t);
  for (const ChangedLeaf& leaf : changed_leaves_) {
    const at::Tensor& t = THPVariable_Unpack(leaf.tensor.ptr());
    if ((!leaf.before && reached.contains(t.unsafeGetTensorImpl())) ||
        holder.at(t.storage().unsafeGetStorageImpl()) == nullptr)
      leaf.place.refuse(BreakId::tensor_attribute, "a change of requires_grad");
    t.set_requires_grad(leaf.before);
  }
}

}  // namespace oxy::python
