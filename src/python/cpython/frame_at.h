// Frames of functions that have ended, as tracebacks hold them.
#pragma once

#include <Python.h>

namespace oxy::python {

// A new frame without values that stands at the instruction at `offset`, in bytes; nullptr is the
// exception that is set.
PyObject* frame_at(PyCodeObject* code, PyObject* globals, int offset);

}  // namespace oxy::python
