// Code around a graph break: run what is compiled, execute the one instruction that breaks, go on
// in a function that starts in the middle of the original.
//
// Frames of generators are not left like this, but there is code for a generator that stands at a
// yield. An exception that is being handled travels like a value on the stack, in the place of what
// POP_EXCEPT takes; of the three values that this is in 3.10 the upper one, with NULLs below it.
// Naming any of a call's KW_NAMES, PRECALL (of 3.11) and CALL means all, and so does any of
// MAKE_FUNCTION and the SET_FUNCTION_ATTRIBUTEs (of 3.13) behind it.
#pragma once

#include "python/bytecode/code.h"

namespace oxy::python {

// The stack and the locals that a frame has in front of an instruction.
struct FrameState {
  std::vector<bool> null_on_stack;  // an entry for each place of the stack, bottom first
  std::vector<int> handling;        // places of the stack that POP_EXCEPT takes; never NULL
  std::vector<int> tracebacks;      // of 3.10: those with such an exception's traceback; NULL here
  std::vector<int> locals;  // slots that are live and bound; every cell that is there is among them
  size_t value_count() const;  // of the stack and the locals
  friend auto operator<=>(const FrameState&, const FrameState&) = default;
};

// The call that an instruction belongs to, [first, last]; itself where it is no call.
struct InstructionGroup {
  int first = 0, last = 0;
};
InstructionGroup group_of(const Bytecode& bytecode, int index);

// A code object that goes on in the middle of another one, and where the other's parts are in it.
struct ResumeCode {
  PyCodeObject* code = nullptr;  // a new reference, nullptr with an exception set
  int start = 0;                 // the original's first instruction
  std::vector<int> slots;        // of the original's slots
  std::string name;              // of its function: __resume_at_<offset>_<number>
};

// It bears the name of `code`: tracebacks and log messages name the user's function. Its positional
// arguments: the values on the stack that are not NULL, then the locals, cells as cell objects. Its
// closure is given like that too: make_function.
ResumeCode make_resume_code(PyCodeObject* code, const Bytecode& bytecode, int index,
                            const FrameState& state, int number);

// Of a generator that stands at the YIELD_VALUE `index` of `code`, under its name; `state` is
// without what it yields. Its arguments are a resume code's. What it yields first is None, from
// that very instruction: then it stands where the other one stood.
PyCodeObject* make_generator_code(PyCodeObject* code, const Bytecode& bytecode, int index,
                                  const FrameState& state);

// A function of the code with empty cells (a resume code brings its own); `name` null: the code's.
PyObject* make_function(PyCodeObject* code, PyObject* globals, const char* name = nullptr);

struct GraphBreak {
  int index = 0;             // the instruction that breaks
  bool calls_top = false;    // instead of it: a call of what is on top of the stack, with its NULL
  FrameState before;         // what the frame has in front of it
  PyObject* next = nullptr;  // the resume function behind the instruction; nullptr: goes on here
  FrameState after_next;
  PyObject* target = nullptr;  // the same where it jumps to
  FrameState after_jump;
  int loop = -1;             // of the FOR_ITER of a loop around it that goes on here to its end
  PyObject* exit = nullptr;  // the resume function behind that; nullptr: goes on here
  FrameState after_exit;
};

// Code of a frame that is entered by a call. Its positional arguments: the slots of the original's
// parameters (* and ** among them), then `___inputs`, with which `compiled` is called; that gives a
// tuple like a resume's arguments. What the instruction raises goes to the original's handlers,
// which stand behind the new code.
PyCodeObject* make_break_code(PyCodeObject* code, const Bytecode& bytecode,
                              const GraphBreak& graph_break, PyObject* compiled);

// The same for a frame that is entered at the break: its arguments are a resume's.
PyCodeObject* make_inner_break_code(PyCodeObject* code, const Bytecode& bytecode,
                                    const GraphBreak& graph_break);

// What an instruction leaves on the stack on each way, from what was there.
std::vector<bool> nulls_after(const Bytecode& bytecode, int index, const FrameState& before,
                              bool jumps);

// FrameState::handling and FrameState::tracebacks after an instruction; `depth` of the stack before
// it.
std::vector<int> handling_after(const Bytecode& bytecode, int index, std::vector<int> before,
                                size_t depth);
std::vector<int> tracebacks_after(const Bytecode& bytecode, int index, std::vector<int> before,
                                  size_t depth);

// A function of an exception: its class, itself, its traceback. By its way 3.10 makes an exception
// the one that is being handled. Borrowed.
PyObject* raised_parts();

}  // namespace oxy::python
