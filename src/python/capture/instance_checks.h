// What isinstance and issubclass say of objects and classes that the interpreter follows:
// metaclasses written in Python, classes registered with abc, protocols.
#pragma once

#include <optional>

#include "python/capture/capture.h"

namespace oxy::python {

// Each takes the two arguments of the builtin.
py::object is_instance(Capture& c, const Arguments& args);
// Nothing where the first is no class.
std::optional<py::object> is_subclass(Capture& c, const Arguments& args);

}  // namespace oxy::python
