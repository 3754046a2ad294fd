// Captured graphs run op by op in torch, and the user's lines in what they raise.
#pragma once

#include "python/torch_ir.h"

namespace oxy::python {

// Calls every node in order. Where one raises and no argument was written, there is no result and
// torch is as it was: the function that was captured is to run instead, and raises as it does.
// After a write that would do it twice; then the exception has the node's user lines in its
// traceback.
std::optional<py::object> run_captured(const TorchIr& ir, py::handle args);

// Puts frames of the user's, (file, line, function) with the outermost first, in front of an
// exception's traceback.
void add_user_lines(py::handle exception, const py::list& frames);

}  // namespace oxy::python
