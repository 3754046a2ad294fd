// What CPython's types are and do that its API does not tell.
#pragma once

#include <Python.h>

namespace oxy::python {

// Classes that can be changed: those that Python code or an extension made, not CPython's own. The
// flag HEAPTYPE alone does not tell: 3.12 has also deque, defaultdict and the types of itertools on
// the heap.
inline bool is_changeable_class(const PyTypeObject* type) {
  return (type->tp_flags & Py_TPFLAGS_HEAPTYPE) && !(type->tp_flags & Py_TPFLAGS_IMMUTABLETYPE);
}

// 3.12 keeps the dicts of its own types elsewhere than in tp_dict. Borrowed: the type holds it.
inline PyObject* type_dict(PyTypeObject* type) {
#if PY_VERSION_HEX >= 0x030C0000
  PyObject* dict = PyType_GetDict(type);
  Py_XDECREF(dict);
  return dict;
#else
  return type->tp_dict;
#endif
}

// issubset() asks an iterable for no more once it has seen all of the set.
constexpr bool kIssubsetStopsEarly = PY_VERSION_HEX >= 0x030C0000;

// The item that a set's pop() takes after `before` others, nothing else being done to the set
// between; borrowed, null where there is none.
inline PyObject* next_popped(PyObject* set, Py_ssize_t before) {
  auto* s = reinterpret_cast<PySetObject*>(set);
  for (Py_ssize_t i = 0, seen = 0; i <= s->mask && seen < s->used; i++) {
    const setentry& entry = s->table[(s->finger + i) & s->mask];
    // A deleted entry has a key of its own, and this hash.
    if (entry.key == nullptr || entry.hash == -1) continue;
    if (seen++ == before) return entry.key;
  }
  return nullptr;
}

}  // namespace oxy::python
