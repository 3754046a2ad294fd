// Names that the interpreter looks up on types and in dicts again and again, as interned strings.
#pragma once

#include <torch/csrc/utils/pybind.h>

namespace oxy::python {

namespace py = pybind11;

// The name __x__ is the member x_.
#define OXY_CAPTURE_NAMES(X) \
  X(bool)                    \
  X(call)                    \
  X(class)                   \
  X(contains)                \
  X(dict)                    \
  X(enter)                   \
  X(exit)                    \
  X(get)                     \
  X(getattr)                 \
  X(getattribute) X(getitem) X(init) X(iter) X(len) X(new) X(next) X(self) X(setattr) X(setitem)

struct Names {
#define OXY_NAME(name) PyObject* const name##_ = PyUnicode_InternFromString("__" #name "__");
  OXY_CAPTURE_NAMES(OXY_NAME)
#undef OXY_NAME
};

inline const Names& names() {
  static const auto& all = *new Names();
  return all;
}

// `name` is this interned string, or equal to it.
inline bool is_name(py::handle name, PyObject* interned) {
  return name.ptr() == interned ||
         (PyUnicode_Check(name.ptr()) && PyUnicode_Compare(name.ptr(), interned) == 0);
}

// str(o), of a string without calling anything: PyObject_Str would run the handlers of signals.
inline std::string text(py::handle o) {
  return PyUnicode_Check(o.ptr()) ? o.cast<std::string>() : py::str(o).cast<std::string>();
}

// What the class of `o` has under this name, where that is a Python function; borrowed, else null.
inline PyObject* python_method(PyObject* o, PyObject* name) {
  PyObject* found = _PyType_Lookup(Py_TYPE(o), name);
  return found != nullptr && PyFunction_Check(found) ? found : nullptr;
}

}  // namespace oxy::python
