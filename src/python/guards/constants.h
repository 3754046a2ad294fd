// Comparing constants without running Python code.
#pragma once

#include <Python.h>

#include <cstddef>

namespace oxy::python {

// Same type and equal: None, bool, int, float and complex by their bits, str, bytes, torch
// constants, and tuples, frozensets and slices of such. Everything else is compared by identity.
// Sets no exception.
bool same_constant(PyObject* a, PyObject* b);

// A float that is not equal to itself: containers find it by its identity.
bool is_nan(PyObject* p);

// Equal for constants that are the same. Throws py::error_already_set where the key cannot be
// hashed.
size_t constant_hash(PyObject* key);

}  // namespace oxy::python
