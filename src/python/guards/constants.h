// Comparing constants without running Python code.
#pragma once

#include <Python.h>

#include <cstddef>

namespace oxy::python {

// Same type and equal: None, bool, int, float and complex by their bits, str, bytes, torch constants, and tuples,
// frozensets and slices of such. Everything else is compared by identity. Sets no exception.
bool same_constant(PyObject* a, PyObject* b);

// Equal for constants that are the same. Throws py::error_already_set where the key cannot be hashed.
size_t constant_hash(PyObject* key);

}  // namespace oxy::python
