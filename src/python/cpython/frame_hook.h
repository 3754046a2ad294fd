// The evaluator of frames (PEP 523): who sees a Python function's frame before it runs.
#pragma once

#include <Python.h>

namespace oxy::python {

// Called with a frame that is about to run: its function and its bound parameters (positional ones,
// keyword-only ones, then the tuple of * and the dict of **; owned by the frame; null where a
// generator goes on). Returns whether it has dealt with the frame, from which it may have taken the
// parameters then, with nullptr in their places; `result` is then what the frame returns, or
// nullptr with an exception set. What it throws is the frame's exception.
using FrameHandler = bool (*)(PyFunctionObject* function, PyObject** parameters, PyObject*& result);

// From now on the handler sees the frames of every thread, until as many `remove_frame_handler`
// have followed on this one; the evaluator that was there before runs the frames that it does not
// deal with. Frames of a thread that is deep in such frames it sees only if it has to see `every`
// one. Needs the GIL.
void add_frame_handler(FrameHandler handler, bool every = false);
void remove_frame_handler(bool every = false);
// One that stays.
void add_lasting_frame_handler(FrameHandler handler);
// In a process that was forked, which has no other threads.
void forget_handlers_of_other_threads();

}  // namespace oxy::python
