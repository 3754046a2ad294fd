// A number that a graph takes as a tensor without dimensions, so that another value needs no other
// graph: an argument or an attribute that was seen to vary, or what Python computes from such
// numbers.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/utils/pybind.h>

#include <optional>
#include <span>
#include <vector>

namespace oxy::python {

namespace py = pybind11;

// Either a constant, or something that a hit fetches, or what a function of the module `operator`
// gives for the parts.
struct NumberTree {
  py::object constant, function;
  uint32_t fetched = 0;  // position among what the guards fetched
  std::vector<NumberTree> parts;

  // Null where Python raises: nothing is left of the exception.
  py::object value(std::span<PyObject* const> objects) const;
  void shift(uint32_t by);                         // all positions
  int traverse(visitproc visit, void* arg) const;  // as tp_traverse
};

struct NumberInput {
  uint32_t input;       // position among the graph's inputs
  at::ScalarType fits;  // of the tensor that it meets
  NumberTree number;
};

// f64 for a float, i64 for an int. Nothing where eager may refuse the value beside a tensor of
// dtype `fits`: it is out of that dtype's range.
std::optional<at::Tensor> number_as_tensor(py::handle number, at::ScalarType fits);

}  // namespace oxy::python
