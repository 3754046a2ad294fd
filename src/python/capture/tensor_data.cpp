// `tensor.data = value`: the tensor gets the value's memory. An input has it in the recording at
// once, and for real when the graph has run. For others it is a copy, which nobody can tell from
// that as long as nothing else has the memory of either.
#include <ATen/SequenceNumber.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>
#include <limits>

#include "python/capture/capture.h"
#include "python/cpython/types.h"
#include "python/transform_levels.h"
#include "torch_bridge/symbolic_shapes.h"

namespace oxy::python {
namespace {

// Of a backward from there, as autograd numbers its nodes.
uint64_t earliest_node(const std::vector<at::Tensor>& roots) {
  uint64_t out = std::numeric_limits<uint64_t>::max();
  for (const auto& n : nodes_behind(roots))
    if (n->num_outputs() > 0) out = std::min(out, n->sequence_nr());
  return out;
}

}  // namespace

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
  if (k->source.valid() && k->original && t.is_leaf() && !t.is_inference() && !v.is_inference() &&
      !THPVariable_Unpack(k->original.ptr()).is_view())
    return graphs().swap_data(borrow(tensor), borrow(value));
  if (graphs().shares_memory_of_input(v) || graphs().shares_memory_of_input(t, tensor)) refuse();
  if (k->source.valid()) {
    if (!k->original) refuse();
    const at::Tensor& real = THPVariable_Unpack(k->original.ptr());
    if (real.is_inference() || real.storage().use_count() != 1) refuse();
    heap().guard(GuardKind::Unshared, k->source);
  }
  const py::object data = tensor_attr(tensor, py::str("data"));
  graphs().give_data(borrow(tensor), data, borrow(value));
}

// Also what autograd has saved sees it as in eager: the leaf itself, and no view of it.
void Graphs::swap_data(const py::object& tensor, const py::object& value) {
  const at::Tensor& t = THPVariable_Unpack(tensor.ptr());
  const auto is_its = [&](const DataSwapped& d) { return d.tensor.is(tensor); };
  if (std::ranges::none_of(data_swapped_, is_its)) {
    data_swapped_.push_back({tensor, t.storage(), t.storage_offset(),
                             frames().user_stack().frames(), frames().places_to_stop()});
    recorder_->keep_memory(t);
  }
  static const py::object& function =
      *new py::object(own_function("oxyfuel.gradients", "set_data"));
  record(ir::NodeKind::CallFunction, "", function, {tensor, value}, {});
  data_index_ = {};
}

void Graphs::keep_swapped() {
  for (const DataSwapped& d : data_swapped_) {
    const at::Tensor& t = THPVariable_Unpack(d.tensor.ptr());
    if (t.storage().is_alias_of(d.memory) && t.storage_offset() == d.offset) continue;
    const py::object data = calls().tensor_attr(d.tensor, py::str("data"));
    calls().call_behind(own_function("oxyfuel.gradients", "set_data"), {d.tensor, data});
  }
}

// Who replays the graph would not know what the inputs came with.
void Graphs::refuse_swaps() const {
  if (data_swapped_.empty()) return;
  Break b(BreakId::tensor_attribute, "assignment to data");
  b.stack = data_swapped_[0].stack;
  b.steps = data_swapped_[0].steps;
  throw b;
}

const Graphs::DataIndex& Graphs::data_index() {
  DataIndex& index = data_index_;
  for (const auto& held = heap().held(); index.held < held.size(); index.held++) {
    const py::object& o = held[index.held];
    if (!heap().is_tensor(o)) continue;
    const at::Tensor& t = THPVariable_Unpack(o.ptr());
    if (t.has_storage()) index.by_memory[t.storage().unsafeGetStorageImpl()].push_back(o);
    if (const Tracked* k = heap().tracked(o); k != nullptr && k->value)
      index.by_value[*k->value].push_back(o);
  }
  for (const auto& order = ir->graph.order(); index.nodes < order.size(); index.nodes++) {
    const ir::NodeId id = order[index.nodes];
    ir::for_each_value(ir->graph.node(id), [&](ir::ValueId v) { index.readers[v].push_back(id); });
  }
  return index;
}

std::vector<py::object> Graphs::sharing_memory(const at::Tensor& t) {
  const auto& by_memory = data_index().by_memory;
  const auto it = by_memory.find(t.storage().unsafeGetStorageImpl());
  return it == by_memory.end() ? std::vector<py::object>() : it->second;
}

bool Graphs::shares_memory_of_input(const at::Tensor& t, py::handle but) {
  return std::ranges::any_of(sharing_memory(t), [&](const py::object& o) {
    return !o.is(but) && heap().tracked(o)->source.valid();
  });
}

// `value` has what the tensor held before it was given other data.
void Graphs::refuse_former_data(py::handle tensor, py::handle value) const {
  const auto is_value = [&](const py::object& o) {
    return *heap().tracked(o)->value == *heap().tracked(value)->value;
  };
  const auto it = data_given_to_.find(tensor.ptr());
  if (it == data_given_to_.end()) return;
  for (const size_t i : it->second)
    if (std::ranges::any_of(data_given_[i].others, is_value)) refuse_data(data_given_[i]);
}

// Whether what an op has made requires no gradients.
bool Graphs::is_plain(ir::ValueId v) const {
  const auto it = data_index_.by_value.find(v);
  return it != data_index_.by_value.end() &&
         std::ranges::any_of(it->second, [](const py::object& o) {
           return !THPVariable_Unpack(o.ptr()).requires_grad();
         });
}

// Whether a backward may look at what one of the tensors, which share memory, holds then: at one
// that has a history, or that an op has read whose result has one.
bool Graphs::may_be_saved(const std::vector<py::object>& tensors) {
  const DataIndex& index = data_index();
  return std::ranges::any_of(tensors, [&](const py::object& o) {
    if (!THPVariable_Unpack(o.ptr()).is_leaf()) return true;
    const auto readers = index.readers.find(*heap().tracked(o)->value);
    return readers != index.readers.end() &&
           std::ranges::any_of(readers->second, [&](ir::NodeId id) {
             const ir::Node& n = ir->graph.node(id);
             return !n.dead &&
                    !std::ranges::all_of(n.outputs, [this](ir::ValueId v) { return is_plain(v); });
           });
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
  for (const py::object& o : sharing_memory(t))
    if (*heap().tracked(o)->value != own) given.others.push_back(o);
  given.values = sharing_memory(v);
  given.saved = may_be_saved({tensor}) || may_be_saved(given.others);
  given.value_saved = may_be_saved(given.values);
  calls().call_method(data, "copy_", {value}, {});
  given.writes = writes_to(v);
  given.own_writes = writes_to_memory(innermost(t).storage());
  given.behind = ir->graph.order().back();
  data_given_to_[tensor.ptr()].push_back(data_given_.size());
  data_given_.push_back(std::move(given));
}

// Whether a backward looks at what the tensor held before; or at the value, where the tensor, which
// shares that, has been written since.
bool Graphs::DataGiven::is_seen_by(uint64_t earliest) const {
  return earliest < node && (saved || (value_saved && is_written()));
}

bool Graphs::DataGiven::is_written() const {
  return writes_to_memory(innermost(THPVariable_Unpack(tensor.ptr())).storage()) != own_writes;
}

void Graphs::refuse_backward_of_data(const std::vector<at::Tensor>& roots) const {
  if (data_given_.empty()) return;
  const uint64_t earliest = earliest_node(roots);
  for (const DataGiven& d : data_given_)
    if (d.is_seen_by(earliest)) refuse_data(d);
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
void Graphs::refuse_shared_data(const std::vector<at::Tensor>& outputs) {
  if (data_given_.empty()) return;
  std::unordered_set<const at::TensorImpl*> living;
  std::unordered_set<const c10::StorageImpl*> memory;
  std::vector<at::Tensor> with_history;
  for (const at::Tensor& o : outputs) {
    living.insert(o.unsafeGetTensorImpl());
    if (o.has_storage()) memory.insert(o.storage().unsafeGetStorageImpl());
    if (o.requires_grad()) with_history.push_back(o);
  }
  const uint64_t earliest = earliest_node(with_history);
  const DataIndex& index = data_index();
  for (const DataGiven& d : data_given_) {
    const auto is_read_later = [&](const py::object& o) {
      const auto readers = index.readers.find(*heap().tracked(o)->value);
      return readers != index.readers.end() &&
             std::ranges::any_of(readers->second, [&](ir::NodeId id) {
               return !ir->graph.node(id).dead && id > d.behind;
             });
    };
    const auto lives = [&](const py::object& o) {
      return living.contains(THPVariable_Unpack(o.ptr()).unsafeGetTensorImpl());
    };
    const at::Tensor& v = THPVariable_Unpack(d.value.ptr());
    if (writes_to(v) != d.writes || d.is_seen_by(earliest) ||
        memory.contains(v.storage().unsafeGetStorageImpl()) ||
        std::ranges::any_of(d.others, lives) || std::ranges::any_of(d.others, is_read_later) ||
        (d.is_written() && std::ranges::any_of(d.values, is_read_later)))
      refuse_data(d);
  }
}

}  // namespace oxy::python
