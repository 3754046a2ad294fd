// `tensor.data = value`: the tensor gets the value's memory. It has it in the recording at once, as
// in eager: what shares its former memory keeps that, and autograd sees what it has saved, the
// tensor itself or a view of it. An input has it for real when the graph has run.
#include <ATen/FunctionalStorageImpl.h>
#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>

#include "python/capture/capture.h"
#include "python/transform_levels.h"
#include "torch_bridge/symbolic_shapes.h"

namespace oxy::python {

void Calls::set_data(py::handle tensor, py::handle value) {
  if (value.is(tensor)) return;  // as Module.to assigns what has been there before
  auto refuse = [] { throw Break(BreakId::tensor_attribute, "assignment to data"); };
  const Tracked* k = heap().tracked(tensor);
  if (!value || !heap().is_tensor(value) || graphs().inner() != nullptr || is_transformed())
    refuse();
  const at::Tensor &t = THPVariable_Unpack(tensor.ptr()), &v = THPVariable_Unpack(value.ptr());
  const auto alike = [](c10::SymIntArrayRef a, c10::SymIntArrayRef b) {
    return std::ranges::equal(a, b, [](const c10::SymInt& x, const c10::SymInt& y) {
      return sym::known_equal(bridge::expr_of(x), bridge::expr_of(y)) == true;
    });
  };
  if (!alike(t.sym_sizes(), v.sym_sizes()) || !alike(t.sym_strides(), v.sym_strides()) ||
      t.dtype() != v.dtype() || t.is_conj() != v.is_conj() || t.is_neg() != v.is_neg())
    refuse();
  // What it has been before, as behind `t.data -= 1`.
  if (v.is_alias_of(t) && alike({v.sym_storage_offset()}, {t.sym_storage_offset()})) return;
  if (t.is_inference() || v.is_inference() || t.is_view()) refuse();
  if (k->source.valid() && (!k->original || THPVariable_Unpack(k->original.ptr()).is_view()))
    refuse();
  // A backward that reads the tensor reads this memory, whatever is assigned to the value's data.
  graphs().give_data(borrow(tensor), tensor_attr(value, py::str("data")));
}

void Graphs::give_data(const py::object& tensor, const py::object& value) {
  const at::Tensor& t = THPVariable_Unpack(tensor.ptr());
  const auto is_its = [&](const DataGiven& d) { return d.tensor.is(tensor); };
  if (std::ranges::none_of(data_given_, is_its)) {
    data_given_.push_back(
        {tensor, t.storage(), bridge::expr_of(t.sym_storage_offset()), frames().here()});
    recorder_->keep_memory(t);
  }
  static const py::object& function =
      *new py::object(own_function("oxyfuel.gradients", "set_data"));
  record(ir::NodeKind::CallFunction, "", function, {tensor, value}, {});
}

namespace {

// Whether it was written where it had other memory than the one that it came with: whoever runs the
// graph counts the writes to that.
bool is_written_elsewhere(const at::Tensor& t, const c10::Storage& came_with) {
  const auto* memory = dynamic_cast<const at::functionalization::FunctionalStorageImpl*>(
      came_with.unsafeGetStorageImpl());
  return memory != nullptr && !t.is_inference() &&
         static_cast<size_t>(t._version()) > memory->generation();
}

}  // namespace

// What inputs have in the end.
void Graphs::keep_data() {
  // Beside gradients, a version that is counted behind the graph is none that was saved.
  const bool counts = std::ranges::none_of(example_inputs, [](const py::object& o) {
    return THPVariable_Check(o.ptr()) && THPVariable_Unpack(o.ptr()).requires_grad();
  });
  for (const DataGiven& d : data_given_) {
    const at::Tensor& t = THPVariable_Unpack(d.tensor.ptr());
    if (!heap().tracked(d.tensor)->source.valid()) continue;
    if (counts && is_written_elsewhere(t, d.memory))
      calls().call_behind(own_function("oxyfuel.gradients", "count_write"), {d.tensor});
    if (t.storage().is_alias_of(d.memory) && bridge::expr_of(t.sym_storage_offset()) == d.offset)
      continue;
    const py::object data = calls().tensor_attr(d.tensor, py::str("data"));
    calls().call_behind(own_function("oxyfuel.gradients", "set_data"), {d.tensor, data});
  }
}

// Autograd has saved such an input itself: a backward reads what it has by then, which is not what
// the graph knows it to hold.
void Graphs::read_data_late(const std::vector<at::Tensor>& outputs) {
  if (std::ranges::none_of(outputs, [](const at::Tensor& t) { return t.requires_grad(); })) return;
  for (const DataGiven& d : data_given_) {
    const Tracked& k = *heap().tracked(d.tensor);
    if (!k.source.valid()) continue;
    const py::object real = k.original;
    const py::object by_then = heap().add_input(real, k.source, {});
    THPVariable_Unpack(d.tensor.ptr()).set_data(THPVariable_Unpack(by_then.ptr()).variable_data());
  }
}

// Who replays the graph would not know what the inputs came with.
void Graphs::refuse_data() const {
  if (!data_given_.empty())
    data_given_[0].place.refuse(BreakId::tensor_attribute, "assignment to data");
}

}  // namespace oxy::python
