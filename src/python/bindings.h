// The parts of the extension module; module.cpp calls each once.
#pragma once

#include <torch/csrc/utils/pybind.h>

namespace oxy::python {

namespace py = pybind11;

void bind_settings(pybind11::module_& m);
void bind_recording(pybind11::module_& m);
void bind_execution(pybind11::module_& m);
void bind_guards(pybind11::module_& m);
void bind_bytecode(pybind11::module_& m);

}  // namespace oxy::python
