// Carrying out a rebuild.
#include "python/capture/rebuild.h"

#include "python/cpython/thread_state.h"
#include "python/cpython/types.h"
#include "support/check.h"

namespace oxy::python {
namespace {

using Built = std::span<const py::object>;

py::tuple built_tuple(const std::vector<uint32_t>& parts, Built built) {
  py::tuple out(parts.size());
  for (size_t i = 0; i < parts.size(); i++) out[i] = built[parts[i]];
  return out;
}

// CPython's own class that `type` is derived from.
PyTypeObject* own_base(PyTypeObject* type) {
  while (is_changeable_class(type)) type = type->tp_base;
  return type;
}

// As the class written in C has the method: a derived class's own has run at the capture.
void call_own(PyObject* target, const char* name, py::handle argument = {}) {
  auto* base = reinterpret_cast<PyObject*>(own_base(Py_TYPE(target)));
  py::object method = steal(PyObject_GetAttrString(base, name));
  steal(PyObject_CallFunctionObjArgs(method.ptr(), target, argument.ptr(), nullptr));
}

py::object make(const RebuildStep& s, Built outputs, std::span<PyObject* const> fetched,
                Built built) {
  switch (s.kind) {
    case RebuildStep::Kind::Constant:
      return s.object;
    case RebuildStep::Kind::Output:
      return outputs[s.index];
    case RebuildStep::Kind::Fetched:
    case RebuildStep::Kind::Size:
      return borrow(fetched[s.index]);
    case RebuildStep::Kind::Tuple: {
      py::tuple items = built_tuple(s.parts, built);
      auto* type = as_type(s.object);
      if (type == &PyTuple_Type) return std::move(items);
      return steal(PyTuple_Type.tp_new(type, py::make_tuple(items).ptr(), nullptr));
    }
    case RebuildStep::Kind::Call:
      return steal(PyObject_CallObject(s.object.ptr(), built_tuple(s.parts, built).ptr()));
    case RebuildStep::Kind::List:
      return py::list();
    case RebuildStep::Kind::Set:
      return py::set();
    case RebuildStep::Kind::Dict:
      return py::dict();
    case RebuildStep::Kind::Cell:
      return steal(PyCell_New(nullptr));
    case RebuildStep::Kind::Instance: {
      auto* type = as_type(s.object);
      return steal(own_base(type)->tp_new(type, built_tuple(s.parts, built).ptr(), nullptr));
    }
    case RebuildStep::Kind::DictOf:
      return steal(PyObject_GenericGetDict(built[s.parts[0]].ptr(), nullptr));
    case RebuildStep::Kind::Iterator: {
      py::object iterator = steal(PyObject_GetIter(built[s.parts[0]].ptr()));
      for (uint32_t i = 0; i < s.index; i++) steal(PyIter_Next(iterator.ptr()));
      return iterator;
    }
  }
  OXY_FAIL("a rebuild step of unknown kind");
}

// OrderedDict keeps its order apart: its own item assignment.
int set_item(PyObject* dict, PyObject* key, PyObject* value) {
  if (PyODict_Check(dict))
    return value ? PyODict_SetItem(dict, key, value) : PyODict_DelItem(dict, key);
  return value ? PyDict_SetItem(dict, key, value) : PyDict_DelItem(dict, key);
}

int set_attribute(PyObject* o, PyObject* name, PyObject* value) {
  return PyType_Check(o) ? PyType_Type.tp_setattro(o, name, value)
                         : PyObject_GenericSetAttr(o, name, value);
}

void write(const RebuildWrite& w, Built built) {
  PyObject* target = built[w.target].ptr();
  auto part = [&](size_t i) { return built[w.parts[i]].ptr(); };
  switch (w.kind) {
    case RebuildWrite::Kind::ListExtend:
      for (size_t i = 0; i < w.parts.size(); i++) check(PyList_Append(target, part(i)));
      return;
    case RebuildWrite::Kind::ListSplice:
      return check(
          PyList_SetSlice(target, w.from, w.to, py::list(built_tuple(w.parts, built)).ptr()));
    case RebuildWrite::Kind::SetAdd:
      for (size_t i = 0; i < w.parts.size(); i++) check(PySet_Add(target, part(i)));
      return;
    case RebuildWrite::Kind::SetDiscard:
      for (size_t i = 0; i < w.parts.size(); i++) check(PySet_Discard(target, part(i)));
      return;
    case RebuildWrite::Kind::SetPop:
      steal(PySet_Pop(target));
      return;
    case RebuildWrite::Kind::DequeAssign:
      call_own(target, "clear");
      [[fallthrough]];
    case RebuildWrite::Kind::Extend:
      return call_own(target, "extend", built_tuple(w.parts, built));
    case RebuildWrite::Kind::CellSet:
      return check(PyCell_Set(target, w.parts.empty() ? nullptr : part(0)));
    case RebuildWrite::Kind::DictSet:
      for (size_t i = 0; i < w.parts.size(); i += 2) check(set_item(target, part(i), part(i + 1)));
      return;
    case RebuildWrite::Kind::DictDelete:
      for (size_t i = 0; i < w.parts.size(); i++) check(set_item(target, part(i), nullptr));
      return;
    case RebuildWrite::Kind::AttributeSet:
      return check(set_attribute(target, part(0), part(1)));
    case RebuildWrite::Kind::AttributeDelete:
      if (set_attribute(target, part(0), nullptr) == 0) return;
      if (!PyErr_ExceptionMatches(PyExc_AttributeError)) throw py::error_already_set();
      PyErr_Clear();  // it had been written and deleted
      return;
    case RebuildWrite::Kind::DictClear:
      return call_own(target, "clear");
    case RebuildWrite::Kind::State: {
      const Unwarned unwarned;
      return call_own(target, "__setstate__", built[w.parts[0]]);
    }
    case RebuildWrite::Kind::Call:
      steal(PyObject_Call(target, built_tuple(w.parts, built).ptr(), nullptr));
      return;
    case RebuildWrite::Kind::Advance:
      for (Py_ssize_t i = 0; i < w.from; i++)
        if (!owned(PyIter_Next(target))) break;
      if (PyErr_Occurred()) throw py::error_already_set();
      return;
    case RebuildWrite::Kind::Exception:
      if (part(0) != Py_None) PyException_SetCause(target, Py_NewRef(part(0)));
      if (part(1) != Py_None)
        PyException_SetContext(target, Py_NewRef(part(1)));
      else if (part(4) == Py_True)
        PyException_SetContext(target, handled_exception());
      reinterpret_cast<PyBaseExceptionObject*>(target)->suppress_context = part(2) == Py_True;
      if (part(3) != Py_None) check(PyException_SetTraceback(target, part(3)));
      return;
  }
  OXY_FAIL("a rebuild write of unknown kind");
}

}  // namespace

std::vector<py::object> Rebuild::build(Built outputs, std::span<PyObject* const> fetched) const {
  std::vector<py::object> built;
  built.reserve(steps.size());
  bool late_ones = false;
  for (const RebuildStep& s : steps) {
    late_ones |= s.late;
    built.push_back(s.late ? py::object() : make(s, outputs, fetched, built));
  }
  for (const RebuildWrite& w : fills) write(w, built);
  for (size_t i = 0; late_ones && i < steps.size(); i++)
    if (steps[i].late) built[i] = make(steps[i], outputs, fetched, built);
  for (const RebuildWrite& w : late) write(w, built);
  return built;
}

void Rebuild::apply(Built built) const {
  for (const RebuildWrite& w : effects) write(w, built);
}

int Rebuild::traverse(visitproc visit, void* arg) const {
  for (const RebuildStep& s : steps) Py_VISIT(s.object.ptr());
  return 0;
}

}  // namespace oxy::python
