// With an evaluator of their own, calls of Python functions use C stack. Beyond a depth the one that was there before is put
// back until the frames return.
#define Py_BUILD_CORE 1
#include "python/cpython/frame_hook.h"

#include <internal/pycore_frame.h>

#include <utility>

#include "python/cpython/reference.h"
#include "support/check.h"

namespace oxy::python {
namespace {

constexpr int kMaxDepth = 200;

_PyFrameEvalFunction previous = nullptr;
FrameHandler handler = nullptr;
int users = 0;
thread_local int depth = 0;
// The frame that `previous` has been given last. An evaluator that took ours for the one before it, and was there when ours
// came back, gives the frame back to us.
thread_local _PyInterpreterFrame* passed_on = nullptr;

PyObject* evaluate(PyThreadState* state, _PyInterpreterFrame* frame, int throws);

PyObject* run_as_before(PyThreadState* state, _PyInterpreterFrame* frame, int throws) {
  const bool deep = depth >= kMaxDepth && users > 0;
  if (deep) _PyInterpreterState_SetEvalFrameFunc(state->interp, previous);
  ++depth;
  _PyInterpreterFrame* outer = std::exchange(passed_on, frame);
  PyObject* result = previous(state, frame, throws);
  passed_on = outer;
  --depth;
  if (deep && users > 0) _PyInterpreterState_SetEvalFrameFunc(state->interp, evaluate);
  return result;
}

#if PY_VERSION_HEX >= 0x030C0000
PyFunctionObject* function_of(const _PyInterpreterFrame* frame) {
  return reinterpret_cast<PyFunctionObject*>(frame->f_funcobj);
}

// A code object that returns at once.
PyCodeObject* empty_code() {
  Reference lambda(Py_CompileString("lambda: None", "<oxyfuel>", Py_eval_input));
  OXY_CHECK(lambda);
  PyObject* code = PyTuple_GET_ITEM(reinterpret_cast<PyCodeObject*>(lambda.get())->co_consts, 0);
  OXY_CHECK(PyCode_Check(code));
  return reinterpret_cast<PyCodeObject*>(Py_NewRef(code));
}

// Of 3.12 the evaluator frees the frame, with functions that are not exported: it runs a code that does nothing else.
void leave(PyThreadState* state, _PyInterpreterFrame* frame) {
  Reference raised(PyErr_GetRaisedException());
  static PyCodeObject* const empty = empty_code();
  Py_DECREF(frame->f_code);
  frame->f_code = reinterpret_cast<PyCodeObject*>(Py_NewRef(empty));
  frame->prev_instr = _PyCode_CODE(empty) - 1;
  Py_XDECREF(_PyEval_EvalFrameDefault(state, frame, 0));
  if (raised) PyErr_SetRaisedException(raised.release());
}
#else
PyFunctionObject* function_of(const _PyInterpreterFrame* frame) { return frame->f_func; }

// The caller frees the frame.
void leave(PyThreadState*, _PyInterpreterFrame*) {}
#endif

PyObject* evaluate(PyThreadState* state, _PyInterpreterFrame* frame, int throws) {
  if (frame == passed_on) return _PyEval_EvalFrameDefault(state, frame, throws);
  PyObject* result = nullptr;
  PyObject** parameters = frame->owner == FRAME_OWNED_BY_THREAD ? frame->localsplus : nullptr;
  if (throws || users == 0 || !handler(function_of(frame), parameters, result))
    return run_as_before(state, frame, throws);
  leave(state, frame);
  return result;
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
