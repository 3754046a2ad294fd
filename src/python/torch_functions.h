// Which functions torch has. Captured code runs much of torch's Python code as a whole, and C++
// code for the methods and operators of tensors: what a user puts in place of torch's own is part
// of torch's state (torch_state.def).
#pragma once

#include <Python.h>

#include <cstdint>

namespace oxy::python {

// A number for what torch.Tensor and torch.nn.Parameter have, and for the functions of the modules
// whose functions are called as a whole: equal for equal ones. Needs the GIL; a call looks at
// versions alone.
uint32_t torch_functions();

// Whether a user's function stands in place of one of torch's that torch itself may call: then
// torch's own Python code is interpreted like any other.
bool is_torch_patched();

// Whether a function, or a property, that torch has under some name was put there by a user.
bool is_put_by_user(PyObject* found);

}  // namespace oxy::python
