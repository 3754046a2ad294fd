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

// The next frame of this code on this thread runs as it is.
void leave_next_frame(PyObject* code);

}  // namespace oxy::python
