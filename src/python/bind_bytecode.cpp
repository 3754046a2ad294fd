// The bytecode layer for its tests.
#include "python/bindings.h"
#include "python/bytecode/code.h"

namespace oxy::python {

namespace {

PyCodeObject* code_of(const py::object& object) {
  if (!PyCode_Check(object.ptr())) throw py::type_error("a code object is needed");
  return reinterpret_cast<PyCodeObject*>(object.ptr());
}

py::object round_trip(const py::object& object) {
  PyCodeObject* made = assemble(disassemble(code_of(object)), code_of(object));
  if (!made) throw py::error_already_set();
  return py::reinterpret_steal<py::object>(reinterpret_cast<PyObject*>(made));
}

std::string text(const py::object& object) {
  return to_text(disassemble(code_of(object)), code_of(object));
}

// [(offset, names of the live locals)] in the order of the code.
py::list live(const py::object& object) {
  PyCodeObject* code = code_of(object);
  Bytecode bytecode = disassemble(code);
  auto sets = live_locals(bytecode, code);
  py::list result;
  for (size_t at = 0; at < sets.size(); ++at) {
    py::list names;
    for (size_t slot = 0; slot < sets[at].size(); ++slot)
      if (sets[at][slot])
        names.append(py::handle(PyTuple_GET_ITEM(code->co_localsplusnames, slot)));
    result.append(py::make_tuple(bytecode.instructions[at].offset, names));
  }
  return result;
}

}  // namespace

void bind_bytecode(pybind11::module_& m) {
  m.def("bytecode_round_trip", &round_trip, py::arg("code"));
  m.def("bytecode_text", &text, py::arg("code"));
  m.def("bytecode_live", &live, py::arg("code"));
}

}  // namespace oxy::python
