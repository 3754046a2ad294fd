// A pointer of ours with a code object, freed with it.
#pragma once

#include <Python.h>

namespace oxy::python {

class CodeExtra {
 public:
  explicit CodeExtra(freefunc free) : slot_(_PyEval_RequestCodeExtraIndex(free)) {}

  void* get(PyCodeObject* code) const {
    void* found = nullptr;
    if (slot_ < 0 || _PyCode_GetExtra(reinterpret_cast<PyObject*>(code), slot_, &found) == 0)
      return found;
    PyErr_Clear();
    return nullptr;
  }
  // False where there is no room for it.
  bool set(PyCodeObject* code, void* extra) const {
    if (slot_ < 0) return false;
    if (_PyCode_SetExtra(reinterpret_cast<PyObject*>(code), slot_, extra) == 0) return true;
    PyErr_Clear();
    return false;
  }

 private:
  Py_ssize_t slot_;
};

}  // namespace oxy::python
