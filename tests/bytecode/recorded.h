// In front of every source of the bytecode layer where it is built for a version of CPython that is
// not there: for the opcodes of a recorded `opcode.h`, in an interpreter of 3.11. That keeps the
// bytes of code objects that have not run as they were given to it.
#pragma once

#include <Python.h>

#if PY_VERSION_HEX < 0x030B0000 || PY_VERSION_HEX >= 0x030C0000
#error "later versions write into the bytes of what they take for their own instructions"
#endif

inline PyObject* recorded_code_bytes(PyCodeObject* code) {
  return PyObject_GetAttrString(reinterpret_cast<PyObject*>(code), "_co_code_adaptive");
}

// Of the module `opcode` that check_recorded.py puts in place of Python's.
inline int recorded_stack_effect(int op, int arg, int jumps) {
  PyObject* module = PyImport_ImportModule("opcode");
  PyObject* effect = PyObject_CallMethod(module, "stack_effect", "iii", op, arg, jumps);
  Py_DECREF(module);
  if (effect == nullptr) return PY_INVALID_STACK_EFFECT;
  const auto result = static_cast<int>(PyLong_AsLong(effect));
  Py_DECREF(effect);
  return result;
}

#define PyCode_GetCode recorded_code_bytes
#define PyCompile_OpcodeStackEffectWithJump recorded_stack_effect
