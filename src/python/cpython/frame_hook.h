// The evaluator of frames (PEP 523): who sees a Python function's frame before it runs.
#pragma once

#include <Python.h>

namespace oxy::python {

// Called with a frame that is about to run: its function and its bound parameters (positional ones, keyword-only ones, then
// the tuple of * and the dict of **; owned by the frame; null where a generator goes on). Returns whether it has dealt with
// the frame, from which it may have taken the parameters then, with nullptr in their places; `result` is then what the frame returns, or nullptr with an exception set.
using FrameHandler = bool (*)(PyFunctionObject* function, PyObject** parameters, PyObject*& result);

// From now on the handler sees the frames of every thread, until as many `remove_frame_handler` have followed; the evaluator
// that was there before runs the frames that it does not deal with. Needs the GIL.
void add_frame_handler(FrameHandler handler);
void remove_frame_handler();

}  // namespace oxy::python
