// The slots of a frame: locals, cells and free variables in one row (localsplus).
#pragma once

#include <Python.h>

#include <cstdint>

#include "python/cpython/opcodes.h"

namespace oxy::python {

// The bits of co_localspluskinds, which CPython keeps in an internal header.
enum LocalKind : uint8_t { kLocal = 0x20, kCell = 0x40, kFree = 0x80 };

#if PY_VERSION_HEX >= 0x030B0000
inline int slot_count(PyCodeObject* code) { return code->co_nlocalsplus; }

// Borrowed.
inline PyObject* slot_name(PyCodeObject* code, int slot) {
  return PyTuple_GET_ITEM(code->co_localsplusnames, slot);
}

inline int local_kind(PyCodeObject* code, int slot) {
  return static_cast<uint8_t>(PyBytes_AS_STRING(code->co_localspluskinds)[slot]);
}

// Which slot the argument of an instruction names.
inline int slot_of(PyCodeObject*, Argument, uint32_t arg) { return static_cast<int>(arg); }
#else
// A parameter that is a cell has two slots here.
inline int slot_count(PyCodeObject* code) {
  return static_cast<int>(PyTuple_GET_SIZE(code->co_varnames) +
                          PyTuple_GET_SIZE(code->co_cellvars) +
                          PyTuple_GET_SIZE(code->co_freevars));
}

inline PyObject* slot_name(PyCodeObject* code, int slot) {
  for (PyObject* row : {code->co_varnames, code->co_cellvars, code->co_freevars}) {
    const int size = static_cast<int>(PyTuple_GET_SIZE(row));
    if (slot < size) return PyTuple_GET_ITEM(row, slot);
    slot -= size;
  }
  return nullptr;
}

inline int local_kind(PyCodeObject* code, int slot) {
  const auto locals = PyTuple_GET_SIZE(code->co_varnames);
  if (slot < locals) return kLocal;
  return slot < locals + PyTuple_GET_SIZE(code->co_cellvars) ? kCell : kFree;
}

// Cells are counted from the first of them.
inline int slot_of(PyCodeObject* code, Argument kind, uint32_t arg) {
  return static_cast<int>(arg) +
         (kind == Argument::cell ? static_cast<int>(PyTuple_GET_SIZE(code->co_varnames)) : 0);
}
#endif

inline bool is_cell(PyCodeObject* code, int slot) {
  return (local_kind(code, slot) & (kCell | kFree)) != 0;
}

// super() without arguments is there: it reads slot 0 and the free variable __class__ of the frame.
inline bool reads_first_argument(PyCodeObject* code) {
  for (int slot = 0; slot < slot_count(code); ++slot)
    if (local_kind(code, slot) == kFree &&
        PyUnicode_CompareWithASCIIString(slot_name(code, slot), "__class__") == 0)
      return code->co_argcount > 0;
  return false;
}

}  // namespace oxy::python
