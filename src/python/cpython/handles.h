// New and borrowed references as pybind11 objects.
#pragma once

#include <torch/csrc/utils/pybind.h>

namespace oxy::python {

namespace py = pybind11;

// A new reference; nullptr is the exception that is set.
inline py::object steal(PyObject* o) {
  if (o == nullptr) throw py::error_already_set();
  return py::reinterpret_steal<py::object>(o);
}

inline py::object borrow(PyObject* o) { return py::reinterpret_borrow<py::object>(o); }

}  // namespace oxy::python
