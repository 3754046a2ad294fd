// Why a capture cannot go on.
#pragma once

#include <stdexcept>

#include "ir/graph.h"
#include "python/cpython/handles.h"
#include "support/text.h"

namespace oxy::python {

enum class BreakId : uint8_t {
#define OXY_BREAK(id, message, hint) id,
#include "python/capture/breaks.def"
#undef OXY_BREAK
};

// Capture cannot go on. what(): message, detail and hint; the user's stack with it.
class Break : public std::runtime_error {
 public:
  Break(BreakId id, const std::string& detail);
  template <class A, class B, class... More>
  Break(BreakId id, const A& a, const B& b, const More&... more) : Break(id, cat(a, b, more...)) {}
  BreakId id;
  std::vector<ir::Frame> stack;
  std::vector<size_t> steps;  // where a capture may stop instead, the latest first
  // Sizes or numbers that come next depend on data. In a loop of the innermost frame each round
  // would be captured for itself: the loop whose FOR_ITER is at this instruction is better left to
  // eager.
  bool of_sizes = false;
  // torch has raised on tensors without data: where eager raises too, that is the user's error.
  bool of_torch = false;
  int loop = -1;
  bool weak = false;  // weak references are made
  // The call of a package's function that it is in is left to eager from now on: the capture starts
  // again.
  bool leaves_call = false;
};

// Where captured code stood.
struct Place {
  std::vector<ir::Frame> stack;
  std::vector<size_t> steps;  // in front of which a capture may stop instead, the latest first

  // No graph can have what was done there.
  [[noreturn]] void refuse(BreakId id, const std::string& why) const;
};

// A signal handler has raised. The captured code does not get to handle that.
struct Interrupted {
  py::error_already_set error;
};

// Of a capture that is to start again: the choice or loop of torch's at this step cannot be in the
// graph.
struct LeftAlone {
  size_t step;
  std::string why;
};

// Of a capture that is to start again: hooks of tensors have effects, or their handles live on.
struct HooksLate {};

}  // namespace oxy::python
