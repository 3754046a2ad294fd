// The value stack of a frame that is interpreted, and the handlers of its instructions
// (instructions.def). What one leaves in TracedFrame::result the frame returns or yields.
#pragma once

#include <iterator>

#include "python/capture/capture.h"
#include "python/cpython/opcodes.h"

namespace oxy::python {

inline void push(TracedFrame& f, py::object o) { f.stack.push_back(std::move(o)); }

inline py::object pop(TracedFrame& f) {
  py::object o = std::move(f.stack.back());
  f.stack.pop_back();
  return o;
}

inline Arguments pop_many(TracedFrame& f, size_t n) {
  Arguments out(std::make_move_iterator(f.stack.end() - static_cast<ptrdiff_t>(n)),
                std::make_move_iterator(f.stack.end()));
  f.stack.resize(f.stack.size() - n);
  return out;
}

inline py::object& peek(TracedFrame& f, size_t n) { return f.stack[f.stack.size() - n]; }

// What is to be called, with its NULL.
inline void push_callable(TracedFrame& f, py::object o) {
  if (!kNullFollows) push(f, {});
  push(f, std::move(o));
  if (kNullFollows) push(f, {});
}

inline void jump_if(TracedFrame& f, const Instruction& i, bool jumps) {
  if (jumps) f.next = static_cast<size_t>(i.target);
}

// The truth that a jump asks for, which jumps where it is `jumps`. Of a tensor that is no number
// yet, the one that leads to no exception, where the other one does: each call checks it.
bool decided(Capture& c, TracedFrame& f, const Instruction& i, bool jumps);

// Raises an exception of the captured code's.
[[noreturn]] inline void raise_value(py::handle value) {
  raise_with(reinterpret_cast<PyObject*>(Py_TYPE(value.ptr())), value);
}

// The same for one that is on its way already, or thrown into a generator: its context stays.
[[noreturn]] inline void reraise_value(py::handle value) {
  PyErr_Restore(Py_NewRef(reinterpret_cast<PyObject*>(Py_TYPE(value.ptr()))),
                Py_NewRef(value.ptr()), PyException_GetTraceback(value.ptr()));
  throw py::error_already_set();
}

namespace instructions {
#define OXY_INSTRUCTION(opcode, handler) void handler(Capture&, TracedFrame&, const Instruction&);
#define OXY_STEP(opcode, statement)
#include "python/capture/instructions.def"
#undef OXY_INSTRUCTION
#undef OXY_STEP
// Pushes the items of what is on the stack: `before` of them, a list of the rest where one is asked
// for, `after` of them.
void unpack(Capture& c, TracedFrame& f, uint32_t before, bool rest, uint32_t after);
// f"{o!s}", by CONVERT_VALUE's argument; f"{o:spec}".
py::object converted(Capture& c, py::object o, uint32_t conversion);
py::object formatted(Capture& c, py::object o, const py::object& spec);
}  // namespace instructions

}  // namespace oxy::python
