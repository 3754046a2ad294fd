// The parts of a code object under one name in every version of CPython.
#pragma once

#include <Python.h>

#include <string_view>

#include "python/cpython/reference.h"

namespace oxy::python {

// Blocks are opened and closed by instructions (SETUP_FINALLY ... POP_BLOCK); later versions have a
// table of ranges.
inline constexpr bool kHasBlocks = PY_VERSION_HEX < 0x030B0000;

// The line table has lines only; later versions also columns.
inline constexpr bool kHasLinesOnly = PY_VERSION_HEX < 0x030B0000;

inline std::string_view bytes_view(PyObject* bytes) {
  return {PyBytes_AS_STRING(bytes), static_cast<size_t>(PyBytes_GET_SIZE(bytes))};
}

// What PyCode_NewWithPosOnlyArgs takes; borrowed. The tuples are what code.replace calls them.
struct CodeParts {
  int arguments = 0, positional_only = 0, keyword_only = 0;
  int stack_size = 0, flags = 0, first_line = 0;
  PyObject* bytes = nullptr;
  PyObject* constants = nullptr;
  PyObject* names = nullptr;
  PyObject* variables = nullptr;
  PyObject* free_variables = nullptr;
  PyObject* cell_variables = nullptr;
  PyObject* file_name = nullptr;
  PyObject* name = nullptr;
  PyObject* qualified_name = nullptr;
  PyObject* locations = nullptr;
  PyObject* ranges = nullptr;
};

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
#endif

}  // namespace oxy::python
