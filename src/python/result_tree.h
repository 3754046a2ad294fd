// The shape of what a compiled call returns: tensors among tuples, lists, dicts and constants.
#pragma once

#include <torch/csrc/utils/pybind.h>

#include <vector>

namespace oxy::python {

struct ResultTree {
  enum class Kind : uint8_t { Output, Constant, Tuple, List, Dict, NamedTuple };
  Kind kind = Kind::Constant;
  uint32_t output = 0;                 // Output: position among the flat outputs
  pybind11::object constant;           // Constant; NamedTuple: what makes one of a tuple
  std::vector<ResultTree> items;       // of containers
  std::vector<pybind11::object> keys;  // Dict

  // The Python object with these outputs at the leaves.
  pybind11::object build(const std::vector<pybind11::object>& outputs) const;
};

// Takes a returned object apart. Each tensor object gets one position in `tensors`, however often
// it is returned.
ResultTree take_apart(pybind11::handle result, std::vector<at::Tensor>& tensors);

}  // namespace oxy::python
