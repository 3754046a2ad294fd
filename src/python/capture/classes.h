// Class statements, and the names of their bodies.
#pragma once

#include <unordered_map>

#include "python/capture/frames.h"

namespace oxy::python {

class Classes : public Part {
 public:
  using Part::Part;

  py::object load_build_class(const TracedFrame& frame);
  py::object build_class(Arguments args, Keywords kwargs);
  py::object make_class(py::handle metaclass, const Arguments& args, const Keywords& kwargs);
  py::object make_dataclass(py::handle maker, const Arguments& args, const Keywords& kwargs);
  bool is_made_class(py::handle type) const { return made_classes_.contains(type.ptr()); }
  SourceId member_source(py::handle type, py::handle name);
  void refuse_made_class(py::handle o) const;
  py::object load_name(TracedFrame& frame, py::handle name);
  void store_name(TracedFrame& frame, py::handle name, py::handle value);

 private:
  struct MadeClass {
    std::vector<size_t> steps;  // where a capture may stop in front of it
    UserStack stack;
  };

  py::object run_class_body(const py::object& body, py::object names);
  void add_made_class(const py::object& made);
  void refuse_class_hooks(py::handle bases, py::handle names);

  std::unordered_map<PyObject*, MadeClass> made_classes_;
};

// abstract_classes.cpp: what isinstance and issubclass say of abstract classes, where a registration
// may change the answer.

// Adds the abstract classes among `asked`, a class or a tuple of them, with which `type` may come
// to be registered.
void add_changeable(PyTypeObject* type, py::handle asked, std::vector<py::object>& out);

// An object whose attribute `answer` is issubclass(type, asked): the same object for the same
// classes, which it does not keep alive. They are asked again only where something was registered
// since.
py::object answer_of(PyTypeObject* type, py::handle asked);

}  // namespace oxy::python
