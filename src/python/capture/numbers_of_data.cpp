// Floats and truths that captured code reads of tensors (Tensor.item), where torch's settings let
// it: a call knows them behind its graph. They are deferred like numbers that nobody has looked at
// (deferred_numbers.cpp); where a float meets a tensor, the graph computes it, in f64 as Python
// does.
#include <torch/csrc/Dtype.h>
#include <torch/csrc/DynamicTypes.h>

#include <cmath>

#include "python/capture/capture.h"
#include "python/cpython/opcodes.h"

namespace oxy::python {

bool Numbers::asks_for_item(const TracedFrame& f) const {
  const Instruction& i = f.bytecode->instructions[f.next];
  if ((i.op != CALL && i.op != CALL_METHOD && i.op != CALL_FUNCTION) || f.kwnames) return false;
  const auto [callable, self] = next_callee(f, i.arg);
  if (callable.is(type_object(&PyFloat_Type)))
    return i.arg == 1 && heap().is_tensor(f.stack.back());
  if (i.arg != 0 || self || !PyCFunction_Check(callable.ptr())) return false;
  const py::object of = borrow(PyCFunction_GET_SELF(callable.ptr()));
  const auto* method = reinterpret_cast<PyCFunctionObject*>(callable.ptr())->m_ml;
  return of && heap().is_tensor(of) && std::string_view(method->ml_name) == "item";
}

// A copy of the tensor, which nothing writes to, holds it.
py::object Numbers::number_of_data(const py::object& tensor, bool truths) {
  const at::Tensor& t = THPVariable_Unpack(tensor.ptr());
  const bool truth = t.scalar_type() == at::kBool;
  if (!item_asked || graphs().inner() != nullptr || bridge::is_symbolic(t) || t.numel() != 1 ||
      !(truth ? truths : at::isFloatingType(t.scalar_type())))
    return {};
  numbers_of_data_ = true;
  py::object copy = calls().call_method(tensor, "detach", {}, {});
  if (t.dim() != 0) copy = calls().call_method(copy, "reshape", {py::tuple()}, {});
  const py::object& dtype = truth ? member_of<"torch", "bool">() : member_of<"torch", "float64">();
  copy = calls().call_method(copy, "to", {dtype}, {{py::str("copy"), py::bool_(true)}});
  const py::object out = defer(truth ? py::object(py::bool_(true)) : py::object(py::float_(1.5)),
                               {}, member_of<"torch", "Tensor">().attr("item"), {copy});
  deferred_.at(out.ptr()).of_data = true;
  return out;
}

bool Numbers::is_of_data(const py::object& o) const {
  const Deferred* found = numbers_of_data_ ? find(o) : nullptr;
  return found && found->of_data;
}

// Whether arithmetic of the graph gives such a float: in f64, as Python's.
bool Numbers::is_graph_number(const py::object& o) const {
  constexpr double kMostExact = 0x1p53;
  if (PyFloat_CheckExact(o.ptr())) return true;
  if (PyLong_CheckExact(o.ptr())) {
    const double value = PyLong_AsDouble(o.ptr());
    if (value == -1.0) PyErr_Clear();
    return std::abs(value) <= kMostExact;
  }
  const Deferred* found = find(o);
  if (!found || !found->of_data || !PyFloat_CheckExact(found->real.ptr())) return false;
  if (heap().is_tensor(found->parts[0])) return true;
  return std::ranges::all_of(found->parts,
                             [this](const py::object& part) { return is_graph_number(part); });
}

py::object Numbers::graph_number(const py::object& o) {
  if (!find(o)) return o;
  const Deferred deferred = *find(o);
  if (heap().is_tensor(deferred.parts[0])) return deferred.parts[0];
  auto name = text(deferred.function.attr("__name__"));
  if (name.starts_with("i")) name.erase(0, 1);  // in place
  Arguments parts;
  for (const py::object& part : deferred.parts) parts.push_back(graph_number(part));
  return objects().operate(py::module_::import("operator").attr(name.c_str()), parts);
}

// What the graph has computed.
py::object Numbers::tensor_of_data(const py::object& o, NumberDtype dtype) {
  py::object out = graph_number(o);
  if (dtype.same && dtype.fits != at::kDouble)
    out = calls().call_method(
        out, "to", {borrow(reinterpret_cast<PyObject*>(torch::getTHPDtype(dtype.fits)))}, {});
  number_inputs_.emplace(std::pair(o.ptr(), dtype), out);
  return out;
}

}  // namespace oxy::python
