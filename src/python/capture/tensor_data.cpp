// `tensor.data = value`: the tensor gets the value's memory. In a graph it is a copy, which nobody
// can tell from that as long as nothing else has the memory of either.
#include <ATen/SequenceNumber.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/python_variable.h>

#include <set>

#include "python/capture/capture.h"
#include "python/cpython/types.h"
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
  if (bridge::is_symbolic(t) || bridge::is_symbolic(v) || t.sizes() != v.sizes() ||
      t.strides() != v.strides() || t.dtype() != v.dtype())
    refuse();
  // What it has been before, as behind `t.data -= 1`.
  if (v.is_alias_of(t) && v.storage_offset() == t.storage_offset() && t.is_conj() == v.is_conj() &&
      t.is_neg() == v.is_neg()) {
    graphs().refuse_former_data(tensor, value);
    return;
  }
  for (const auto& [other, fake] : heap().fakes()) {
    const at::Tensor& input = THPVariable_Unpack(fake.ptr());
    if (v.is_alias_of(input) || (!fake.is(tensor) && t.is_alias_of(input))) refuse();
  }
  if (k->source.valid()) {
    if (!k->original) refuse();
    const at::Tensor& real = THPVariable_Unpack(k->original.ptr());
    if (real.is_inference() || real.storage().use_count() != 1) refuse();
    heap().guard(GuardKind::Unshared, k->source);
  }
  const py::object data = tensor_attr(tensor, py::str("data"));
  graphs().give_data(borrow(tensor), data, borrow(value));
}

// `value` has what the tensor held before it was given other data.
void Graphs::refuse_former_data(py::handle tensor, py::handle value) const {
  const auto is_value = [&](const py::object& o) {
    return *heap().tracked(o)->value == *heap().tracked(value)->value;
  };
  for (const DataGiven& d : data_given_)
    if (d.tensor.is(tensor) && std::ranges::any_of(d.others, is_value)) refuse_data(d);
}

// Whether a backward may look at what one of the tensors, which share memory, holds then: at one
// that has a history, or that an op has read whose result has one.
bool Graphs::may_be_saved(const std::vector<py::object>& tensors) const {
  std::set<ir::ValueId> read, plain;
  for (const py::object& o : tensors) {
    if (!THPVariable_Unpack(o.ptr()).is_leaf()) return true;
    read.insert(*heap().tracked(o)->value);
  }
  for (const py::object& o : heap().held())
    if (heap().is_tensor(o) && !THPVariable_Unpack(o.ptr()).requires_grad())
      plain.insert(*heap().tracked(o)->value);
  return std::ranges::any_of(ir->graph.order(), [&](ir::NodeId id) {
    const ir::Node& n = ir->graph.node(id);
    bool reads = false;
    ir::for_each_value(n, [&](ir::ValueId v) { reads |= read.contains(v); });
    return reads && !n.dead &&
           !std::ranges::all_of(n.outputs, [&](ir::ValueId v) { return plain.contains(v); });
  });
}

// `data` shares memory with the tensor.
void Graphs::give_data(const py::object& tensor, const py::object& data, const py::object& value) {
  const at::Tensor& t = THPVariable_Unpack(tensor.ptr());
  const ir::ValueId own = *heap().tracked(tensor)->value;
  DataGiven given{.tensor = tensor,
                  .value = value,
                  .node = at::sequence_number::peek(),
                  .stack = frames().user_stack().frames(),
                  .steps = frames().places_to_stop()};
  const at::Tensor& v = THPVariable_Unpack(value.ptr());
  for (const py::object& o : heap().held()) {
    if (!heap().is_tensor(o)) continue;
    const at::Tensor& other = THPVariable_Unpack(o.ptr());
    if (other.is_alias_of(t) && *heap().tracked(o)->value != own) given.others.push_back(o);
    if (other.is_alias_of(v)) given.values.push_back(o);
  }
  given.saved = may_be_saved({tensor}) || may_be_saved(given.others);
  given.value_saved = may_be_saved(given.values);
  calls().call_method(data, "copy_", {value}, {});
  given.writes = writes_to(v);
  given.own_writes = writes_to_memory(innermost(t).storage());
  given.behind = ir->graph.order().back();
  data_given_.push_back(std::move(given));
}

// Whether a backward from there looks at what the tensor held before; or at the value, where the
// tensor, which shares that, has been written since.
bool Graphs::DataGiven::is_seen_from(const std::vector<at::Tensor>& roots) const {
  return (saved || (value_saved && is_written())) &&
         std::ranges::any_of(nodes_behind(roots), [this](const auto& n) {
           return n->num_outputs() > 0 && n->sequence_nr() < node;
         });
}

bool Graphs::DataGiven::is_written() const {
  return writes_to_memory(innermost(THPVariable_Unpack(tensor.ptr())).storage()) != own_writes;
}

void Graphs::refuse_backward_of_data(const std::vector<at::Tensor>& roots) const {
  for (const DataGiven& d : data_given_)
    if (d.is_seen_from(roots)) refuse_data(d);
}

void Graphs::refuse_data(const DataGiven& d) {
  Break b(BreakId::tensor_attribute, "assignment to data, of a tensor that is used behind it");
  b.stack = d.stack;
  b.steps = d.steps;
  throw b;
}

// The value whose memory a tensor has got, where that is written later, or lives on; what shares
// that, where the tensor is written and it is used later; what shared the tensor's memory before,
// and would not see the new one; a backward that comes later, of what was computed with the old
// one.
void Graphs::refuse_shared_data(const std::vector<at::Tensor>& outputs) const {
  auto lives_on = [&](const auto& is_one) { return std::ranges::any_of(outputs, is_one); };
  std::vector<at::Tensor> with_history;
  for (const at::Tensor& o : outputs)
    if (o.requires_grad()) with_history.push_back(o);
  for (const DataGiven& d : data_given_) {
    const at::Tensor& v = THPVariable_Unpack(d.value.ptr());
    bool used = writes_to(v) != d.writes || d.is_seen_from(with_history) ||
                lives_on([&](const at::Tensor& o) { return o.is_alias_of(v); });
    std::set<ir::ValueId> stale;
    for (const py::object& o : d.others) {
      stale.insert(*heap().tracked(o)->value);
      used |=
          lives_on([&](const at::Tensor& out) { return out.is_same(THPVariable_Unpack(o.ptr())); });
    }
    if (d.is_written())
      for (const py::object& o : d.values) stale.insert(*heap().tracked(o)->value);
    for (const ir::NodeId id : ir->graph.order()) {
      const ir::Node& n = ir->graph.node(id);
      if (n.dead || id <= d.behind) continue;  // made before
      ir::for_each_value(n, [&](ir::ValueId v) { used |= stale.contains(v); });
    }
    if (used) refuse_data(d);
  }
}

}  // namespace oxy::python
