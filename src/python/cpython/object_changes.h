// Changes of an object that no version tells of: assignments to its __class__ and its __dict__, and
// to the __code__ of a function. All go through a setter that CPython shares among all classes;
// these setters are wrapped, once a process, so that they count.
#pragma once

#include <Python.h>

#include <cstdint>

namespace oxy::python {

// Starts counting. Before, nothing is counted.
void count_object_changes();
uint64_t object_changes();

// Whether every assignment to the __dict__ of instances of the type is counted: they have one that
// CPython itself manages, and no other setter.
bool counts_dict_changes(PyTypeObject* type);

}  // namespace oxy::python
