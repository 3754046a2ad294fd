#include "python/capture/rebuild.h"

#include "support/check.h"

namespace oxy::python {
namespace {

py::object steal(PyObject* o) {
  if (o == nullptr) throw py::error_already_set();
  return py::reinterpret_steal<py::object>(o);
}

// What the class's own code would have made: the content of its builtin base, then its attributes.
py::object build_instance(const Rebuild& r, std::span<const py::object> outputs,
                          std::span<PyObject* const> fetched) {
  auto* type = reinterpret_cast<PyTypeObject*>(r.object.ptr());
  py::object content = r.items[0].build(outputs, fetched);
  py::object made;
  if (PyTuple_Check(content.ptr())) {
    made = steal(PyTuple_Type.tp_new(type, py::make_tuple(content).ptr(), nullptr));
  } else {
    made = steal(type->tp_new(type, py::tuple().ptr(), nullptr));
  }
  if (PyDict_Check(content.ptr())) {
    // OrderedDict keeps its order apart: its own __setitem__.
    auto* base = type;
    while (base->tp_flags & Py_TPFLAGS_HEAPTYPE) base = base->tp_base;
    for (auto [key, value] : py::reinterpret_borrow<py::dict>(content)) {
      if (base->tp_as_mapping->mp_ass_subscript(made.ptr(), key.ptr(), value.ptr()) != 0)
        throw py::error_already_set();
    }
  } else if (PyList_Check(content.ptr())) {
    steal(PyObject_CallMethod(made.ptr(), "extend", "O", content.ptr()));
  }
  if (r.items[1].kind == Rebuild::Kind::Dict && !r.items[1].items.empty()) {
    py::object attributes = r.items[1].build(outputs, fetched);
    py::object dict = steal(PyObject_GenericGetDict(made.ptr(), nullptr));
    if (PyDict_Update(dict.ptr(), attributes.ptr()) != 0) throw py::error_already_set();
  }
  return made;
}

}  // namespace

py::object Rebuild::build(std::span<const py::object> outputs,
                          std::span<PyObject* const> fetched) const {
  auto item = [&](size_t i) { return items[i].build(outputs, fetched); };
  switch (kind) {
    case Kind::Constant:
      return object;
    case Kind::Output:
      return outputs[index];
    case Kind::Fetched:
      return py::reinterpret_borrow<py::object>(fetched[index]);
    case Kind::Tuple: {
      py::tuple out(items.size());
      for (size_t i = 0; i < items.size(); i++) out[i] = item(i);
      return std::move(out);
    }
    case Kind::List: {
      py::list out(items.size());
      for (size_t i = 0; i < items.size(); i++) out[i] = item(i);
      return std::move(out);
    }
    case Kind::Set: {
      py::set out;
      for (size_t i = 0; i < items.size(); i++) out.add(item(i));
      return std::move(out);
    }
    case Kind::Dict: {
      py::dict out;
      for (size_t i = 0; i < items.size(); i += 2) out[item(i)] = item(i + 1);
      return std::move(out);
    }
    case Kind::Instance:
      return build_instance(*this, outputs, fetched);
    case Kind::Method:
      return steal(PyMethod_New(item(0).ptr(), item(1).ptr()));
  }
  OXY_FAIL("a result of unknown kind");
}

}  // namespace oxy::python
