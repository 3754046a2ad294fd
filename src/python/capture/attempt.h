// One attempt at a capture of this thread, from a new Capture to its end.
#pragma once

#include <utility>

#include "torch_bridge/recorder.h"

namespace oxy::python {

struct Attempt {
  explicit Attempt(bool compiling)
      : is_compiling(compiling), outer_(std::exchange(current_, this)) {}
  ~Attempt() { current_ = outer_; }
  Attempt(const Attempt&) = delete;
  Attempt& operator=(const Attempt&) = delete;
  static Attempt& current() { return *current_; }

  const bool is_compiling;  // what torch.compiler.is_compiling says
  bool was_asked = false;
  const bridge::Heard before = bridge::heard();

 private:
  static inline thread_local Attempt* current_ = nullptr;
  Attempt* outer_;
};

// The capture has changed what it has read: it is to start again.
struct StartAgain {};

}  // namespace oxy::python
