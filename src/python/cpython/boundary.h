// Where C calls C++: no C++ exception crosses a frame of C, which would end the process. Every
// callback that CPython is given has its body in a `boundary` (tools/check_boundaries.py looks for
// those without).
#pragma once

#include <Python.h>
#include <cxxabi.h>

#include <concepts>
#include <type_traits>

namespace oxy::python {

// Makes the C++ exception that is being handled the Python exception that is set. Defined once in
// each extension module.
void raise_in_python() noexcept;

// What `body` returns; `failed`, with a Python exception set, if it throws. What glibc throws to
// end a thread (CPython does that to daemon threads as it goes down) passes, so this is not
// `noexcept`.
template <class Body, class Result = std::invoke_result_t<Body&>>
Result boundary(Body&& body, std::type_identity_t<Result> failed) {
  try {
    return body();
  } catch (const abi::__forced_unwind&) {
    throw;
  } catch (...) {
    raise_in_python();
    return failed;
  }
}

// For what has no way to fail, such as a destructor: Python reports the exception, and the one that
// was set before stays.
template <std::invocable Body>
void boundary(Body&& body) {
  try {
    body();
  } catch (const abi::__forced_unwind&) {
    throw;
  } catch (...) {
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    raise_in_python();
    PyErr_WriteUnraisable(nullptr);
    PyErr_Restore(type, value, trace);
  }
}

}  // namespace oxy::python
