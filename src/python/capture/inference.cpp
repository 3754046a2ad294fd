// Blocks of inference mode: what goes in, what comes out, and writes in between.
#include "python/capture/inference.h"

#include <ATen/FunctionalTensorWrapper.h>
#include <ATen/autocast_mode.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>
#include <functional>

#include "python/capture/capture.h"
#include "python/cpython/boundary.h"
#include "python/transform_levels.h"

namespace oxy::python {
namespace {

PyObject* as_inference_tensor(PyObject*, PyObject* tensor) {
  return boundary(
      [&] {
        const at::Tensor& t = THPVariable_Unpack(tensor);
        const c10::InferenceMode on;
        at::Tensor out = at::empty({0}, t.options());
        out.set_(t.storage(), t.storage_offset(), t.sizes(), t.strides());
        return THPVariable_Wrap(out);
      },
      nullptr);
}

void for_each_tensor(py::handle o, const std::function<void(const at::Tensor&)>& each) {
  if (is_tensor_object(o.ptr())) return each(THPVariable_Unpack(o.ptr()));
  if (PyTuple_Check(o.ptr()) || PyList_Check(o.ptr()))
    for (py::handle item : o) for_each_tensor(item, each);
}

// Ops whose gradients read none of their operands.
bool saves_no_operand(std::string_view target) {
  static constexpr std::array<std::string_view, 8> kNames = {"add",  "iadd", "add_", "sub",
                                                             "isub", "sub_", "cat",  "stack"};
  return std::ranges::find(kNames, target.substr(target.rfind('.') + 1)) != kNames.end();
}

}  // namespace

const py::object& inference_function() {
  static PyMethodDef method = {"as_inference_tensor", as_inference_tensor, METH_O, nullptr};
  static const py::object& function = *new py::object(steal(PyCFunction_New(&method, nullptr)));
  return function;
}

void Inference::refuse_block(const char* why) const {
  first_.refuse(BreakId::torch_call, cat("torch.inference_mode, ", why));
}

// As c10::InferenceMode: grad mode comes with it.
void Inference::enter(bool mode) {
  const bool now = is_open() || c10::InferenceMode::is_enabled();
  if (graphs().inner() != nullptr || is_transformed() || (now && !mode) ||
      (mode && !now && at::autocast::is_autocast_enabled(at::kCPU)))
    throw Break(BreakId::torch_call,
                "torch.inference_mode in a branch, a transform, autocast or "
                "itself");
  if (mode && !now) {
    refuse_writes();
    if (!was_entered_) first_ = frames().here();
    was_entered_ = true;
    open_ = blocks_.size() + 1;
  }
  frames().close();  // behind it the context that was entered is another one than eager's
  blocks_.push_back(c10::GradMode::is_enabled());
  c10::GradMode::set_enabled(!mode);
}

void Inference::leave() {
  if (blocks_.empty()) throw Break(BreakId::torch_call, "the end of an inference mode");
  if (blocks_.size() == open_) {
    for (auto& [address, memory] : memory_) {
      const size_t writes = writes_to_memory(memory.storage);
      if (!memory.made && writes != memory.writes) refuse_block("which writes to its tensors");
      memory.writes = writes;
    }
    open_ = 0;
  }
  c10::GradMode::set_enabled(blocks_.back());
  blocks_.pop_back();
  frames().open();
}

Done Inference::answer() const {
  if (blocks_.empty()) return std::nullopt;
  return py::bool_(is_open() || c10::InferenceMode::is_enabled());
}

void Inference::refuse_inside(const char* what) const {
  if (is_open()) throw Break(BreakId::torch_call, what, " in inference mode");
}

void Inference::note_input(const at::Tensor& fake) {
  memory_.try_emplace(fake.storage().unsafeGetStorageImpl(),
                      Memory{fake.storage(), writes_to_memory(fake.storage()), false});
}

void Inference::note_results(const py::object& result, const Arguments& given,
                             const py::dict& named) {
  std::vector<const c10::StorageImpl*> known;
  std::vector<at::TensorImpl*> same;
  auto note = [&](const at::Tensor& t) {
    known.push_back(t.storage().unsafeGetStorageImpl());
    same.push_back(t.unsafeGetTensorImpl());
  };
  for (const py::object& a : given) for_each_tensor(a, note);
  for (const auto& [key, a] : named) for_each_tensor(a, note);
  for_each_tensor(result, [&](const at::Tensor& t) {
    const auto* storage = t.storage().unsafeGetStorageImpl();
    if (std::ranges::find(same, t.unsafeGetTensorImpl()) != same.end() || is_inference(t)) return;
    if (std::ranges::find(known, storage) != known.end())
      views_.push_back(t);
    else
      memory_.emplace(storage, Memory{t.storage(), 0, true});
  });
}

bool Inference::is_input(const Tracked* k) {
  return k != nullptr && k->source.valid() && k->original &&
         THPVariable_Unpack(k->original.ptr()).is_inference();
}

bool Inference::is_inference(const at::Tensor& fake) const {
  return !memory_.empty() && memory_.contains(innermost(fake).storage().unsafeGetStorageImpl());
}

bool Inference::is_result(const at::Tensor& fake) const {
  for (const at::Tensor& view : views_)
    if (view.is_same(fake)) refuse_block("which makes a view of a tensor from in front of it");
  const auto it = memory_.find(fake.storage().unsafeGetStorageImpl());
  return it != memory_.end() && it->second.made;
}

void Inference::refuse_saved(const std::string& target, const Arguments& args,
                             const Keywords& kwargs) const {
  const bool outside = !views_.empty() && !is_open();
  if (!outside && (memory_.empty() || !c10::GradMode::is_enabled())) return;
  bool inference = false, differentiable = false, leaf = false;
  auto look = [&](const py::object& o) {
    for_each_tensor(heap().exists(o) ? heap().contents(o) : o, [&](const at::Tensor& t) {
      differentiable |= t.requires_grad();
      inference |= is_inference(t);
      const Tracked* k = heap().tracked(owned(THPVariable_Wrap(t)));
      leaf |= is_input(k) && THPVariable_Unpack(k->original.ptr()).requires_grad();
      if (outside && std::ranges::any_of(views_, [&](auto& view) { return view.is_same(t); }))
        refuse_block("a view of which is used behind it");
    });
  };
  for (const py::object& a : args) look(a);
  for (const auto& [key, a] : kwargs) look(a);
  if (leaf && c10::GradMode::is_enabled() && !c10::InferenceMode::is_enabled())
    throw Break(BreakId::input_kind, "an inference tensor that requires gradients");
  if (inference && differentiable && c10::GradMode::is_enabled() && !saves_no_operand(target))
    throw Break(BreakId::input_kind, "an inference tensor where a gradient is needed");
}

void Inference::refuse_writes() const {
  if (!was_entered_) return;  // of inputs alone, which the recording refuses
  for (const auto& [address, memory] : memory_)
    if (writes_to_memory(memory.storage) != memory.writes)
      refuse_block("a tensor of which is written behind it");
}

}  // namespace oxy::python
