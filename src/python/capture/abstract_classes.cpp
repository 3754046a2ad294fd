#include "python/capture/abstract_classes.h"

#include <vector>

#include "python/cpython/boundary.h"
#include "python/cpython/handles.h"

namespace oxy::python {
namespace {

struct Answer {
  PyObject_HEAD;
  PyObject *type, *asked;   // weak references
  PyObject* registrations;  // how many there were when it was asked; null: never
  PyObject* answer;
};

PyObject* ask(PyObject* o) {
  static const py::object& count =
      *new py::object(py::module_::import("_abc").attr("get_cache_token"));
  auto* self = reinterpret_cast<Answer*>(o);
  const auto now = py::reinterpret_steal<py::object>(PyObject_CallNoArgs(count.ptr()));
  if (!now) return nullptr;
  if (self->registrations != nullptr) {
    const int same = PyObject_RichCompareBool(now.ptr(), self->registrations, Py_EQ);
    if (same != 0) return same < 0 ? nullptr : Py_NewRef(self->answer);
  }
  const py::object type = py::reinterpret_borrow<py::object>(PyWeakref_GetObject(self->type));
  const py::object asked = py::reinterpret_borrow<py::object>(PyWeakref_GetObject(self->asked));
  if (type.is_none() || asked.is_none()) return Py_NewRef(Py_None);
  const int yes = PyObject_IsSubclass(type.ptr(), asked.ptr());
  if (yes < 0) return nullptr;
  Py_XSETREF(self->answer, PyBool_FromLong(yes));
  Py_XSETREF(self->registrations, Py_NewRef(now.ptr()));
  return Py_NewRef(self->answer);
}

PyObject* get_answer(PyObject* o, void*) {
  return boundary([=] { return ask(o); }, nullptr);
}

void drop(PyObject* o) {
  auto* self = reinterpret_cast<Answer*>(o);
  boundary([=] {
    Py_XDECREF(self->type);
    Py_XDECREF(self->asked);
    Py_XDECREF(self->registrations);
    Py_XDECREF(self->answer);
  });
  PyTypeObject* type = Py_TYPE(o);
  type->tp_free(o);
  Py_DECREF(type);
}

PyTypeObject* answer_type() {
  static PyGetSetDef members[] = {{"answer", get_answer, nullptr, nullptr, nullptr}, {}};
  static PyType_Slot slots[] = {
      {Py_tp_getset, members}, {Py_tp_dealloc, reinterpret_cast<void*>(drop)}, {0, nullptr}};
  static PyType_Spec spec = {"oxyfuel.IsSubclass", sizeof(Answer), 0,
                             Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};
  static PyObject* type = steal(PyType_FromSpec(&spec)).release().ptr();
  return reinterpret_cast<PyTypeObject*>(type);
}

py::object make_answer(PyTypeObject* type, py::handle asked) {
  py::object made = steal(answer_type()->tp_alloc(answer_type(), 0));
  auto* answer = reinterpret_cast<Answer*>(made.ptr());
  answer->type =
      steal(PyWeakref_NewRef(reinterpret_cast<PyObject*>(type), nullptr)).release().ptr();
  answer->asked = steal(PyWeakref_NewRef(asked.ptr(), nullptr)).release().ptr();
  return made;
}

}  // namespace

void add_changeable(PyTypeObject* type, py::handle asked, std::vector<py::object>& out) {
  static const py::object& meta = *new py::object(py::module_::import("abc").attr("ABCMeta"));
  if (PyTuple_Check(asked.ptr())) {
    for (py::handle one : asked) add_changeable(type, one, out);
  } else if (PyType_Check(asked.ptr()) &&
             PyObject_TypeCheck(asked.ptr(), reinterpret_cast<PyTypeObject*>(meta.ptr())) &&
             !PyType_IsSubtype(type, reinterpret_cast<PyTypeObject*>(asked.ptr()))) {
    out.push_back(py::reinterpret_borrow<py::object>(asked));
  }
}

py::object answer_of(PyTypeObject* type, py::handle asked) {
  static const py::object& weak =
      *new py::object(py::module_::import("weakref").attr("WeakKeyDictionary"));
  static const py::object& answers = *new py::object(weak());
  const py::object of_asked = answers.attr("setdefault")(asked, weak());
  const py::handle key(reinterpret_cast<PyObject*>(type));
  const py::object known = of_asked.attr("get")(key);
  if (!known.is_none()) return known;
  py::object made = make_answer(type, asked);
  of_asked.attr("__setitem__")(key, made);
  return made;
}

}  // namespace oxy::python
