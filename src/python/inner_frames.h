// Functions that a broken frame calls: they are compiled too, each on its own. The frame evaluator is ours only while such a
// frame runs.
#pragma once

#include "python/broken_call.h"

namespace oxy::python {

// While it lives, Python functions of the user's that this thread calls are compiled by way of the table; none with a null
// table.
class InnerFrames {
 public:
  explicit InnerFrames(std::shared_ptr<ResumeTable> table);
  ~InnerFrames();
  InnerFrames(const InnerFrames&) = delete;

 private:
  std::shared_ptr<ResumeTable> outer_;
  bool outer_none_;
};

// From now on the Python functions that any thread calls are compiled by way of the table, apart from torch's and ours:
// for tests of the front end with programs that know nothing of it.
void compile_every_frame(std::shared_ptr<ResumeTable> table);

// While it lives, this thread runs no Python function of the user's: a function written in C that calls one while a capture
// interprets gets an exception in its place, before it could do anything. Libraries' own functions run, and what audit hooks
// call. Garbage is collected later.
class RefusedFrames {
 public:
  explicit RefusedFrames(bool refused = true);  // false: it runs them again
  ~RefusedFrames();
  RefusedFrames(const RefusedFrames&) = delete;

 private:
  bool outer_;
  int outer_hooks_;
  int collecting_ = 0;
};
// The name of the function that was refused since this was last asked, or empty.
std::string take_refused();

// The next frame of this code on this thread runs as it is.
void leave_next_frame(PyObject* code);

// What holds the arguments of a call and lets go of them as soon as the frame that is called has them, so that what it
// drops dies there and then.
using Handed = std::vector<py::object>;
// As PyObject_Vectorcall, of a function written in Python. `handed` is empty once its frame runs.
PyObject* call_handing_over(PyObject* function, PyObject* const* args, size_t nargsf,
                            PyObject* kwnames, Handed& handed);

}  // namespace oxy::python
