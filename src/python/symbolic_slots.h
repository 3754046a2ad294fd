// Slots that the classes of symbolic numbers have in common. `plain`: what gives the number, which
// is guarded then.
#pragma once

#include "python/cpython/boundary.h"
#include "python/cpython/handles.h"

namespace oxy::python {

using PlainNumber = py::object (*)(PyObject* o);

// What a function of CPython's makes of the numbers.
template <PlainNumber plain, binaryfunc function>
PyObject* of_numbers(PyObject* a, PyObject* b) {
  return boundary([=] { return function(plain(a).ptr(), plain(b).ptr()); }, nullptr);
}

template <PlainNumber plain, unaryfunc function>
PyObject* of_number(PyObject* o) {
  return boundary([=] { return function(plain(o).ptr()); }, nullptr);
}

template <PlainNumber plain>
Py_hash_t hash_of_number(PyObject* o) {
  return boundary([=] { return PyObject_Hash(plain(o).ptr()); }, -1);
}

inline PyObject* itself(PyObject* o) { return Py_NewRef(o); }

template <class F>
PyType_Slot slot(int id, F* function) {
  return {id, reinterpret_cast<void*>(function)};
}

}  // namespace oxy::python
