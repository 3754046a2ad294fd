// Functions of torch that take a size as an int of their schema (torch.linspace, triu_indices):
// what reads a call's arguments makes the number of a symbol. Called here, their op gets the symbol
// itself, which the recorder takes.
#pragma once

#include <string_view>

#include "python/cpython/handles.h"

namespace oxy::python {

// As PyObject_Call of the function of this name, under a recording: what it gives for symbolic ints
// too, where its schema has plain ones, and for fakes that an overload of a packet does not take.
// `kwargs` may be null.
PyObject* call_with_sizes(std::string_view name, py::handle function, const py::tuple& args,
                          py::handle kwargs);

}  // namespace oxy::python
