// What CPython keeps of the running thread.
#pragma once

#include <Python.h>

namespace oxy::python {

// sys.settrace or sys.setprofile wants to see every line or call.
inline bool is_traced() {
  const PyThreadState* state = PyThreadState_Get();
  return state->c_tracefunc != nullptr || state->c_profilefunc != nullptr;
}

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
#else
  return PyThreadState_Get()->recursion_remaining;
#endif
}

}  // namespace oxy::python
