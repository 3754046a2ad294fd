// Answers as objects that ask again when a registration has changed something.
#include "python/capture/classes.h"
#include "python/cpython/boundary.h"

namespace oxy::python {
namespace {

struct Answer {
  PyObject_HEAD;
  PyObject *type, *asked;   // weak references
  PyObject* registrations;  // how many there were when it was asked; null: never
  PyObject* answer;
};

PyObject* ask(PyObject* o) {
  auto* self = reinterpret_cast<Answer*>(o);
  const auto now = owned(PyObject_CallNoArgs(member_of<"_abc", "get_cache_token">().ptr()));
  if (!now) return nullptr;
  if (self->registrations != nullptr) {
    const int same = PyObject_RichCompareBool(now.ptr(), self->registrations, Py_EQ);
    if (same != 0) return same < 0 ? nullptr : Py_NewRef(self->answer);
  }
  const py::object type = borrow(PyWeakref_GetObject(self->type));
  const py::object asked = borrow(PyWeakref_GetObject(self->asked));
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
  return as_type(type);
}

py::object make_answer(PyTypeObject* type, py::handle asked) {
  py::object made = steal(answer_type()->tp_alloc(answer_type(), 0));
  auto* answer = reinterpret_cast<Answer*>(made.ptr());
  answer->type = py::weakref((PyObject*)type).release().ptr();
  answer->asked = py::weakref(asked).release().ptr();
  return made;
}

}  // namespace

void add_changeable(PyTypeObject* type, py::handle asked, std::vector<py::object>& out) {
  if (PyTuple_Check(asked.ptr())) {
    for (py::handle one : asked) add_changeable(type, one, out);
  } else if (PyType_Check(asked.ptr()) &&
             PyObject_TypeCheck(asked.ptr(), as_type(member_of<"abc", "ABCMeta">())) &&
             !PyType_IsSubtype(type, as_type(asked))) {
    out.push_back(borrow(asked));
  }
}

py::object answer_of(PyTypeObject* type, py::handle asked) {
  const py::object& weak = member_of<"weakref", "WeakKeyDictionary">();
  static const py::object& answers = *new py::object(weak());
  const py::object of_asked = answers.attr("setdefault")(asked, weak());
  const py::handle key((PyObject*)type);
  const py::object known = of_asked.attr("get")(key);
  if (!known.is_none()) return known;
  py::object made = make_answer(type, asked);
  of_asked.attr("__setitem__")(key, made);
  return made;
}

}  // namespace oxy::python
