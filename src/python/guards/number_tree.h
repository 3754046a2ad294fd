// A number that a hit computes of what its guards have fetched, as captured code has computed it.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "python/cpython/handles.h"

namespace oxy::python {

// A constant, or something that a hit fetches and that was seen to vary, or a size, or what a
// function of the modules `operator`, `math` and `builtins` gives for the parts.
struct NumberTree {
  py::object constant, function;
  uint32_t fetched = 0;  // position among what the guards fetched
  bool size = false;     // among the sizes behind that, until the capture ends
  std::vector<NumberTree> parts;

  bool depends_on_sizes() const;
  bool is_same(const NumberTree& other) const;
  // Null where Python raises: nothing is left of the exception.
  py::object value(std::span<PyObject* const> objects) const;
  void shift(uint32_t by, uint32_t sizes_by);      // all positions
  int traverse(visitproc visit, void* arg) const;  // as tp_traverse
};

// What captured code has asked about such a number (`math.sqrt(n) > 1.3`, `int(math.log(n))`)
// where no expression of the sizes has the answer: other answers are another capture.
struct NumberGuard {
  NumberTree question;
  py::object answer;  // a bool or an int; none where it is enough that Python does not raise
  std::string text, where;

  bool holds(std::span<PyObject* const> objects) const;
};

}  // namespace oxy::python
