// The handlers of instructions (instructions.def). What one leaves in TracedFrame::result the frame
// returns or yields.
#pragma once

#include "python/capture/capture.h"

namespace oxy::python {

namespace instructions {
#define OXY_INSTRUCTION(opcode, handler) void handler(Capture&, TracedFrame&, const Instruction&);
#define OXY_STEP(opcode, statement)
#include "python/capture/instructions.def"
#undef OXY_INSTRUCTION
#undef OXY_STEP
}  // namespace instructions

// A function of the module operator, or builtins.
py::object operator_named(const char* name);
py::object builtin_named(const char* name);
// The name, or the constant, that the instruction's argument is the number of.
py::handle name_in_code(const TracedFrame& f, const Instruction& i);
py::object constant_in_code(const TracedFrame& f, const Instruction& i);
void jump_if(TracedFrame& f, const Instruction& i, bool jumps);

}  // namespace oxy::python
