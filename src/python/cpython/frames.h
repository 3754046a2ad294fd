// CPython's frames and code objects: who sees a Python function's frame before it runs (PEP 523),
// frames of functions that have ended, what is kept with a code object.
#pragma once

#include <Python.h>

namespace oxy::python {

inline constexpr bool kFramesTellFunctions = PY_VERSION_HEX >= 0x030B0000;
// A frame has one dict of its locals, which locals() and f_locals give.
inline constexpr bool kOneDictOfLocals = PY_VERSION_HEX < 0x030D0000;

// Called with a frame that is about to run: its function and its bound parameters (positional ones,
// keyword-only ones, then the tuple of * and the dict of **; owned by the frame; null where a
// generator goes on). Returns whether it has dealt with the frame, from which it may have taken the
// parameters then, with nullptr in their places; `result` is then what the frame returns, or
// nullptr with an exception set. What it throws is the frame's exception.
//
// Where a frame does not tell its function, this is one of the same code, globals and cells,
// without the attributes of the one that was called, and its qualified name is its name.
using FrameHandler = bool (*)(PyFunctionObject* function, PyObject** parameters, PyObject*& result);

// From now on the handler sees the frames of every thread, until as many `remove_frame_handler`
// have followed on this one; the evaluator that was there before runs the frames that it does not
// deal with. Frames of a thread that is deep in such frames it sees only if it has to see `every`
// one. Needs the GIL.
void add_frame_handler(FrameHandler handler, bool every = false);
void remove_frame_handler(bool every = false);
// One that stays.
void add_lasting_frame_handler(FrameHandler handler);
// In a process that was forked, which has no other threads.
void forget_handlers_of_other_threads();

// A new frame without values that stands at the instruction at `offset`, in bytes, as tracebacks
// hold them; nullptr is the exception that is set.
PyObject* frame_at(PyCodeObject* code, PyObject* globals, int offset);

// Adds a line to the traceback of the exception that is set.
void add_traceback_line(const char* function, const char* file, int line);

// A pointer of ours with a code object, freed with it.
class CodeExtra {
 public:
  explicit CodeExtra(freefunc free) : slot_(_PyEval_RequestCodeExtraIndex(free)) {}

  void* get(PyCodeObject* code) const {
    void* found = nullptr;
    if (slot_ < 0 || _PyCode_GetExtra(reinterpret_cast<PyObject*>(code), slot_, &found) == 0)
      return found;
    PyErr_Clear();
    return nullptr;
  }
  // False where there is no room for it.
  bool set(PyCodeObject* code, void* extra) const {
    if (slot_ < 0) return false;
    if (_PyCode_SetExtra(reinterpret_cast<PyObject*>(code), slot_, extra) == 0) return true;
    PyErr_Clear();
    return false;
  }

 private:
  Py_ssize_t slot_;
};

}  // namespace oxy::python
