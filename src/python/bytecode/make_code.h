// A new code object from instructions and everything else that a code object has.
#pragma once

#include "python/bytecode/code.h"
#include "python/cpython/code_object.h"

namespace oxy::python {

// The names and flags of `code`, with these cells and free variables of its; the rest is to be
// filled in.
inline CodeParts parts_like(PyCodeObject* code, PyObject* cells, PyObject* frees) {
  CodeParts parts;
  parts.flags = code->co_flags;
  parts.names = code->co_names;
  parts.cell_variables = cells;
  parts.free_variables = frees;
  parts.name = code->co_name;
  parts.qualified_name = qualified_name(code);
  return parts;
}

// With the bytes and tables of the instructions; file name and first line are `like`'s. A new
// reference, nullptr with an exception set.
PyCodeObject* make_code(const Bytecode& bytecode, CodeParts parts, PyCodeObject* like);

}  // namespace oxy::python
