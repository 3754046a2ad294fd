// What stands for arrays and scalars of NumPy.
#pragma once

#include <unordered_map>

#include "python/capture/frames.h"

namespace oxy::python {

class Arrays : public Part {
 public:
  using Part::Part;

  py::object wrap_array(py::handle real, SourceId source);
  SourceId source_of_array(py::handle array) const;
  py::object array_over(py::handle tensor, const Arguments& args, const Keywords& kwargs);
  std::optional<py::object> call_numpy(py::handle callable, Arguments& args, Keywords& kwargs);
  py::object call_array_code(TracedFrame& frame);
  Arguments with_numbers(const Arguments& args);
  bool in_array_code() const;
  bool is_of_array_code(SourceId source) const;

  bool are_inputs() const { return has_array_inputs_; }

 private:
  std::unordered_map<PyObject*, SourceId> array_sources_;  // of arrays that were there before
  bool has_array_inputs_ = false;
};

}  // namespace oxy::python
