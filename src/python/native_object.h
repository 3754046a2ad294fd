// Types of Python's, written in C++, whose objects are called and take part in the collection of
// garbage.
#pragma once

#include <structmember.h>

#include <utility>
#include <vector>

#include "python/cpython/boundary.h"
#include "python/cpython/handles.h"

namespace oxy::python {

struct NativeHead {
  PyObject_HEAD vectorcallfunc vectorcall;
  PyObject* weakrefs;
};

// An object with a `State`, which holds nothing where it is made by default and has
// `int traverse(visitproc, void*) const`, as tp_traverse.
template <class State>
struct NativeObject {
  NativeHead head;
  State state;

  static State& of(PyObject* o) { return reinterpret_cast<NativeObject*>(o)->state; }

  // A new reference; nullptr with an exception set.
  static PyObject* make(PyTypeObject* type, vectorcallfunc call, State state) {
    auto* self = reinterpret_cast<NativeObject*>(type->tp_alloc(type, 0));
    if (self == nullptr) return nullptr;
    self->head.vectorcall = call;
    new (&self->state) State(std::move(state));
    return reinterpret_cast<PyObject*>(self);
  }

  // The type with these slots; nullptr with an exception set.
  static PyTypeObject* type(const char* name, std::vector<PyType_Slot> slots) {
    slots.insert(slots.end(), {{Py_tp_dealloc, reinterpret_cast<void*>(dealloc)},
                               {Py_tp_traverse, reinterpret_cast<void*>(traverse)},
                               {Py_tp_clear, reinterpret_cast<void*>(clear)},
                               {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
                               {0, nullptr}});
    PyType_Spec spec = {name, sizeof(NativeObject), 0,
                        Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
                        slots.data()};
    return reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
  }

 private:
  static int traverse(PyObject* o, visitproc visit, void* arg) {
    auto body = [=] {
      Py_VISIT(Py_TYPE(o));
      return of(o).traverse(visit, arg);
    };
    return boundary(body, 0);
  }

  static int clear(PyObject* o) {
    boundary([=] { const State gone = std::exchange(of(o), State()); });
    return 0;
  }

  static void dealloc(PyObject* o) {
    PyObject_GC_UnTrack(o);
    if (reinterpret_cast<NativeHead*>(o)->weakrefs != nullptr) PyObject_ClearWeakRefs(o);
    clear(o);
    boundary([=] { of(o).~State(); });
    PyTypeObject* type = Py_TYPE(o);
    type->tp_free(o);
    Py_DECREF(type);
  }
};

}  // namespace oxy::python
