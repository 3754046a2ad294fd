// Code around a graph break: run what is compiled, execute the one instruction that breaks, go on in
// a function that starts in the middle of the original.
//
// Frames of generators and places within an except block (an exception is being handled) are not
// for this. A call of 3.11 is KW_NAMES PRECALL CALL in one; naming any of them means all.
#pragma once

#include <string>
#include <vector>

#include "python/bytecode/code.h"

namespace oxy::python {

// The stack and the locals that a frame has in front of an instruction.
struct FrameState {
  std::vector<bool> null_on_stack;  // an entry for each place of the stack, bottom first
  std::vector<int> locals;          // slots that are live and bound; every cell is among them
};

// `__resume_at_<offset>_<number>`. Its positional arguments: the values on the stack that are not
// NULL, then the locals, cells as cell objects. Its cells are free variables: make_function.
PyCodeObject* make_resume_code(PyCodeObject* code, const Bytecode& bytecode, int index,
                               const FrameState& state, int number);

// A function of the code, its closure empty cells (a resume code brings its own).
PyObject* make_function(PyCodeObject* code, PyObject* globals);

struct GraphBreak {
  int index = 0;                 // the instruction that breaks
  PyObject* compiled = nullptr;  // called with `inputs`; gives a tuple like a resume's arguments
  std::vector<int> inputs;       // slots; cells as cell objects
  FrameState before;             // what the tuple holds
  PyObject* next = nullptr;      // the resume function behind the instruction
  FrameState after_next;
  PyObject* target = nullptr;  // the one where it jumps to
  FrameState after_jump;
};

// Code with the original's signature that does all this. What the instruction raises goes to the
// original's handlers, which stand behind the new code.
PyCodeObject* make_break_code(PyCodeObject* code, const Bytecode& bytecode,
                              const GraphBreak& graph_break);

}  // namespace oxy::python
