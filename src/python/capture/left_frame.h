// What a capture that stops in front of a break says of the frames that it leaves.
#pragma once

#include <memory>
#include <vector>

#include "python/bytecode/resume.h"
#include "python/cpython/handles.h"

namespace oxy::python {

// A frame that was left, in front of an instruction or in the middle of its call of the next frame.
struct LeftFrame {
  py::object function;
  PyCodeObject* code = nullptr;
  std::shared_ptr<const Bytecode> bytecode;
  int index = 0;
  FrameState state;  // of an outer frame: without what the call takes from the stack
  std::vector<std::vector<bool>> live;  // live_locals of its code
  std::vector<int> with_finalizer;      // slots that keep their values although they are dead
  int loop = -1;                        // Break::loop, of the innermost
};

}  // namespace oxy::python
