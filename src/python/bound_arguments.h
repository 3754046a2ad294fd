// The arguments of a call as CPython binds them.
#pragma once

#include <c10/util/SmallVector.h>

#include <functional>
#include <vector>

#include "python/cpython/handles.h"

namespace oxy::python {

// In the order of localsplus; not valid where the call is an error, which CPython then words.
struct BoundArguments {
  c10::SmallVector<PyObject*, 16> locals;
  PyObject* code;  // of the function, borrowed
  std::vector<py::object> held;
  bool valid = false;

  BoundArguments(PyFunctionObject* f, PyObject* const* args, size_t n, PyObject* kwnames);

 private:
  bool bind_keywords(PyCodeObject* code, PyObject* const* values, PyObject* kwnames, size_t named,
                     bool extra, py::object& others);
};

// Calls with the bound parameters of a frame of `code`, by way of `call`.
using Vectorcall = std::function<PyObject*(PyObject* callable, PyObject* const* args, size_t nargsf,
                                           PyObject* kwnames)>;
PyObject* call_bound(PyObject* callable, PyCodeObject* code, PyObject* const* parameters,
                     const Vectorcall& call = PyObject_Vectorcall);

}  // namespace oxy::python
