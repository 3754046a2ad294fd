// A graph inside of the graph that a capture makes (inner_graphs.cpp).
#pragma once

#include <unordered_map>

#include "python/capture/capture.h"
#include "python/replay.h"

namespace oxy::python {

struct InnerGraph {
  InnerGraph(size_t number, InnerGraph* around, const bridge::Recorder& recorder_around)
      : number(number), around(around), recorder(options_of_region(recorder_around)) {}
  const size_t number;  // from 1
  InnerGraph* const around;
  std::shared_ptr<TorchIr> ir = std::make_shared<TorchIr>();
  bridge::Recorder recorder;
  std::unordered_map<PyObject*, py::object> lifted;  // tensors of the graph around it: their inputs
  std::vector<py::object> given;                     // to the inputs, in the graph around it
};

}  // namespace oxy::python
