// What tests see of taking code apart and putting it together. Of Python's own interface alone, so
// that it can be built and tested for a Python without torch.
#pragma once

#include <Python.h>

namespace oxy::python {

// All take a code object; offsets are in bytes.
//   bytecode_round_trip   the code object, taken apart and put together
//   bytecode_text         to_text()
//   bytecode_instructions [(offset, name, argument, offset of the jump's target or None, (line,
//                         end_line, column, end_column) with None for what is not there)]
//   bytecode_ranges       [(start, end, target, depth, push_lasti)]
//   bytecode_depths       [(offset, depth of the stack in front of it)] of what can be reached
//   bytecode_live         [(offset, [names of the live locals])]
extern PyMethodDef bytecode_functions[];

}  // namespace oxy::python
