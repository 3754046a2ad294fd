#include "python/control_flow.h"

#include <ATen/ops/empty_strided.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/library.h>

#include <map>
#include <mutex>

#include "python/torch_ir.h"
#include "support/check.h"
#include "torch_bridge/fake_tensor.h"

namespace oxy::python {
namespace {

using Tensors = std::vector<at::Tensor>;

struct Table {
  std::mutex mutex;
  std::map<int64_t, std::weak_ptr<ControlFlow>> entries;
  int64_t next = 0;
};

Table& table() {
  static auto& t = *new Table();
  return t;
}

std::shared_ptr<ControlFlow> entry_of(int64_t number) {
  const std::lock_guard lock(table().mutex);
  auto it = table().entries.find(number);
  auto entry = it == table().entries.end() ? nullptr : it->second.lock();
  TORCH_CHECK(entry, "oxyfuel: the graphs of a branch or loop are no longer there");
  return entry;
}

at::Tensor empty_of(const ir::TensorType& type, c10::Device device) {
  std::vector<int64_t> sizes, strides;
  for (const ir::Expr& e : type.sizes) sizes.push_back(e.value());
  for (const ir::Expr& e : type.strides) strides.push_back(e.value());
  return at::empty_strided(
      sizes, strides, at::TensorOptions(device).dtype(static_cast<c10::ScalarType>(type.dtype)));
}

Tensors call_inner(const ControlFlow::Inner& graph, const Tensors& given) {
  const py::gil_scoped_acquire gil;
  std::vector<py::object> held;
  std::vector<PyObject*> arguments;
  for (uint32_t i : graph.takes) {
    held.push_back(py::reinterpret_steal<py::object>(THPVariable_Wrap(given[i])));
    arguments.push_back(held.back().ptr());
  }
  auto made = py::reinterpret_steal<py::object>(
      PyObject_Vectorcall(graph.callable.ptr(), arguments.data(), arguments.size(), nullptr));
  if (!made) throw py::error_already_set();
  Tensors out;
  for (py::handle o : made) out.push_back(THPVariable_Unpack(o.ptr()));
  TORCH_CHECK(out.size() == graph.results.size(),
              "oxyfuel: a graph gave another number of results");
  return out;
}

bool shares_memory(const at::Tensor& t, const Tensors& others) {
  return std::any_of(others.begin(), others.end(),
                     [&](const at::Tensor& o) { return t.is_alias_of(o); });
}

Tensors choose(const at::Tensor& pred, at::TensorList operands, int64_t number) {
  const auto entry = entry_of(number);
  const ControlFlow::Inner& graph = entry->inner[pred.is_nonzero() ? 0 : 1];
  Tensors out = call_inner(graph, operands.vec());
  for (size_t i = 0; i < out.size(); i++)
    if (graph.shares[i]) out[i] = out[i].clone();
  return out;
}

Tensors repeat(at::TensorList carried, at::TensorList others, int64_t number) {
  const auto entry = entry_of(number);
  const Tensors given = carried.vec();
  Tensors all = given;
  all.insert(all.end(), others.begin(), others.end());
  while (call_inner(entry->inner[0], all)[0].is_nonzero()) {
    Tensors next = call_inner(entry->inner[1], all);
    std::move(next.begin(), next.end(), all.begin());
    const py::gil_scoped_acquire gil;
    if (PyErr_CheckSignals() != 0) throw py::error_already_set();
  }
  Tensors out, taken = given;
  taken.insert(taken.end(), others.begin(), others.end());
  for (size_t i = 0; i < given.size(); i++) {
    out.push_back(shares_memory(all[i], taken) ? all[i].clone() : all[i]);
    taken.push_back(out.back());
  }
  return out;
}

bool is_of_type(const at::Tensor& t, const ir::TensorType& type) {
  const ir::TensorType now = bridge::type_of(t);
  return now.sizes == type.sizes && now.strides == type.strides && now.dtype == type.dtype;
}

Tensors empty_results(const Tensors& given, int64_t number) {
  const auto entry = entry_of(number);
  bool same = given.size() == entry->operands.size();
  for (size_t i = 0; same && i < given.size(); i++) same = is_of_type(given[i], entry->operands[i]);
  TORCH_CHECK(same, "oxyfuel: a branch or loop that was captured for other sizes");
  Tensors out;
  for (const ir::TensorType& type : entry->results)
    out.push_back(empty_of(type, c10::Device(c10::kMeta)));
  return out;
}

Tensors choose_on_meta(const at::Tensor&, at::TensorList operands, int64_t number) {
  return empty_results(operands.vec(), number);
}

Tensors repeat_on_meta(at::TensorList carried, at::TensorList others, int64_t number) {
  Tensors all = carried.vec();
  all.insert(all.end(), others.begin(), others.end());
  return empty_results(all, number);
}

}  // namespace

int64_t add_control_flow(const std::shared_ptr<ControlFlow>& entry) {
  Table& t = table();
  const std::lock_guard lock(t.mutex);
  std::erase_if(t.entries, [](const auto& e) { return e.second.expired(); });
  t.entries[t.next] = entry;
  return t.next++;
}

void compile_inner_graphs(const TorchIr& ir, py::handle compile) {
  for (const auto& entry : ir.control_flow) {
    for (ControlFlow::Inner& graph : entry->inner) {
      py::tuple examples(graph.takes.size());
      for (size_t i = 0; i < graph.takes.size(); i++)
        examples[i] = py::reinterpret_steal<py::object>(THPVariable_Wrap(empty_of(
            entry->operands[graph.takes[i]],
            c10::Device(static_cast<c10::DeviceType>(entry->operands[graph.takes[i]].device.kind),
                        entry->operands[graph.takes[i]].device.index))));
      graph.callable = compile(graph.ir, examples);
      compile_inner_graphs(*graph.ir, compile);
    }
  }
}

ir::TensorType type_of_copy(const ir::TensorType& type) {
  return bridge::type_of(empty_of(type, c10::Device(c10::kMeta)).clone());
}

TORCH_LIBRARY(oxyfuel, m) {
  m.def("choose(Tensor pred, Tensor[] operands, int number) -> Tensor[]");
  m.def("repeat(Tensor[] carried, Tensor[] others, int number) -> Tensor[]");
}
TORCH_LIBRARY_IMPL(oxyfuel, CompositeExplicitAutograd, m) {
  m.impl("choose", choose);
  m.impl("repeat", repeat);
}
TORCH_LIBRARY_IMPL(oxyfuel, Meta, m) {
  m.impl("choose", choose_on_meta);
  m.impl("repeat", repeat_on_meta);
}

}  // namespace oxy::python
