// How to make what a captured function returned, from the graph's outputs and what the guards fetched.
#pragma once

#include <torch/csrc/utils/pybind.h>

#include <span>
#include <vector>

namespace oxy::python {

namespace py = pybind11;

struct Rebuild {
  enum class Kind : uint8_t {
    Constant,  // `object` itself
    Output,    // `index`: position among the graph's outputs
    Fetched,   // `index`: position among what the guards fetched
    Tuple,
    List,
    Set,
    Dict,      // items: key, value, key, value ...
    Instance,  // of the class `object`: items: content (Tuple, List, Dict, or the constant None), then the __dict__ (Dict)
    Method,    // items: function, self
  };
  Kind kind = Kind::Constant;
  uint32_t index = 0;
  py::object object;
  std::vector<Rebuild> items;

  py::object build(std::span<const py::object> outputs, std::span<PyObject* const> fetched) const;
};

}  // namespace oxy::python
