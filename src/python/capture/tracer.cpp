// The beginning and the end of a capture.
#include "python/capture/tracer.h"

#include "python/capture/names.h"
#include "python/cpython/thread_state.h"
#include "python/cpython/type_dict.h"
#include "python/inner_frames.h"
#include "python/replay.h"
#include "support/log.h"
#include "support/text.h"

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
    PyObject* found = PyDict_GetItemWithError(
        type_dict(reinterpret_cast<PyTypeObject*>(entry.ptr())), name.ptr());
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

Tracer::Tracer() : recorder_(std::make_unique<bridge::Recorder>(recorder_options())) {}
Tracer::~Tracer() = default;

UserStack Tracer::user_stack() const {
  if (frames_.empty()) return {};
  TracedFrame& f = *frames_.back();
  // What stands for NumPy is no place of the user's.
  if (is_array_code(reinterpret_cast<PyFunctionObject*>(f.function.ptr()))) return f.caller;
  if (f.placed != f.next) {
    const size_t at = f.next > 0 ? f.next - 1 : 0;
    f.place = UserStack(f.caller, f.code, f.bytecode->instructions[at].location.line);
    f.placed = f.next;
  }
  return f.place;
}

// The captured code itself: nothing else runs functions of the user's meanwhile.
py::object Tracer::interpret_alone(TracedFrame& frame) {
  const RefusedFrames refused;
  return interpret(frame);
}

void Tracer::run(py::handle function, std::span<const py::object> bound, size_t stop_at) {
  stop_at_ = stop_at;
  traces_source_ = log_enabled(Artifact::trace_source);
  auto* f = reinterpret_cast<PyFunctionObject*>(function.ptr());
  auto* code = reinterpret_cast<PyCodeObject*>(f->func_code);
  if (code->co_flags & (CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR))
    throw Break(BreakId::async_function, "the compiled function is a generator");
  const TorchModesGuard modes;
  handled_outside_ =
      static_cast<bool>(py::reinterpret_steal<py::object>(PyErr_GetHandledException()));
  const NothingHandled alone;  // what the caller deals with is no matter of the captured code's
  TracedFrame frame;
  frame.function = borrow(function.ptr());
  frame.code = code;
  frame.bytecode = bytecode_of(code);
  ir->code = borrow(f->func_code);
  frame.fast.resize(static_cast<size_t>(code->co_nlocalsplus));
  for (size_t i = 0; i < bound.size(); i++) {
    if (!bound[i]) continue;
    const auto name = borrow(PyTuple_GET_ITEM(code->co_localsplusnames, i)).cast<std::string>();
    const SourceId source = sources.local(static_cast<int64_t>(i), name);
    const bool unread = is_constant(bound[i].ptr()) || holds_varying(bound[i], source);
    frame.fast[i] = unread ? unread_argument(bound[i], source) : wrap(bound[i], source);
  }
  try {
    const py::object returned = interpret_alone(frame);
    frame.fast.clear();
    frame.stack.clear();
    close_dropped_iterators();
    finish({&returned, 1});
  } catch (const Stopped&) {}
}

// The ops heard underneath become the ATen graph of `ir`. Where that cannot be, replay will say why.
void Tracer::finish_recording(const std::vector<at::Tensor>& outputs) {
  if (!recorded_all_) return;
  auto captured = std::make_shared<CapturedRecording>();
  Recording& r = captured->recording;
  try {
    r.graph = recorder_->finish(outputs);
  } catch (const std::exception&) {
    recorder_->leave();
    return;
  }
  // Arrays that share memory do not look so: their tensors have storages of their own.
  if (has_array_inputs_ && !r.graph.mutations.empty() && example_inputs.size() > 1)
    throw Break(BreakId::numpy, "memory that arrays may share is written");
  r.graph.name = ir->graph.name;
  r.attributes = recorder_->attributes();
  r.visible_outputs = static_cast<uint32_t>(outputs.size());
  r.result.kind = ResultTree::Kind::Tuple;
  for (uint32_t i = 0; i < r.visible_outputs; i++) {
    ResultTree& leaf = r.result.items.emplace_back();
    leaf.kind = ResultTree::Kind::Output;
    leaf.output = i;
  }
  captured->inputs = example_inputs;
  captured->state = state_;
  ir->captured = std::move(captured);
}

}  // namespace oxy::python
