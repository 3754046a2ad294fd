// The slots of a frame: locals, cells and free variables in one row (localsplus).
#pragma once

#include <Python.h>

#include <cstdint>

namespace oxy::python {

// The bits of co_localspluskinds, which CPython keeps in an internal header.
enum LocalKind : uint8_t { kLocal = 0x20, kCell = 0x40, kFree = 0x80 };

inline int local_kind(PyCodeObject* code, int slot) {
  return static_cast<uint8_t>(PyBytes_AS_STRING(code->co_localspluskinds)[slot]);
}

inline bool is_cell(PyCodeObject* code, int slot) {
  return (local_kind(code, slot) & (kCell | kFree)) != 0;
}

// super() without arguments is there: it reads slot 0 and the free variable __class__ of the frame.
inline bool reads_first_argument(PyCodeObject* code) {
  for (int slot = 0; slot < code->co_nlocalsplus; ++slot)
    if (local_kind(code, slot) == kFree &&
        PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(code->co_localsplusnames, slot),
                                         "__class__") == 0)
      return code->co_argcount > 0;
  return false;
}

}  // namespace oxy::python
