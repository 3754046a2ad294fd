// Overloads by stand-ins of the tensors.
#include "python/op_packets.h"

#include <ATen/EmptyTensor.h>
#include <torch/csrc/autograd/python_variable.h>

#include <string_view>

namespace oxy::python {
namespace {

// What torch finds no number in, and can print.
py::object without_data() {
  static const auto& made =
      *new at::Tensor(at::detail::empty_strided_meta({0}, {1}, c10::ScalarType::Float));
  return steal(THPVariable_Wrap(made));
}

// The argument, with stand-ins for tensors, also in a list.
py::object shown(py::handle o) {
  if (THPVariable_Check(o.ptr())) return without_data();
  if (!PyList_CheckExact(o.ptr()) && !PyTuple_CheckExact(o.ptr())) return borrow(o);
  py::list out;
  for (py::handle item : o) out.append(shown(item));
  return PyList_CheckExact(o.ptr()) ? py::object(out) : py::object(py::tuple(out));
}

}  // namespace

py::object overload_of(py::handle function, const py::tuple& args, py::handle kwargs) {
  if (std::string_view(Py_TYPE(function.ptr())->tp_name) != "OpOverloadPacket")
    return borrow(function);
  const py::object overloads = function.attr("_overload_names");
  if (py::len(overloads) < 2) return borrow(function);
  const py::tuple positional = shown(args);
  py::dict named;
  if (kwargs)
    for (auto [name, value] : py::reinterpret_borrow<py::dict>(kwargs)) named[name] = shown(value);
  try {
    const py::object name = member_of<"torch._C", "_jit_resolve_packet">()(
        function.attr("_qualified_op_name"), *positional, **named);
    return function.attr(name);
  } catch (py::error_already_set&) {  // whoever calls it hears why
    return borrow(function);
  }
}

}  // namespace oxy::python
