// Where a frame that starts in the middle keeps the original's slots: the arguments, then the other
// locals, then temporaries, then the cells and the free variables. No instruction makes the cells,
// and the closure given at its making is overwritten: both arrive as arguments.
#pragma once

#include <string>
#include <vector>

#include "python/bytecode/code_builder.h"
#include "python/bytecode/resume.h"

namespace oxy::python {

class ResumeLayout {
 public:
  ResumeLayout(PyCodeObject* code, const FrameState& state, int temporaries);

  // RESUME, then the state as it was.
  void restore_state(CodeBuilder& builder) const;
  PyCodeObject* make(const Bytecode& bytecode, PyObject* name, PyObject* qualified_name,
                     PyObject* constants) const;

  const std::vector<int>& moved() const { return moved_; }
  int first_temporary() const { return first_temporary_; }

 private:
  void place_arguments();
  void place_first();
  void place_others(int temporaries);

  PyCodeObject* code_;
  const FrameState& state_;
  bool keeps_first_;
  std::vector<int> moved_;     // where each slot of the original is now
  std::vector<int> incoming_;  // the argument that brings each of state_.locals
  std::vector<std::string> variables_, cells_, frees_;
  int arguments_ = 0, first_temporary_ = 0;
  int cells_apart_ = 0;  // cells without an argument of their name
};

}  // namespace oxy::python
