// What isinstance and issubclass say of abstract classes, where a registration may change the
// answer.
#pragma once

#include <torch/csrc/utils/pybind.h>

namespace oxy::python {

namespace py = pybind11;

// Adds the abstract classes among `asked`, a class or a tuple of them, with which `type` may come
// to be registered.
void add_changeable(PyTypeObject* type, py::handle asked, std::vector<py::object>& out);

// An object whose attribute `answer` is issubclass(type, asked): the same object for the same
// classes, which it does not keep alive. They are asked again only where something was registered
// since.
py::object answer_of(PyTypeObject* type, py::handle asked);

}  // namespace oxy::python
