// What the parts of a capture have in common: each reaches the others through the capture.
#pragma once

#include <torch/csrc/utils/pybind.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "python/cpython/handles.h"

namespace oxy::python {

using Arguments = std::vector<py::object>;
using Keywords = std::vector<std::pair<py::object, py::object>>;

class Capture;
class Heap;
class Effects;
class Iterators;
class Numbers;
class Objects;
class Classes;
class Arrays;
class Calls;
class Frames;
class Graphs;

class Part {
 public:
  explicit Part(Capture& capture) : capture_(capture) {}
  Part(const Part&) = delete;
  Part& operator=(const Part&) = delete;

 protected:
  Heap& heap() const;
  Effects& effects() const;
  Iterators& iterators() const;
  Numbers& numbers() const;
  Objects& objects() const;
  Classes& classes() const;
  Arrays& arrays() const;
  Calls& calls() const;
  Frames& frames() const;
  Graphs& graphs() const;

  Capture& capture_;
};

}  // namespace oxy::python
