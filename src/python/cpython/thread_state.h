// What CPython keeps of the running thread.
#pragma once

#include <Python.h>

namespace oxy::python {

// sys.settrace or sys.setprofile wants to see every line or call.
inline bool is_traced() {
  const PyThreadState* state = PyThreadState_Get();
  return state->c_tracefunc != nullptr || state->c_profilefunc != nullptr;
}

// How many audit hooks and functions of sys.settrace or sys.setprofile run on this thread.
inline int running_hooks() { return PyThreadState_Get()->tracing; }

// A frame has arguments of its own, beside those that its caller holds until it returns.
inline constexpr bool kCallersKeepArguments = PY_VERSION_HEX < 0x030B0000;

// The interpreter is being taken down: modules are empty already.
inline bool is_finalizing() {
#if PY_VERSION_HEX >= 0x030D0000
  return Py_IsFinalizing() != 0;
#else
  return _Py_IsFinalizing() != 0;
#endif
}

// How many calls deeper Python may go before it raises RecursionError.
inline int recursion_left() {
#if PY_VERSION_HEX >= 0x030C0000
  return PyThreadState_Get()->py_recursion_remaining;
#elif PY_VERSION_HEX >= 0x030B0000
  return PyThreadState_Get()->recursion_remaining;
#else
  return Py_GetRecursionLimit() - PyThreadState_Get()->recursion_depth;
#endif
}

// Calls count against Python's limit, and not only against the one that 3.12 has for functions
// written in C: with as many calls of ours as that allows there is no stack left. False with
// RecursionError set; otherwise leave_call() has to follow.
inline bool enter_call(const char* where) {
#if PY_VERSION_HEX >= 0x030C0000
  PyThreadState* state = PyThreadState_Get();
  if (state->py_recursion_remaining <= 0) {
    PyErr_Format(PyExc_RecursionError, "maximum recursion depth exceeded%s", where);
    return false;
  }
  --state->py_recursion_remaining;
  if (Py_EnterRecursiveCall(where) == 0) return true;
  ++state->py_recursion_remaining;
  return false;
#else
  return Py_EnterRecursiveCall(where) == 0;
#endif
}

inline void leave_call() {
  Py_LeaveRecursiveCall();
#if PY_VERSION_HEX >= 0x030C0000
  ++PyThreadState_Get()->py_recursion_remaining;
#endif
}

// The exception that is being handled: a new reference, nullptr where there is none.
inline PyObject* handled_exception() {
#if PY_VERSION_HEX >= 0x030B0000
  return PyErr_GetHandledException();
#else
  PyObject *type, *value, *trace;
  PyErr_GetExcInfo(&type, &value, &trace);
  Py_XDECREF(type);
  Py_XDECREF(trace);
  if (value != nullptr && PyExceptionInstance_Check(value)) return value;
  Py_XDECREF(value);
  return nullptr;
#endif
}

inline void set_handled_exception(PyObject* value) {
#if PY_VERSION_HEX >= 0x030B0000
  PyErr_SetHandledException(value);
#else
  if (value == nullptr || value == Py_None) return PyErr_SetExcInfo(nullptr, nullptr, nullptr);
  PyErr_SetExcInfo(Py_NewRef(reinterpret_cast<PyObject*>(Py_TYPE(value))), Py_NewRef(value),
                   PyException_GetTraceback(value));
#endif
}

// While it lives, no exception is being handled: neither by the running frame nor, in a generator,
// by those around it.
class NothingHandled {
 public:
  NothingHandled() : outside_(PyThreadState_Get()->exc_info) {
    PyThreadState_Get()->exc_info = &own_;
  }
  NothingHandled(const NothingHandled&) = delete;
  ~NothingHandled() {
    PyThreadState_Get()->exc_info = outside_;
#if PY_VERSION_HEX < 0x030B0000
    Py_XDECREF(own_.exc_type);
    Py_XDECREF(own_.exc_traceback);
#endif
    Py_XDECREF(own_.exc_value);
  }

 private:
  _PyErr_StackItem own_{};
  _PyErr_StackItem* const outside_;
};

}  // namespace oxy::python
