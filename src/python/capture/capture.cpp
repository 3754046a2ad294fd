// The beginning and the end of a capture: its return, or a place in front of a break.
#include "python/capture/capture.h"

#include <c10/util/ScopeExit.h>
#include <torch/csrc/autograd/python_cpp_function.h>

#include "python/cpython/code_object.h"
#include "python/cpython/frames.h"
#include "python/cpython/thread_state.h"
#include "python/cpython/types.h"
#include "python/replay.h"
#include "python/transform_levels.h"

namespace oxy::python {
namespace {

// By BreakId: message and hint.
constexpr std::pair<const char*, const char*> kBreaks[] = {
#define OXY_BREAK(id, message, hint) {message, hint},
#include "python/capture/breaks.def"
#undef OXY_BREAK
};

std::string break_text(BreakId id, const std::string& detail) {
  const auto& [message, hint] = kBreaks[static_cast<size_t>(id)];
  return cat(message, detail.empty() ? "" : cat(" (", detail, ")"), "; hint: ", hint);
}

bool reads_own_frame(PyCodeObject* code) {
  for (const char* name :
       {"locals", "vars", "dir", "eval", "exec", "_getframe", "_getframemodulename"})
    for (py::handle used : borrow(code->co_names))
      if (is_text(used.ptr(), name)) return true;
  return false;
}

// Whether the instruction at `head` begins a loop that the one at `at`, behind it, belongs to.
bool is_loop_around(const TracedFrame& f, int head, int at) {
  const Instruction& i = f.bytecode->instructions[static_cast<size_t>(head)];
  return i.op == FOR_ITER && i.target > at;
}

}  // namespace

bool is_unbound_native(PyObject* o) {
  return Py_TYPE(o) == &PyMethodDescr_Type || Py_TYPE(o) == &PyWrapperDescr_Type;
}

bool is_bound_method(PyObject* o) { return PyMethod_Check(o) || method_descriptor(o) != nullptr; }

PyObject* method_descriptor(PyObject* bound) {
  const bool is_slot = is_method_wrapper(bound);
  const PyTypeObject* wanted = is_slot ? &PyWrapperDescr_Type : &PyMethodDescr_Type;
  if (!is_slot && (!PyCFunction_Check(bound) || PyCFunction_GET_SELF(bound) == nullptr))
    return nullptr;
  py::object name = steal(PyObject_GetAttrString(bound, "__name__"));
  py::object self = steal(PyObject_GetAttrString(bound, "__self__"));
  for (py::handle entry : borrow(Py_TYPE(self.ptr())->tp_mro)) {
    PyObject* found = PyDict_GetItemWithError(type_dict(as_type(entry)), name.ptr());
    if (found != nullptr && Py_TYPE(found) == wanted && py::handle(bound).equal(bind(found, self)))
      return found;
  }
  return nullptr;
}

py::object bind(PyObject* descriptor, py::handle self) {
  return steal(
      Py_TYPE(descriptor)->tp_descr_get(descriptor, self.ptr(), (PyObject*)Py_TYPE(self.ptr())));
}

void Capture::run(py::handle function, std::span<const py::object> bound, size_t stop_at) {
  auto* f = as_function(function);
  auto* code = code_of(f);
  if (code->co_flags & (CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR))
    throw Break(BreakId::async_function, "the compiled function is a generator");
  const TorchModesGuard modes;
  const TransformsGuard transforms;
  frames.begin(stop_at);
  draws.begin(bound.size());
  const auto undrawn = c10::make_scope_exit([this] { draws.end(); });
  const NothingHandled alone;  // what the caller deals with is no matter of the captured code's
  TracedFrame frame(function);
  graphs.ir->code = borrow(f->func_code);
  for (size_t i = 0; i < bound.size(); i++) {
    if (!bound[i]) continue;
    const auto name = borrow(slot_name(code, static_cast<int>(i))).cast<std::string>();
    const SourceId source = heap.sources.local(static_cast<int64_t>(i), name);
    const bool deferred = is_constant(bound[i].ptr()) || numbers.holds_varying(bound[i], source);
    frame.fast[i] = deferred ? numbers.defer(bound[i], source) : heap.wrap(bound[i], source);
  }
  frames.note_arguments(frame);
  try {
    const py::object returned = frames.interpret_alone(frame);
    frame.fast.clear();
    frame.stack.clear();
    iterators.close_dropped_iterators();
    graphs.finish({&returned, 1});
  } catch (const Stopped&) {}
}

Break::Break(BreakId id, const std::string& detail)
    : std::runtime_error(break_text(id, detail)), id(id) {}

void Place::refuse(BreakId id, const std::string& why) const {
  Break b(id, why);
  b.stack = stack;
  b.steps = steps;
  throw b;
}

// A frame can be left unless it is a generator's or the body of a class, and its callers as well,
// if the frame's result is just what their call gives.
std::vector<size_t> Frames::places_to_stop() const {
  if (closed_ > 0) return closed_steps_;
  std::vector<size_t> out;
  for (const TracedFrame* f : frames_) {
    if (!out.empty() && !f->direct) break;
    auto* function = as_function(f->function);
    // A frame of 3.10 has the traceback that an exception was caught with.
    if (kHasBlocks && std::ranges::any_of(f->handled, &TracedFrame::Handled::has_other_traceback))
      break;
    // What a transform of torch.func has wrapped is no value to anyone outside of it.
    if (is_of_transforms(function)) break;
    // The table of copy.deepcopy has ids as its keys, and what is left behind gets other ones when
    // it is made again. The dict that locals() has given is the frame's own.
    if ((f->code->co_flags & CO_GENERATOR) || f->names || f->locals ||
        is_text(function->func_module, "copy") || is_array_code(function))
      break;
    out.insert(out.begin(), f->step);
  }
  return out;
}

void Frames::close() {
  if (closed_ == 0) closed_steps_ = places_to_stop();
  closed_++;
}

void Frames::refuse_closed_end() const {
  if (closed_ == 0) return;
  Break b(BreakId::torch_call, "a mode of torch that does not end with the function");
  b.steps = closed_steps_;
  throw b;
}

// Where the code stands and what could be done there.
void Frames::place(Break& b) const {
  b.stack = user_stack().frames();
  b.weak = meets_weak;
  if (b.id != BreakId::frame_access && (b.id != BreakId::too_long || closed_ > 0))
    b.steps = places_to_stop();
  // The outermost loop of the innermost frame that a break stands in, if that frame can be left.
  const TracedFrame& f = *frames_.back();
  if (!b.of_sizes || b.steps.empty() || b.steps.front() != f.step || f.next == 0) return;
  const auto at = static_cast<int>(f.next) - 1;
  for (int head = 0; head <= at && b.loop < 0; head++)
    if (is_loop_around(f, head, at)) b.loop = head;
  if (b.loop < 0) return;
  if (auto it = f.loops.find(static_cast<size_t>(b.loop)); it != f.loops.end())
    b.steps.insert(b.steps.begin(), it->second);
}

static bool has_weak_references(PyObject* o) {
  return !PyType_Check(o) && PyType_SUPPORTS_WEAKREFS(Py_TYPE(o)) &&
         *PyObject_GET_WEAKREFS_LISTPTR(o) != nullptr;
}

// What has hooks and is known weakly to something in torch: a node of autograd's graph to its leaf,
// a module to its hooks of the backward and their handles.
static bool has_hooks_known_weakly(PyObject* o) {
  PyObject* module = member_of<"torch.nn", "Module">().ptr();
  return torch::autograd::THPCppFunction_Check(o) ||
         PyType_IsSubtype(Py_TYPE(o), reinterpret_cast<PyTypeObject*>(module)) != 0;
}

// `weakref.ref` and the like.
bool makes_weak_reference(py::handle callable) {
  const auto is_reference_type = [](PyObject* o) {
    return o != nullptr && PyType_Check(o) &&
           PyType_IsSubtype(reinterpret_cast<PyTypeObject*>(o), &_PyWeakref_RefType) != 0;
  };
  PyObject* p = callable.ptr();
  if (p == nullptr || !PyCFunction_Check(p)) return is_reference_type(p);
  return is_reference_type(PyCFunction_GET_SELF(p)) || module_of(callable) == "_weakref";
}

// Where a frame has one dict of them, each call brings it up to date.
py::object Frames::locals(TracedFrame& f) {
  if ((f.code->co_flags & CO_OPTIMIZED) == 0) throw Break(BreakId::frame_access, "locals");
  if (!f.locals || !kOneDictOfLocals) f.locals = py::dict();
  const py::dict named(f.locals);
  for (int slot = 0; slot < slot_count(f.code); slot++) {
    const py::handle name = slot_name(f.code, slot);
    py::object value = f.fast[static_cast<size_t>(slot)];
    if (value && is_cell(f.code, slot)) value = effects().read_cell(value);
    if (value)
      named[name] = value;
    else if (named.contains(name))
      PyDict_DelItem(named.ptr(), name.ptr());
  }
  return f.locals;
}

// The stack of a frame that is left, and the locals that live on, by `live` or since something runs
// when they die; their values are added to `values`.
FrameState Frames::state_left(const TracedFrame& f, const std::vector<bool>& live,
                              std::vector<py::object>& values, std::vector<int>& with_finalizer) {
  FrameState state;
  auto handled = f.handled.begin();
  for (const py::object& o : f.stack) {
    const size_t place = state.null_on_stack.size();
    state.null_on_stack.push_back(!o);
    if (handled != f.handled.end() && handled->place == place) {
      state.handling.push_back(static_cast<int>(place));
      values.push_back((handled++)->exception);
    } else if (o && o.is(traceback_mark())) {
      state.tracebacks.push_back(static_cast<int>(place));
      state.null_on_stack.back() = true;
    } else if (o) {
      values.push_back(o);
    }
  }
  const bool shows_all = reads_own_frame(f.code);
  for (int slot = 0; slot < slot_count(f.code); slot++) {
    const py::object& o = f.fast[static_cast<size_t>(slot)];
    if (!o) continue;
    // What Python runs when such a value dies, the end of a generator's body above all, comes when
    // the frame ends, and a weak reference tells until then. And `locals()` behind the break sees
    // them all.
    const bool lives = live[static_cast<size_t>(slot)] || is_cell(f.code, slot);
    const bool finalizer =
        shows_all || Py_TYPE(o.ptr())->tp_finalize != nullptr ||
        (!is_tensor_object(o.ptr()) && (meets_weak ? PyType_SUPPORTS_WEAKREFS(Py_TYPE(o.ptr()))
                                                   : has_weak_references(o.ptr()))) ||
        ends_late(o.ptr()) || has_hooks_known_weakly(o.ptr()) ||
        iterators().reaches_unfinished(o.ptr());
    if (!lives && !finalizer) continue;
    if (finalizer) with_finalizer.push_back(slot);
    state.locals.push_back(slot);
    values.push_back(o);
  }
  return state;
}

void Frames::stop() {
  std::vector<py::object> values;
  iterators().forget_reached();  // what is made here has changed, but does so no more
  for (const TracedFrame* f : frames_) {
    LeftFrame frame{f->function, f->code, f->bytecode, static_cast<int>(f->next), {}, {}, {}};
    if (f != frames_.back()) frame.index--;  // it is in its call
    const int first = group_of(*f->bytecode, frame.index).first;
    frame.live = live_locals(*f->bytecode, f->code);
    frame.state =
        state_left(*f, frame.live[static_cast<size_t>(first)], values, frame.with_finalizer);
    if (f == frames_.back() && loop_left >= 0 && loop_left <= frame.index &&
        is_loop_around(*f, loop_left, frame.index))
      frame.loop = loop_left;
    left.push_back(std::move(frame));
  }
  try {
    graphs().finish(values);
  } catch (const py::error_already_set& e) {  // captured code has not raised it
    if (const std::string name = take_refused(); !name.empty())
      throw Break(BreakId::builtin_call, "it calls ", name);
    if (!e.matches(PyExc_Exception)) throw;
    throw Break(BreakId::result_kind, one_line(e));
  }
  throw Stopped();
}

}  // namespace oxy::python
