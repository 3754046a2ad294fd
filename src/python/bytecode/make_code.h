// A new code object from instructions and everything else that a code object has.
#pragma once

#include "python/bytecode/code.h"
#include "python/cpython/code_object.h"

namespace oxy::python {

// Borrowed references; the tuples are what code.replace calls them.
struct CodeShape {
  int arguments = 0, positional_only = 0, keyword_only = 0;
  int flags = 0;
  PyObject* constants = nullptr;
  PyObject* names = nullptr;
  PyObject* variables = nullptr;
  PyObject* cell_variables = nullptr;
  PyObject* free_variables = nullptr;
  PyObject* name = nullptr;
  PyObject* qualified_name = nullptr;

  // The names and flags of `code`, with these cells and free variables of its.
  static CodeShape like(PyCodeObject* code, PyObject* cells, PyObject* frees) {
    CodeShape shape;
    shape.flags = code->co_flags;
    shape.names = code->co_names;
    shape.cell_variables = cells;
    shape.free_variables = frees;
    shape.name = code->co_name;
    shape.qualified_name = python::qualified_name(code);
    return shape;
  }
};

// File name and first line are `like`'s. A new reference, nullptr with an exception set.
PyCodeObject* make_code(const Bytecode& bytecode, const CodeShape& shape, PyCodeObject* like);

}  // namespace oxy::python
