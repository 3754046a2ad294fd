// The dict of a type: 3.12 keeps those of its own types elsewhere than in tp_dict.
#pragma once

#include <Python.h>

namespace oxy::python {

// Borrowed: the type holds it.
inline PyObject* type_dict(PyTypeObject* type) {
#if PY_VERSION_HEX >= 0x030C0000
  PyObject* dict = PyType_GetDict(type);
  Py_XDECREF(dict);
  return dict;
#else
  return type->tp_dict;
#endif
}

}  // namespace oxy::python
