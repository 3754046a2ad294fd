// Entry and exit of a compiled graph: arguments to inputs, the choice of a plan, results to Python
// objects.

#include <torch/csrc/Exceptions.h>

#include <algorithm>

#include "python/bindings.h"
#include "python/compile_graph.h"
#include "python/cpython/boundary.h"
#include "python/global_state.h"
#include "python/native_object.h"
#include "torch_bridge/execute.h"

namespace oxy::python {
namespace {

// Plans per graph; more different inputs than that run in eager.
constexpr size_t kMaxEntries = 64;

// One plan, or the knowledge that there is none for inputs like these.
struct Entry {
  GlobalState state;
  std::vector<py::object> attributes;  // what the slots held
  std::shared_ptr<CompiledPlan> plan;
  std::unique_ptr<bridge::InputSignature> eager_for;
  std::string kind, why;  // of there being no plan
  bridge::KeptCasts kept_casts = bridge::kept_casts_now();
};

struct Slot {
  py::object dict, key;
};

struct CompiledGraph {
  Thaws thaws;
  std::vector<Entry> entries;  // most recently used first
  std::vector<Slot> slots;
  py::object report, compile, eager;
  py::object differentiable;  // called where attributes require gradients; or None
  bool full_said = false;
  bool captured = false;  // what it calls eager has plans of its own

  int traverse(visitproc visit, void* arg) const {
    Py_VISIT(eager.ptr());
    Py_VISIT(differentiable.ptr());
    Py_VISIT(compile.ptr());
    Py_VISIT(report.ptr());
    for (const Slot& s : slots) Py_VISIT(s.dict.ptr());
    return 0;
  }
};
using GraphObject = NativeObject<CompiledGraph>;

// One call's arguments. The tensors are held: another thread may drop them once the GIL is
// released.
struct Arguments {
  std::span<PyObject* const> objects;
  c10::SmallVector<bridge::Input, 16> inputs;
  c10::SmallVector<at::Tensor, 16> held;
  std::string unsupported;

  explicit Arguments(std::span<PyObject* const> args) : objects(args) {
    inputs.reserve(args.size());
    held.reserve(args.size());
    for (size_t i = 0; i < args.size() && unsupported.empty(); i++) add(args[i]);
  }

 private:
  void add(PyObject* o) {
    if (THPVariable_CheckExact(o)) {
      held.push_back(THPVariable_Unpack(o));
      const at::Tensor& t = held.back();
      if (bridge::has_tangent(*t.unsafeGetTensorImpl())) unsupported = bridge::why_unsupported(t);
      inputs.push_back({&t, 0});
    } else if (PyLong_CheckExact(o)) {
      int overflow = 0;
      inputs.push_back({nullptr, PyLong_AsLongLongAndOverflow(o, &overflow)});
      if (overflow != 0) unsupported = "an integer of more than 64 bits";
    } else if (THPVariable_Check(o)) {
      unsupported = std::string("a tensor subclass, ") + Py_TYPE(o)->tp_name;
    } else {
      unsupported = std::string("an input that is a ") + Py_TYPE(o)->tp_name;
    }
  }
};

// Runs eager and, once that has succeeded, says why. The user's mistake raises eager's exception
// and is not reported.
PyObject* run_eager(CompiledGraph* self, const Arguments& a, PyObject* kwnames, const char* kind,
                    const std::string& why) {
  PyObject* result =
      PyObject_Vectorcall(self->eager.ptr(), a.objects.data(), a.objects.size(), kwnames);
  if (result == nullptr || kind == nullptr) return result;
  py::object held = owned(result);
  self->report(kind, why);
  return held.release().ptr();
}

bool attributes_match(const CompiledGraph* self, const Entry& e) {
  for (size_t i = 0; i < self->slots.size(); i++) {
    const Slot& s = self->slots[i];
    if (PyDict_GetItemWithError(s.dict.ptr(), s.key.ptr()) != e.attributes[i].ptr()) return false;
  }
  return true;
}

Entry* find_entry(CompiledGraph* self, const Arguments& a, const GlobalState& state) {
  std::vector<Entry>& entries = self->entries;
  for (size_t i = 0; i < entries.size(); i++) {
    Entry& e = entries[i];
    bool match = e.plan ? e.plan->accepts(a.inputs) : e.eager_for->matches(a.inputs);
    if (!match || e.kept_casts != bridge::kept_casts_now() || !(e.state == state) ||
        !attributes_match(self, e))
      continue;
    if (e.plan && !e.plan->executable.is_fresh(a.inputs)) {
      const Entry stale = std::move(e);  // what it held as constants has changed
      entries.erase(entries.begin() + static_cast<ptrdiff_t>(i));
      self->report("thawed", self->thaws.count());
      return find_entry(self, a, state);
    }
    auto found = entries.begin() + static_cast<ptrdiff_t>(i);
    std::rotate(entries.begin(), found, found + 1);
    return &entries.front();
  }
  return nullptr;
}

// Asks for a plan. Where there is none the entry says so.
Entry* compile_entry(CompiledGraph* self, const Arguments& a, const GlobalState& state) {
  py::tuple args(a.objects.size());
  for (size_t i = 0; i < args.size(); i++) args[i] = py::handle(a.objects[i]);
  Entry entry;
  entry.state = state;
  for (const Slot& s : self->slots)
    entry.attributes.push_back(borrow(PyDict_GetItemWithError(s.dict.ptr(), s.key.ptr())));
  const WithoutDefaultDevice none;
  py::object made = self->compile(args, self->thaws.freezing());
  if (py::isinstance<py::tuple>(made)) {
    std::tie(entry.kind, entry.why) = made.cast<std::pair<std::string, std::string>>();
    self->captured = entry.kind == "captured";
    entry.eager_for =
        std::make_unique<bridge::InputSignature>(a.inputs, bridge::InputSignature::Options{});
  } else {
    entry.plan = made.cast<std::shared_ptr<CompiledPlan>>();
  }
  return &*self->entries.insert(self->entries.begin(), std::move(entry));
}

PyObject* wrap_flat(const Arguments& a, const CompiledPlan& plan, bridge::Outputs& outputs) {
  const std::vector<ResultTree>& leaves = plan.result.items;
  const auto count = static_cast<Py_ssize_t>(leaves.size());
  const bool list = plan.result.kind == ResultTree::Kind::List;
  py::object result = steal(list ? PyList_New(count) : PyTuple_New(count));
  for (Py_ssize_t i = 0; i < count; i++) {
    const uint32_t k = leaves[static_cast<size_t>(i)].output;
    py::object o = wrap_output(a.objects, plan.executable, k, at::Tensor(outputs[k]));
    if (list)
      PyList_SET_ITEM(result.ptr(), i, o.release().ptr());
    else
      PyTuple_SET_ITEM(result.ptr(), i, o.release().ptr());
  }
  return result.release().ptr();
}

PyObject* wrap_outputs(const Arguments& a, const CompiledPlan& plan, bridge::Outputs& outputs,
                       std::span<const int64_t> numbers) {
  if (plan.flat) return wrap_flat(a, plan, outputs);
  std::vector<py::object> objects;
  for (size_t k = 0; k < outputs.size(); k++)
    objects.push_back(wrap_output(a.objects, plan.executable, k, std::move(outputs[k])));
  return plan.result.build(objects, numbers).release().ptr();
}

// `plan` is held: a compilation in another thread may drop the entry.
PyObject* run_plan(CompiledGraph* self, const Arguments& a, std::shared_ptr<CompiledPlan> plan) {
  if (plan->executable.backward() != nullptr && saved_values_may_change())
    return run_eager(self, a, nullptr, nullptr, "");
  bridge::Outputs outputs;
  std::string reason;
  const std::vector<int64_t> numbers = plan->numbers(a.inputs);  // the plan may change the inputs
  const bool ok = run_executable(plan->executable, a.inputs, outputs, reason, true);
  if (!ok) return run_eager(self, a, nullptr, "failed", reason);
  if (plan->executable.has_notes())
    for (const std::string& text : plan->executable.take_notes()) self->report("note", text);
  return wrap_outputs(a, *plan, outputs, numbers);
}

bool slots_require_grad(const CompiledGraph* self) {
  return std::ranges::any_of(self->slots, [](const Slot& s) {
    PyObject* o = PyDict_GetItemWithError(s.dict.ptr(), s.key.ptr());
    return o != nullptr && THPVariable_Check(o) && THPVariable_Unpack(o).requires_grad();
  });
}

PyObject* call_checked(CompiledGraph* self, const Arguments& a, PyObject* kwnames) {
  if (is_observed() || self->captured) return run_eager(self, a, kwnames, nullptr, "");
  if (kwnames != nullptr) return run_eager(self, a, kwnames, "unsupported", "keyword arguments");
  if (!a.unsupported.empty()) return run_eager(self, a, nullptr, "unsupported", a.unsupported);
  if (c10::GradMode::is_enabled() && slots_require_grad(self)) {
    if (self->differentiable.is_none())
      return run_eager(self, a, nullptr, "grad",
                       "a graph module whose attributes require gradients");
    const py::object held = self->differentiable;
    return PyObject_Vectorcall(held.ptr(), a.objects.data(), a.objects.size(), nullptr);
  }
  GlobalState state;
  Entry* e = find_entry(self, a, state);
  if (!e) {
    if (self->entries.size() >= kMaxEntries) {
      const char* kind = std::exchange(self->full_said, true) ? nullptr : "unsupported";
      return run_eager(self, a, nullptr, kind, "more than 64 kinds of inputs");
    }
    for (const at::Tensor& t : a.held)
      if (const char* what = bridge::why_unsupported(t))
        return run_eager(self, a, nullptr, "unsupported", what);
    e = compile_entry(self, a, state);
  }
  if (e->plan) return run_plan(self, a, e->plan);
  // Copied: eager may call this graph again and move the entry.
  const std::string kind = e->kind, why = e->why;
  return run_eager(self, a, nullptr, kind.c_str(), why);
}

PyObject* call_graph(PyObject* self, PyObject* const* args, size_t nargsf, PyObject* kwnames) {
  auto body = [=] {
    const Arguments arguments({args, static_cast<size_t>(PyVectorcall_NARGS(nargsf))});
    return call_checked(&GraphObject::of(self), arguments, kwnames);
  };
  return boundary(body, nullptr);
}

PyObject* new_compiled_graph(PyTypeObject* type, PyObject* args) {
  PyObject *eager, *compile, *report, *slots, *differentiable = Py_None;
  if (!PyArg_ParseTuple(args, "OOOO!|O", &eager, &compile, &report, &PyList_Type, &slots,
                        &differentiable))
    return nullptr;
  CompiledGraph made{.report = borrow(report),
                     .compile = borrow(compile),
                     .eager = borrow(eager),
                     .differentiable = borrow(differentiable)};
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(slots); i++) {
    PyObject *dict, *key;
    if (!PyArg_ParseTuple(PyList_GET_ITEM(slots, i), "O!O", &PyDict_Type, &dict, &key))
      return nullptr;
    made.slots.push_back({borrow(dict), borrow(key)});
  }
  return GraphObject::make(type, call_graph, std::move(made));
}

PyObject* make_graph(PyTypeObject* type, PyObject* args, PyObject*) {
  return boundary([=] { return new_compiled_graph(type, args); }, nullptr);
}

PyObject* forget_plans(PyObject* o, PyObject*) {
  boundary([=] {
    GraphObject::of(o).captured = false;
    const auto gone = std::exchange(GraphObject::of(o).entries, {});  // may come here again
  });
  Py_RETURN_NONE;
}

PyObject* plans(PyObject* o, PyObject*) {
  auto body = [=] {
    py::list out;
    for (const Entry& e : GraphObject::of(o).entries)
      if (e.plan) out.append(e.plan);
    return out.release().ptr();
  };
  return boundary(body, nullptr);
}

PyMethodDef graph_methods[] = {
    {"reset", forget_plans, METH_NOARGS, "Forgets every plan."},
    {"plans", plans, METH_NOARGS, "The CompiledPlans made so far, most recently used first."},
    {nullptr, nullptr, 0, nullptr}};
PyMemberDef graph_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(NativeHead, vectorcall), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr}};

// What torch warns of while a plan runs: Python's warnings behind it, as in eager.
class RunWarnings : public c10::WarningHandler {
 public:
  RunWarnings() : before_(c10::WarningUtils::get_warning_handler()) {
    c10::WarningUtils::set_warning_handler(this);
  }
  ~RunWarnings() override { c10::WarningUtils::set_warning_handler(before_); }
  C10_DISABLE_COPY_AND_ASSIGN(RunWarnings);

  void process(const c10::Warning& warning) override { kept_.push_back(warning); }

  void show() const {
    if (kept_.empty()) return;
    try {
      const torch::PyWarningHandler python;
      for (const c10::Warning& warning : kept_) c10::warn(warning);
    } catch (python_error& e) {  // where filters make errors of them
      e.restore();
      throw py::error_already_set();
    }
  }

 private:
  c10::WarningHandler* const before_;
  std::vector<c10::Warning> kept_;
};

}  // namespace

py::object wrap_output(std::span<PyObject* const> inputs, const bridge::Executable& executable,
                       size_t k, at::Tensor&& t) {
  const runtime::PlanOutput& o = executable.plan().outputs[k];
  if (o.kind == runtime::PlanOutput::Kind::Input) return borrow(inputs[o.index]);
  if (o.number) return steal(PyLong_FromLongLong(executable.number(t, o)));
  return t.defined() ? steal(THPVariable_Wrap(std::move(t))) : py::none();
}

bool run_executable(bridge::Executable& executable, std::span<const bridge::Input> inputs,
                    bridge::Outputs& outputs, std::string& reason, bool released) {
  bool ok = false;
  std::exception_ptr thrown;
  const RunWarnings warnings;
  PyThreadState* thread = released ? PyEval_SaveThread() : nullptr;
  try {
    ok = executable.run(inputs, outputs, reason);
  } catch (const abi::__forced_unwind&) {  // the end of a daemon thread
    throw;
  } catch (...) {
    thrown = std::current_exception();
  }
  if (thread != nullptr) PyEval_RestoreThread(thread);
  if (ok) warnings.show();  // else eager gives them
  if (!thrown) return ok;
  try {
    try {
      std::rethrow_exception(thrown);
    } catch (const bridge::Interrupted& i) {
      std::rethrow_exception(i.why);
    }
  } catch (python_error& e) {
    e.restore();
  } catch (const bridge::PartlyWritten& e) {
    PyErr_SetString(PyExc_RuntimeError, e.what());
  }
  throw py::error_already_set();
}

PyObject* make_compiled_graph_type() {
  static const char doc[] =
      "A graph compiled by Oxyfuel: called as the torch.fx.GraphModule that it came from.";
  return reinterpret_cast<PyObject*>(GraphObject::type(
      "oxyfuel._C.CompiledGraph", {{Py_tp_new, reinterpret_cast<void*>(make_graph)},
                                   {Py_tp_methods, graph_methods},
                                   {Py_tp_members, graph_members},
                                   {Py_tp_doc, const_cast<char*>(doc)}}));
}

}  // namespace oxy::python
