// The evaluator of frames. With one of their own, calls of Python functions use C stack. Beyond a
// depth the one that was there before is put back until the frames return, unless a handler has to
// see every frame. And frames that stand where others have ended.
#define Py_BUILD_CORE 1
#include "python/cpython/frames.h"

#include <frameobject.h>
#include <internal/pycore_frame.h>

#include <chrono>
#include <thread>
#include <utility>

#include "python/cpython/boundary.h"
#include "python/cpython/reference.h"
#include "support/check.h"

namespace oxy::python {
namespace {

constexpr int kMaxDepth = 200;
constexpr int kMaxWatchedDepth = 2000;  // while another thread has to see every frame

_PyFrameEvalFunction previous = nullptr;
FrameHandler handler = nullptr;
int users = 0, watchers = 0;  // watchers: users that have to see every frame
int lasting = 0;              // users of no thread
thread_local int depth = 0, own_users = 0, own_watchers = 0;
// The frame that `previous` has been given last. An evaluator that took ours for the one before it,
// and was there when ours came back, gives the frame back to us.
thread_local _PyInterpreterFrame* passed_on = nullptr;

PyObject* evaluate(PyThreadState* state, _PyInterpreterFrame* frame, int throws);

// Whether the frames that this one calls should use no C stack. Beyond the second limit there is
// none left for as long as another thread watches: that is waited for, ten seconds at most in all
// its frames.
bool is_deep() {
  constexpr int kWaits = 100'000;
  thread_local int waits = kWaits;
  if (watchers == 0) waits = kWaits;
  if (depth < kMaxDepth || own_watchers > 0) return false;
  if (watchers > 0 && depth < kMaxWatchedDepth) return false;
  for (; watchers > 0 && waits > 0; waits--) {
    PyThreadState* thread = PyEval_SaveThread();
    std::this_thread::sleep_for(std::chrono::microseconds(100));
    PyEval_RestoreThread(thread);
  }
  return users > 0;
}

PyObject* run_as_before(PyThreadState* state, _PyInterpreterFrame* frame, int throws) {
  const bool deep = is_deep();
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

PyCodeObject* empty = nullptr;  // it returns at once

// Of 3.12 the evaluator frees the frame, with functions that are not exported: it runs a code that
// does nothing else.
void prepare_to_leave() {
  if (empty != nullptr) return;
  Reference lambda(Py_CompileString("lambda: None", "<oxyfuel>", Py_eval_input));
  OXY_CHECK(lambda);
  PyObject* code = PyTuple_GET_ITEM(reinterpret_cast<PyCodeObject*>(lambda.get())->co_consts, 0);
  OXY_CHECK(PyCode_Check(code));
  empty = reinterpret_cast<PyCodeObject*>(Py_NewRef(code));
}

void leave(PyThreadState* state, _PyInterpreterFrame* frame) {
  Reference raised(PyErr_GetRaisedException());
  Py_DECREF(frame->f_code);
  frame->f_code = reinterpret_cast<PyCodeObject*>(Py_NewRef(empty));
  frame->prev_instr = _PyCode_CODE(empty) - 1;
  Py_XDECREF(_PyEval_EvalFrameDefault(state, frame, 0));
  if (raised) PyErr_SetRaisedException(raised.release());
}
#else
PyFunctionObject* function_of(const _PyInterpreterFrame* frame) { return frame->f_func; }

// The caller frees the frame.
void prepare_to_leave() {}
void leave(PyThreadState*, _PyInterpreterFrame*) {}
#endif

PyObject* evaluate(PyThreadState* state, _PyInterpreterFrame* frame, int throws) {
  if (frame == passed_on) return _PyEval_EvalFrameDefault(state, frame, throws);
  PyObject* result = nullptr;
  PyObject** parameters = frame->owner == FRAME_OWNED_BY_THREAD ? frame->localsplus : nullptr;
  auto handled = [&] { return handler(function_of(frame), parameters, result); };
  if (throws || users == 0 || !boundary(handled, true)) return run_as_before(state, frame, throws);
  leave(state, frame);
  return result;
}

void put_back() {
  PyInterpreterState* interpreter = PyThreadState_Get()->interp;
  if (_PyInterpreterState_GetEvalFrameFunc(interpreter) == evaluate)
    _PyInterpreterState_SetEvalFrameFunc(interpreter, previous);
}

}  // namespace

void add_frame_handler(FrameHandler added, bool every) {
  prepare_to_leave();
  handler = added;
  const bool first = users++ == 0;
  ++own_users;
  watchers += every;
  own_watchers += every;
  PyInterpreterState* interpreter = PyThreadState_Get()->interp;
  const _PyFrameEvalFunction now = _PyInterpreterState_GetEvalFrameFunc(interpreter);
  const bool deep = now == previous;  // some thread is
  if (now == evaluate || !(first || every || deep)) return;
  previous = now;
  _PyInterpreterState_SetEvalFrameFunc(interpreter, evaluate);
}

void remove_frame_handler(bool every) {
  watchers -= every;
  own_watchers -= every;
  --own_users;
  if (--users == 0) put_back();
}

void add_lasting_frame_handler(FrameHandler added) {
  add_frame_handler(added);
  --own_users;
  ++lasting;
}

void forget_handlers_of_other_threads() {
  const bool had = users > 0;
  users = lasting + own_users;
  watchers = own_watchers;
  if (had && users == 0) put_back();
}

PyObject* frame_at(PyCodeObject* code, PyObject* globals, int offset) {
  PyFrameObject* frame = PyFrame_New(PyThreadState_Get(), code, globals, nullptr);
  if (frame == nullptr) return nullptr;
  const auto instruction = static_cast<size_t>(offset) / sizeof(_Py_CODEUNIT);
  frame->f_frame->prev_instr = _PyCode_CODE(code) + instruction;
  return reinterpret_cast<PyObject*>(frame);
}

}  // namespace oxy::python
