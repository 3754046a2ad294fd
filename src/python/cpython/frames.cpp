// The evaluator of frames. With one of their own, calls of Python functions use C stack. Beyond a
// depth the one that was there before is put back until the frames return, unless a handler has to
// see every frame. And frames that stand where others have ended.
#define Py_BUILD_CORE 1
#include "python/cpython/frames.h"

#include <frameobject.h>
#if PY_VERSION_HEX >= 0x030B0000
#include <internal/pycore_frame.h>
#endif

#include <chrono>
#include <thread>
#include <utility>

#include "python/cpython/boundary.h"
#include "python/cpython/code_object.h"
#include "python/cpython/reference.h"
#include "support/check.h"

namespace oxy::python {
namespace {

// What the evaluator is given.
#if PY_VERSION_HEX >= 0x030B0000
using EvaluatedFrame = _PyInterpreterFrame;
#else
using EvaluatedFrame = PyFrameObject;
#endif

constexpr int kMaxDepth = 200;
constexpr int kMaxWatchedDepth = 2000;  // while another thread has to see every frame
// Of the calls that 3.12 and 3.13 allow on the C stack, those that are left to functions written in
// C. A frame of ours is two, and the first releases of 3.12 allow 1500.
constexpr int kCallsOfC = 750;

_PyFrameEvalFunction previous = nullptr;
FrameHandler handler = nullptr;
int users = 0, watchers = 0;  // watchers: users that have to see every frame
int lasting = 0;              // users of no thread
thread_local int depth = 0, own_users = 0, own_watchers = 0;
// The frame that `previous` has been given last. An evaluator that took ours for the one before it,
// and was there when ours came back, gives the frame back to us.
thread_local EvaluatedFrame* passed_on = nullptr;

PyObject* evaluate_frame(PyThreadState* state, EvaluatedFrame* frame, int throws);

bool has_c_stack([[maybe_unused]] const PyThreadState* state) {
#if PY_VERSION_HEX >= 0x030C0000
  if (state->c_recursion_remaining < kCallsOfC) return false;
#endif
  return depth < kMaxWatchedDepth;
}

// Whether the frames that this one calls should use no C stack. Where there is none left for as
// long as another thread watches, that is waited for, ten seconds at most in all its frames.
bool is_deep(const PyThreadState* state) {
  using Clock = std::chrono::steady_clock;
  constexpr Clock::duration kPatience = std::chrono::seconds(10);
  thread_local Clock::duration patience = kPatience;
  if (watchers == 0) patience = kPatience;
  if (depth < kMaxDepth || own_watchers > 0) return false;
  if (watchers > 0 && has_c_stack(state)) return false;
  const Clock::time_point begin = Clock::now();
  Clock::duration waited{};
  while (watchers > 0 && waited < patience) {
    PyThreadState* thread = PyEval_SaveThread();
    std::this_thread::sleep_for(std::chrono::microseconds(100));
    PyEval_RestoreThread(thread);
    waited = Clock::now() - begin;
  }
  patience -= waited;
  return users > 0;
}

PyObject* run_as_before(PyThreadState* state, EvaluatedFrame* frame, int throws) {
  const bool deep = is_deep(state);
  if (deep) _PyInterpreterState_SetEvalFrameFunc(state->interp, previous);
  ++depth;
  EvaluatedFrame* outer = std::exchange(passed_on, frame);
  PyObject* result = previous(state, frame, throws);
  passed_on = outer;
  --depth;
  if (deep && users > 0) _PyInterpreterState_SetEvalFrameFunc(state->interp, evaluate_frame);
  return result;
}

#if PY_VERSION_HEX >= 0x030B0000
// The instruction where a traceback finds the frame; before 3.13 the one behind it is run next.
void set_instruction(_PyInterpreterFrame* frame, PyCodeObject* code, size_t instruction) {
#if PY_VERSION_HEX >= 0x030D0000
  frame->instr_ptr = _PyCode_CODE(code) + instruction;
#else
  frame->prev_instr = _PyCode_CODE(code) + instruction;
#endif
}
#endif

#if PY_VERSION_HEX >= 0x030C0000
PyFunctionObject* function_of(const _PyInterpreterFrame* frame) {
  return reinterpret_cast<PyFunctionObject*>(frame->f_funcobj);
}

PyCodeObject* empty = nullptr;  // it returns at once

// Of 3.12 the evaluator frees the frame, with functions that are not exported: it runs a code that
// does nothing else, from behind its RESUME on, which might run signal handlers.
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
#if PY_VERSION_HEX >= 0x030D0000
  Py_SETREF(frame->f_executable, Py_NewRef(empty));
  set_instruction(frame, empty, 1);
#else
  Py_SETREF(frame->f_code, reinterpret_cast<PyCodeObject*>(Py_NewRef(empty)));
  set_instruction(frame, empty, 0);
#endif
  Reference nothing(_PyEval_EvalFrameDefault(state, frame, 0));
  if (!nothing) PyErr_Clear();
  if (raised) PyErr_SetRaisedException(raised.release());
}
#else
// The caller frees the frame.
void prepare_to_leave() {}
void leave(PyThreadState*, EvaluatedFrame*) {}
#endif

#if PY_VERSION_HEX >= 0x030C0000
#elif PY_VERSION_HEX >= 0x030B0000
PyFunctionObject* function_of(const _PyInterpreterFrame* frame) { return frame->f_func; }
#else
// A frame does not tell its function: one of the same code, globals and cells.
Reference function_of(const PyFrameObject* frame) {
  PyCodeObject* code = frame->f_code;
  Reference function(PyFunction_New(reinterpret_cast<PyObject*>(code), frame->f_globals));
  const int frees = free_count(code), first = slot_count(code) - frees;
  const Reference cells(PyTuple_New(frees));
  if (!function || !cells) return {};
  for (int i = 0; i < frees; ++i)
    PyTuple_SET_ITEM(cells.get(), i, Py_NewRef(frame->f_localsplus[first + i]));
  if (frees > 0 && PyFunction_SetClosure(function.get(), cells.get()) < 0) return {};
  return function;
}

// While it lives, the parameters that the frame has made cells of are in their own slots.
class BoundParameters {
 public:
  explicit BoundParameters(PyFrameObject* frame) : frame_(frame) {
    if (has_cells()) exchange(true);
  }
  ~BoundParameters() {
    if (has_cells()) exchange(false);
  }
  BoundParameters(const BoundParameters&) = delete;

 private:
  bool has_cells() const { return frame_->f_code->co_cell2arg != nullptr; }

  void exchange(bool out) {
    const int count = parameter_count(frame_->f_code);
    for (int slot = 0; slot < count; ++slot) {
      const int at = cell_of_parameter(frame_->f_code, slot);
      if (at < 0) continue;
      auto* cell = reinterpret_cast<PyCellObject*>(frame_->f_localsplus[at]);
      PyObject*& given = frame_->f_localsplus[slot];
      if (out)
        given = std::exchange(cell->ob_ref, nullptr);
      else
        cell->ob_ref = std::exchange(given, nullptr);
    }
  }

  PyFrameObject* const frame_;
};
#endif

PyObject* evaluate_frame(PyThreadState* state, EvaluatedFrame* frame, int throws) {
  if (frame == passed_on) return _PyEval_EvalFrameDefault(state, frame, throws);
  PyObject* result = nullptr;
#if PY_VERSION_HEX >= 0x030B0000
  PyObject** parameters = frame->owner == FRAME_OWNED_BY_THREAD ? frame->localsplus : nullptr;
  auto handled = [&] { return handler(function_of(frame), parameters, result); };
#else
  auto handled = [&] {
    if (frame->f_gen != nullptr) return false;  // it goes on
    const Reference function = function_of(frame);
    if (!function) return true;
    const BoundParameters bound(frame);
    return handler(reinterpret_cast<PyFunctionObject*>(function.get()), frame->f_localsplus,
                   result);
  };
#endif
  if (throws || users == 0 || !boundary(handled, true)) return run_as_before(state, frame, throws);
  leave(state, frame);
  return result;
}

void put_back() {
  PyInterpreterState* interpreter = PyThreadState_Get()->interp;
  if (_PyInterpreterState_GetEvalFrameFunc(interpreter) == evaluate_frame)
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
  if (now == evaluate_frame || !(first || every || deep)) return;
  previous = now;
  _PyInterpreterState_SetEvalFrameFunc(interpreter, evaluate_frame);
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

void add_traceback_line(const char* function, const char* file, int line) {
  PyObject *type = nullptr, *value = nullptr, *trace = nullptr;
  PyErr_Fetch(&type, &value, &trace);
  const Reference globals(PyDict_New());
  const Reference code(reinterpret_cast<PyObject*>(PyCode_NewEmpty(file, function, line)));
  PyFrameObject* frame = globals && code ? PyFrame_New(PyThreadState_Get(),
                                                       reinterpret_cast<PyCodeObject*>(code.get()),
                                                       globals.get(), nullptr)
                                         : nullptr;
  PyErr_Clear();
  PyErr_Restore(type, value, trace);
  if (frame) PyTraceBack_Here(frame);
  Py_XDECREF(frame);
}

PyObject* frame_at(PyCodeObject* code, PyObject* globals, int offset) {
  PyFrameObject* frame = PyFrame_New(PyThreadState_Get(), code, globals, nullptr);
  if (frame == nullptr) return nullptr;
  const auto instruction = static_cast<size_t>(offset) / sizeof(_Py_CODEUNIT);
#if PY_VERSION_HEX >= 0x030B0000
  set_instruction(frame->f_frame, code, instruction);
  // f_locals reads the cells of free variables without asking whether they are there.
  for (int slot = slot_count(code) - free_count(code); slot < slot_count(code); ++slot) {
    PyObject* cell = PyCell_New(nullptr);
    if (cell == nullptr) {
      Py_DECREF(frame);
      return nullptr;
    }
    frame->f_frame->localsplus[slot] = cell;
  }
#else
  frame->f_lasti = static_cast<int>(instruction);
  Py_CLEAR(frame->f_back);
#endif
  return reinterpret_cast<PyObject*>(frame);
}

}  // namespace oxy::python
