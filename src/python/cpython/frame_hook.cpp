// CPython 3.11: with an evaluator of their own, calls of Python functions use C stack. Beyond a depth the one that was there
// before is put back until the frames return.
#define Py_BUILD_CORE 1
#include "python/cpython/frame_hook.h"

#include <internal/pycore_frame.h>

namespace oxy::python {
namespace {

constexpr int kMaxDepth = 200;

_PyFrameEvalFunction previous = nullptr;
FrameHandler handler = nullptr;
int users = 0;
thread_local int depth = 0;

PyObject* evaluate(PyThreadState* state, _PyInterpreterFrame* frame, int throws);

PyObject* run_as_before(PyThreadState* state, _PyInterpreterFrame* frame, int throws) {
  const bool deep = depth >= kMaxDepth && users > 0;
  if (deep) _PyInterpreterState_SetEvalFrameFunc(state->interp, previous);
  ++depth;
  PyObject* result = previous(state, frame, throws);
  --depth;
  if (deep && users > 0) _PyInterpreterState_SetEvalFrameFunc(state->interp, evaluate);
  return result;
}

PyObject* evaluate(PyThreadState* state, _PyInterpreterFrame* frame, int throws) {
  PyObject* result = nullptr;
  if (!throws && users > 0 && handler(frame->f_func, frame->localsplus, result)) return result;
  return run_as_before(state, frame, throws);
}

}  // namespace

void add_frame_handler(FrameHandler added) {
  handler = added;
  if (users++ > 0) return;
  PyInterpreterState* interpreter = PyThreadState_Get()->interp;
  previous = _PyInterpreterState_GetEvalFrameFunc(interpreter);
  _PyInterpreterState_SetEvalFrameFunc(interpreter, evaluate);
}

void remove_frame_handler() {
  if (--users > 0) return;
  PyInterpreterState* interpreter = PyThreadState_Get()->interp;
  if (_PyInterpreterState_GetEvalFrameFunc(interpreter) == evaluate)
    _PyInterpreterState_SetEvalFrameFunc(interpreter, previous);
}

}  // namespace oxy::python
