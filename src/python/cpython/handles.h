// Python objects as pybind11's: new and borrowed references, what modules have, casts to CPython's
// structs.
#pragma once

#include <torch/csrc/utils/pybind.h>

#include <algorithm>
#include <vector>

namespace oxy::python {

namespace py = pybind11;

// A new reference; nullptr is the exception that is set.
inline py::object steal(PyObject* o) {
  if (o == nullptr) throw py::error_already_set();
  return py::reinterpret_steal<py::object>(o);
}
inline py::object steal(PyCodeObject* o) { return steal(reinterpret_cast<PyObject*>(o)); }

// A new reference, or null.
inline py::object owned(PyObject* o) { return py::reinterpret_steal<py::object>(o); }

inline py::object borrow(py::handle o) { return py::reinterpret_borrow<py::object>(o); }

inline py::tuple tuple_of(const std::vector<py::object>& items) {
  py::tuple out(items.size());
  for (size_t i = 0; i < items.size(); i++) out[i] = items[i];
  return out;
}

// What functions of CPython's return: below 0 there is an exception.
inline void check(int status) {
  if (status < 0) throw py::error_already_set();
}

// Of a dict; null where it has no such key.
inline py::object item_in(py::handle dict, py::handle key) {
  PyObject* found = PyDict_GetItemWithError(dict.ptr(), key.ptr());
  if (found == nullptr && PyErr_Occurred()) throw py::error_already_set();
  return borrow(found);
}

inline PyTypeObject* as_type(py::handle o) { return reinterpret_cast<PyTypeObject*>(o.ptr()); }
inline py::object type_object(PyTypeObject* type) {
  return borrow(reinterpret_cast<PyObject*>(type));
}
inline PyFunctionObject* as_function(py::handle o) {
  return reinterpret_cast<PyFunctionObject*>(o.ptr());
}
inline PyCodeObject* code_of(PyFunctionObject* f) {
  return reinterpret_cast<PyCodeObject*>(f->func_code);
}
inline PyCodeObject* code_of(py::handle function) { return code_of(as_function(function)); }

// Whether it is a string with this text.
inline bool is_text(PyObject* o, const char* text) {
  return o != nullptr && PyUnicode_Check(o) && PyUnicode_CompareWithASCIIString(o, text) == 0;
}

// A string that lives as long as `o`; empty for what is no string.
inline std::string_view view_of(PyObject* o) {
  if (o == nullptr || !PyUnicode_Check(o)) return {};
  Py_ssize_t size = 0;
  const char* data = PyUnicode_AsUTF8AndSize(o, &size);
  if (data == nullptr) throw py::error_already_set();
  return {data, static_cast<size_t>(size)};
}

// The module that a function was written in, which functools.wraps does not copy.
inline std::string_view written_in(PyFunctionObject* f) {
  static PyObject* const name = PyUnicode_InternFromString("__name__");
  return view_of(PyDict_GetItemWithError(f->func_globals, name));
}

// A text as an argument of a template.
template <size_t n>
struct Literal {
  constexpr Literal(const char (&from)[n]) { std::copy_n(from, n, text); }
  char text[n];
};

// What a module has by this name: looked up once, and held for good.
template <Literal module, Literal name>
const py::object& member_of() {
  static const py::object& found =
      *new py::object(py::module_::import(module.text).attr(name.text));
  return found;
}

// A function written in C, as an object.
template <PyCFunction function>
const py::object& function_object(const char* name) {
  static PyMethodDef method = {name, function, METH_VARARGS, nullptr};
  static const py::object& made = *new py::object(steal(PyCFunction_New(&method, nullptr)));
  return made;
}

}  // namespace oxy::python
