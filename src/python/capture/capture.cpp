// The beginning and the end of a capture.
#include "python/capture/capture.h"

#include "python/cpython/thread_state.h"
#include "python/cpython/type_dict.h"

namespace oxy::python {

bool is_unbound_native(PyObject* o) {
  return Py_TYPE(o) == &PyMethodDescr_Type || Py_TYPE(o) == &PyWrapperDescr_Type;
}

bool is_bound_method(PyObject* o) { return PyMethod_Check(o) || method_descriptor(o) != nullptr; }

PyObject* method_descriptor(PyObject* bound) {
  const bool is_slot = Py_TYPE(bound) == &_PyMethodWrapper_Type;
  if (!is_slot && (!PyCFunction_Check(bound) || PyCFunction_GET_SELF(bound) == nullptr))
    return nullptr;
  py::object name = steal(PyObject_GetAttrString(bound, "__name__"));
  py::object self = steal(PyObject_GetAttrString(bound, "__self__"));
  for (py::handle entry : borrow(Py_TYPE(self.ptr())->tp_mro)) {
    PyObject* found = PyDict_GetItemWithError(type_dict(as_type(entry)), name.ptr());
    if (found == nullptr ||
        Py_TYPE(found) != (is_slot ? &PyWrapperDescr_Type : &PyMethodDescr_Type))
      continue;
    if (py::handle(bound).equal(bind(found, self))) return found;
  }
  return nullptr;
}

py::object bind(PyObject* descriptor, py::handle self) {
  return steal(
      Py_TYPE(descriptor)
          ->tp_descr_get(descriptor, self.ptr(), reinterpret_cast<PyObject*>(Py_TYPE(self.ptr()))));
}

void Capture::run(py::handle function, std::span<const py::object> bound, size_t stop_at) {
  auto* f = as_function(function);
  auto* code = code_of(f);
  if (code->co_flags & (CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR))
    throw Break(BreakId::async_function, "the compiled function is a generator");
  const TorchModesGuard modes;
  frames.begin(stop_at);
  const NothingHandled alone;  // what the caller deals with is no matter of the captured code's
  TracedFrame frame(function);
  graphs.ir->code = borrow(f->func_code);
  for (size_t i = 0; i < bound.size(); i++) {
    if (!bound[i]) continue;
    const auto name = borrow(PyTuple_GET_ITEM(code->co_localsplusnames, i)).cast<std::string>();
    const SourceId source = heap.sources.local(static_cast<int64_t>(i), name);
    const bool deferred = is_constant(bound[i].ptr()) || numbers.holds_varying(bound[i], source);
    frame.fast[i] =
        deferred ? numbers.deferred_argument(bound[i], source) : heap.wrap(bound[i], source);
  }
  try {
    const py::object returned = frames.interpret_alone(frame);
    frame.fast.clear();
    frame.stack.clear();
    iterators.close_dropped_iterators();
    graphs.finish({&returned, 1});
  } catch (const Stopped&) {}
}

}  // namespace oxy::python
