// The handlers of instructions (instructions.def). What one leaves in TracedFrame::result the frame returns or yields.
#pragma once

#include "python/capture/capture.h"

namespace oxy::python {

namespace instructions {
#define OXY_INSTRUCTION(opcode, handler) void handler(Capture&, TracedFrame&, const Instruction&);
#include "python/capture/instructions.def"
#undef OXY_INSTRUCTION
}  // namespace instructions

// Runs the handler of the instruction; breaks where there is none.
void execute(Capture& t, TracedFrame& f, const Instruction& i);

// A function of the module operator, or builtins.
py::object operator_named(const char* name);
py::object builtin_named(const char* name);
// The name that the instruction's argument holds.
py::handle name_in_code(const TracedFrame& f, const Instruction& i);

}  // namespace oxy::python
