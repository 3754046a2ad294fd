// Makes a frame object of a code object and an offset.
#define Py_BUILD_CORE 1
#include "python/cpython/frame_at.h"

#include <frameobject.h>
#include <internal/pycore_frame.h>

namespace oxy::python {

PyObject* frame_at(PyCodeObject* code, PyObject* globals, int offset) {
  PyFrameObject* frame = PyFrame_New(PyThreadState_Get(), code, globals, nullptr);
  if (frame == nullptr) return nullptr;
  const auto instruction = static_cast<size_t>(offset) / sizeof(_Py_CODEUNIT);
  frame->f_frame->prev_instr = _PyCode_CODE(code) + instruction;
  return reinterpret_cast<PyObject*>(frame);
}

}  // namespace oxy::python
