// Modules that take the sizes of their parameters from their first input (torch.nn.LazyLinear).
//
// The first call changes what capture looks at: parameters, hooks, the module's class. torch's own
// modules read nothing of their input but its sizes, so what eager would do now is done for real,
// and the capture starts again on a module like any other. Random numbers are drawn in eager's
// order: an op of the graph that draws in front of it is a break.
#pragma once

#include "python/capture/capture.h"

namespace oxy::python {

// A call of LazyModuleMixin._infer_parameters(self, module, args, kwargs): throws StartAgain, or it
// is a call like any other.
void infer_parameters(Capture& t, py::handle callable, const Arguments& args);

}  // namespace oxy::python
