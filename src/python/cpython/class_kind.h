// Which classes can be changed: those that Python code or an extension made, not CPython's own. The
// flag HEAPTYPE alone does not tell: 3.12 has also deque, defaultdict and the types of itertools on
// the heap.
#pragma once

#include <Python.h>

namespace oxy::python {

inline bool is_changeable_class(const PyTypeObject* type) {
  return (type->tp_flags & Py_TPFLAGS_HEAPTYPE) && !(type->tp_flags & Py_TPFLAGS_IMMUTABLETYPE);
}

}  // namespace oxy::python
