// torch.ops.aten.add and the like: which overload takes the arguments of a call. torch prints those
// that an overload does not take for a message that nobody reads, and a fake has nothing to print.
#pragma once

#include "python/cpython/handles.h"

namespace oxy::python {

// What is to be called in the place of `function`: the overload where it is a packet and one takes
// the arguments, else `function` itself. `kwargs` may be null.
py::object overload_of(py::handle function, const py::tuple& args, py::handle kwargs);

}  // namespace oxy::python
