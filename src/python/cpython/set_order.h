// What sets do with their items, and when: the order in which pop() takes them is from a finger
// that goes around the table.
#pragma once

#include <Python.h>

namespace oxy::python {

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
