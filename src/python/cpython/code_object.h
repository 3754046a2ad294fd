// The parts of a code object, and the slots of its frames (locals, cells and free variables in one
// row: localsplus), under one name in every version of CPython.
#pragma once

#include <Python.h>

#include <cstdint>
#include <string_view>

#include "python/cpython/opcodes.h"
#include "python/cpython/reference.h"

namespace oxy::python {

// Blocks are opened and closed by instructions (SETUP_FINALLY ... POP_BLOCK); later versions have a
// table of ranges.
inline constexpr bool kHasBlocks = PY_VERSION_HEX < 0x030B0000;

// The line table has lines only; later versions also columns.
inline constexpr bool kHasLinesOnly = PY_VERSION_HEX < 0x030B0000;

// A code object knows its qualified name; elsewhere MAKE_FUNCTION takes it.
inline constexpr bool kHasQualifiedNames = PY_VERSION_HEX >= 0x030B0000;

// A StopIteration thrown into a generator that has not begun becomes a RuntimeError.
inline constexpr bool kReplacesEarlyStops = PY_VERSION_HEX < 0x030C0000;

inline std::string_view bytes_view(PyObject* bytes) {
  return {PyBytes_AS_STRING(bytes), static_cast<size_t>(PyBytes_GET_SIZE(bytes))};
}

// What PyCode_NewWithPosOnlyArgs takes; borrowed. The tuples are what code.replace calls them.
struct CodeParts {
  int arguments = 0, positional_only = 0, keyword_only = 0;
  int stack_size = 0, flags = 0, first_line = 0;
  PyObject *bytes = nullptr, *constants = nullptr, *names = nullptr;
  PyObject *variables = nullptr, *free_variables = nullptr, *cell_variables = nullptr;
  PyObject *file_name = nullptr, *name = nullptr, *qualified_name = nullptr;
  PyObject *locations = nullptr, *ranges = nullptr;
};

// The bits of co_localspluskinds, which CPython keeps in an internal header.
enum LocalKind : uint8_t { kLocal = 0x20, kCell = 0x40, kFree = 0x80 };

#if PY_VERSION_HEX >= 0x030B0000
inline Reference code_bytes(PyCodeObject* code) { return Reference(PyCode_GetCode(code)); }
inline Reference variable_names(PyCodeObject* code) { return Reference(PyCode_GetVarnames(code)); }
inline Reference cell_names(PyCodeObject* code) { return Reference(PyCode_GetCellvars(code)); }
inline Reference free_names(PyCodeObject* code) { return Reference(PyCode_GetFreevars(code)); }
inline PyObject* qualified_name(PyCodeObject* code) { return code->co_qualname; }
inline std::string_view range_table(PyCodeObject* code) {
  return bytes_view(code->co_exceptiontable);
}
inline PyCodeObject* new_code(const CodeParts& p) {
#if PY_VERSION_HEX >= 0x030C0000
  const auto make = PyUnstable_Code_NewWithPosOnlyArgs;
#else
  const auto make = PyCode_NewWithPosOnlyArgs;
#endif
  return make(p.arguments, p.positional_only, p.keyword_only,
              static_cast<int>(PyTuple_GET_SIZE(p.variables)), p.stack_size, p.flags, p.bytes,
              p.constants, p.names, p.variables, p.free_variables, p.cell_variables, p.file_name,
              p.name, p.qualified_name, p.first_line, p.locations, p.ranges);
}

inline int slot_count(PyCodeObject* code) { return code->co_nlocalsplus; }

// Borrowed.
inline PyObject* slot_name(PyCodeObject* code, int slot) {
  return PyTuple_GET_ITEM(code->co_localsplusnames, slot);
}

inline int local_kind(PyCodeObject* code, int slot) {
  return static_cast<uint8_t>(PyBytes_AS_STRING(code->co_localspluskinds)[slot]);
}

inline int free_count(PyCodeObject* code) { return code->co_nfreevars; }

// The cell that a parameter becomes; -1 for one that is no cell.
inline int cell_of_parameter(PyCodeObject* code, int slot) {
  return local_kind(code, slot) & kCell ? slot : -1;
}
#else
inline Reference code_bytes(PyCodeObject* code) { return Reference(Py_NewRef(code->co_code)); }
inline Reference variable_names(PyCodeObject* c) { return Reference(Py_NewRef(c->co_varnames)); }
inline Reference cell_names(PyCodeObject* code) { return Reference(Py_NewRef(code->co_cellvars)); }
inline Reference free_names(PyCodeObject* code) { return Reference(Py_NewRef(code->co_freevars)); }
inline PyObject* qualified_name(PyCodeObject* code) { return code->co_name; }
inline std::string_view range_table(PyCodeObject*) { return {}; }
inline PyCodeObject* new_code(const CodeParts& p) {
  return PyCode_NewWithPosOnlyArgs(p.arguments, p.positional_only, p.keyword_only,
                                   static_cast<int>(PyTuple_GET_SIZE(p.variables)), p.stack_size,
                                   p.flags, p.bytes, p.constants, p.names, p.variables,
                                   p.free_variables, p.cell_variables, p.file_name, p.name,
                                   p.first_line, p.locations);
}

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

inline int free_count(PyCodeObject* code) {
  return static_cast<int>(PyTuple_GET_SIZE(code->co_freevars));
}

inline int cell_of_parameter(PyCodeObject* code, int slot) {
  const auto cells = static_cast<int>(PyTuple_GET_SIZE(code->co_cellvars));
  for (int i = 0; code->co_cell2arg != nullptr && i < cells; ++i)
    if (code->co_cell2arg[i] == slot) return code->co_nlocals + i;
  return -1;
}
#endif

// The slot that the arguments of instructions with cells are counted from.
inline int first_cell_argument(PyCodeObject* code) { return kHasBlocks ? code->co_nlocals : 0; }

// How many slots of a frame its parameters have: positional ones, keyword-only ones, * and **.
inline int parameter_count(PyCodeObject* code) {
  return code->co_argcount + code->co_kwonlyargcount + ((code->co_flags & CO_VARARGS) != 0) +
         ((code->co_flags & CO_VARKEYWORDS) != 0);
}

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
