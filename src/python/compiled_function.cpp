#include "python/compiled_function.h"

#include <structmember.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <unordered_set>

#include "python/bound_arguments.h"
#include "python/broken_call.h"
#include "python/capture/controls.h"
#include "python/capture/capture.h"
#include "python/compiled_graph.h"
#include "python/cpython/thread_state.h"
#include "python/global_state.h"
#include "python/guards/guard_program.h"
#include "python/inner_frames.h"
#include "support/check.h"
#include "support/log.h"
#include "support/text.h"

namespace oxy::python {
namespace {

// A number in a tensor that is another one so often is no constant: captures break where Python asks for it.
constexpr size_t kMostNumbers = 3;

// A capture, or the knowledge that there is none for calls like these (`graph` is null).
struct Entry {
  GlobalState state;
  py::object code;  // the function's
  std::shared_ptr<GuardProgram> guards;
  size_t input_count = 0;
  py::object graph;
  std::vector<NumberInput> numbers;  // the inputs of the graph that are no tensors of the call's
  bool calls_graph = true;           // false: nothing but Python's own work, done by `rebuild`
  Rebuild rebuild;
  std::optional<ModesAfter> modes_after;  // null: those in front
  std::optional<BrokenCall> broken;  // where the roots of `rebuild` are the values of left frames
  bool grad = false;                 // runs in eager because gradients are needed
  bool left_to_eager = false;        // because of a break; what it calls is compiled

  int traverse(visitproc visit, void* arg) const {
    Py_VISIT(graph.ptr());
    Py_VISIT(code.ptr());
    if (int stop = guards->traverse(visit, arg)) return stop;
    if (broken)
      if (int stop = broken->traverse(visit, arg)) return stop;
    for (const NumberInput& n : numbers)
      if (int stop = n.number.traverse(visit, arg)) return stop;
    return rebuild.traverse(visit, arg);
  }
};

struct CompiledFunction {
  PyObject_HEAD vectorcallfunc vectorcall;
  PyObject *function, *compile, *report, *weakrefs;
  bool fullgraph, limit_said, seen;  // seen: called before, in eager
  size_t numbers_changed;  // how often a capture did not serve because of a number in a tensor
  size_t limit, break_at;
  std::vector<std::shared_ptr<Entry>>* entries;  // most recently used first
  std::unordered_set<std::string>*
      varying;  // sources of numbers that were another one at some call
  // The table is owned by the function that the user compiled, and known to its resume functions.
  std::shared_ptr<ResumeTable>* own_table;
  std::weak_ptr<ResumeTable>* table;
};

PyObject* new_compiled_function(PyTypeObject* type, PyObject* function, PyObject* compile,
                                PyObject* report, bool fullgraph, size_t limit, size_t break_at);

void say(CompiledFunction* self, const char* kind, const std::string& text,
         const std::vector<ir::Frame>& stack = {}) {
  const InnerFrames none(nullptr);  // what reports is no code of the user's
  py::list frames;
  for (const ir::Frame& f : stack) frames.append(py::make_tuple(f.file, f.line, f.function));
  py::handle(self->report)(kind, text, frames);
}

// The graph's inputs for a hit: what was fetched, and tensors in the place of numbers.
struct GraphInputs {
  std::span<PyObject* const> objects;
  bool valid = true;  // false: a number that only eager can deal with

  GraphInputs(const Entry& e, std::span<PyObject* const> fetched)
      : objects(fetched.first(e.input_count)) {
    if (e.numbers.empty()) return;
    with_numbers_.assign(objects.begin(), objects.end());
    for (const NumberInput& n : e.numbers) {
      const py::object number = n.number.value(fetched);
      const auto tensor = number ? number_as_tensor(number, n.fits) : std::nullopt;
      if (!tensor) {
        valid = false;
        return;
      }
      made_.push_back(py::reinterpret_steal<py::object>(THPVariable_Wrap(*tensor)));
      with_numbers_[n.input] = made_.back().ptr();
    }
    objects = {with_numbers_.data(), with_numbers_.size()};
  }
  GraphInputs(const GraphInputs&) = delete;
  GraphInputs& operator=(const GraphInputs&) = delete;

 private:
  c10::SmallVector<PyObject*, 16> with_numbers_;
  c10::SmallVector<py::object, 2> made_;
};

// What the graph gives for a hit; nullopt with an exception set.
std::optional<OutputObjects> graph_outputs(const Entry& e, std::span<PyObject* const> fetched) {
  OutputObjects outputs;
  if (!e.calls_graph) return outputs;
  const GraphInputs inputs(e, fetched);
  if (!inputs.valid) {
    PyErr_SetObject(left_to_eager(), py::make_tuple(py::none(), py::none(), py::none()).ptr());
    return std::nullopt;
  }
  if (run_only_plan(e.graph.ptr(), inputs.objects, outputs)) return outputs;
  const TorchModesGuard modes;  // for graphs that raise
  PyObject* made =
      PyObject_Vectorcall(e.graph.ptr(), inputs.objects.data(), e.input_count, nullptr);
  if (made == nullptr) return std::nullopt;
  auto results = py::reinterpret_steal<py::object>(made);
  PyObject* fast = PySequence_Fast(made, "a backend's callable must return a tuple or a list");
  if (fast == nullptr) return std::nullopt;
  auto held = py::reinterpret_steal<py::object>(fast);
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(fast); i++)
    outputs.push_back(py::reinterpret_borrow<py::object>(PySequence_Fast_GET_ITEM(fast, i)));
  return outputs;
}

// The values of a hit, its effects done; nullopt with an exception set. Until `done` is set nothing
// has happened that a user could see.
std::optional<std::vector<py::object>> run_graph(const Entry& e, std::span<PyObject* const> fetched,
                                                 bool& done) {
  auto outputs = graph_outputs(e, fetched);
  if (!outputs) return std::nullopt;
  std::vector<py::object> results;
  if (e.rebuild.is_one_output()) {
    results.push_back(std::move((*outputs)[e.rebuild.steps[0].index]));
    done = true;
  } else {
    const auto built = e.rebuild.build({outputs->data(), outputs->size()}, fetched);
    done = true;
    e.rebuild.apply(built);
    for (uint32_t root : e.rebuild.roots) results.push_back(built[root]);
  }
  if (e.modes_after) e.modes_after->set();
  return results;
}

// What a broken frame's call of its graph needs to know of the hit. The frame has the arguments in its locals, and what it
// drops behind the graph is to die then: nothing here holds it any more.
struct Pending {
  const Entry& entry;
  Fetched& fetched;
  BoundArguments& bound;
  Handed* handed;  // null where the arguments are the caller's
  bool done = false;

  void let_go() {
    fetched.clear();
    bound.held.clear();
    if (handed) handed->clear();
  }
};

constexpr const char* kPending = "oxyfuel.inputs";

PyObject* run_pending(PyObject*, PyObject* capsule) {
  auto* pending = static_cast<Pending*>(PyCapsule_GetPointer(capsule, kPending));
  if (pending == nullptr) return nullptr;
  const InnerFrames none(nullptr);
  try {
    auto values = run_graph(pending->entry, pending->fetched.objects(), pending->done);
    if (!values) return nullptr;
    pending->let_go();
    return pending->entry.broken->arguments(std::move(*values)).release().ptr();
  } catch (py::error_already_set& e) {
    e.restore();
  } catch (const std::exception& e) {
    PyErr_SetString(PyExc_RuntimeError, e.what());
  }
  return nullptr;
}

// `__compiled_fn_<number>`.
py::object compiled_part(int number) {
  struct Part {
    std::string name;
    PyMethodDef method;
  };
  auto part = std::make_unique<Part>();
  part->name = cat("__compiled_fn_", number);
  part->method = {part->name.c_str(), run_pending, METH_O, nullptr};
  PyMethodDef* method = &part->method;
  PyObject* self = PyCapsule_New(part.release(), nullptr, [](PyObject* c) {
    delete static_cast<Part*>(PyCapsule_GetPointer(c, nullptr));
  });
  auto held = py::reinterpret_steal<py::object>(self);
  return py::reinterpret_steal<py::object>(PyCFunction_New(method, self));
}

PyObject* run_eager(CompiledFunction* self, PyObject* const* args, size_t nargsf, PyObject* kwnames,
                    Handed* handed = nullptr) {
  leave_next_frame(PyFunction_GET_CODE(self->function));
  if (handed != nullptr) return call_handing_over(self->function, args, nargsf, kwnames, *handed);
  return PyObject_Vectorcall(self->function, args, nargsf, kwnames);
}

std::shared_ptr<ResumeTable> table_of(CompiledFunction* self);

// A call, and one that may return a Tail.
PyObject* call_with(PyObject* o, PyObject* const* args, size_t nargsf, PyObject* kwnames,
                    Handed* handed);
PyObject* call_once(PyObject* o, PyObject* const* args, size_t nargsf, PyObject* kwnames,
                    Handed* handed);

// The graph did not run: eager does.
PyObject* run_instead(CompiledFunction* self, PyObject* const* args, size_t nargsf,
                      PyObject* kwnames, Handed* handed) {
  if (!PyErr_ExceptionMatches(left_to_eager())) return nullptr;
  PyObject *type, *value, *trace;
  PyErr_Fetch(&type, &value, &trace);
  PyErr_NormalizeException(&type, &value, &trace);
  Py_XDECREF(type);
  Py_XDECREF(trace);
  const auto left = py::reinterpret_steal<py::object>(value);
  auto result = py::reinterpret_steal<py::object>(run_eager(self, args, nargsf, kwnames, handed));
  if (!result) return nullptr;
  const py::tuple why = left.attr("args");
  if (!why[1].is_none()) why[0](why[1], why[2]);
  return result.release().ptr();
}

PyObject* run_entry(CompiledFunction* self, const Entry& e, Fetched& fetched, BoundArguments& bound,
                    PyObject* const* args, size_t nargsf, PyObject* kwnames, Handed* handed) {
  if (!e.graph) {
    std::optional<InnerFrames> compiled;
    if (e.left_to_eager) compiled.emplace(table_of(self));
    fetched.clear();
    return run_eager(self, args, nargsf, kwnames, handed);
  }
  Pending pending{e, fetched, bound, handed};
  if (!e.broken) {
    auto results = run_graph(e, fetched.objects(), pending.done);
    if (results) return results->front().release().ptr();
  } else {
    auto capsule = py::reinterpret_steal<py::object>(PyCapsule_New(&pending, kPending, nullptr));
    if (!capsule) return nullptr;
    auto locals = bound.locals;
    locals.push_back(capsule.ptr());
    const InnerFrames compiled(table_of(self));
    PyObject* result =
        PyObject_Vectorcall(e.broken->function.ptr(), locals.data(), locals.size(), nullptr);
    PyCapsule_SetName(capsule.ptr(), "oxyfuel.inputs of a call that is over");
    if (result != nullptr) return result;
  }
  return pending.done ? nullptr : run_instead(self, args, nargsf, kwnames, handed);
}

std::shared_ptr<ResumeTable> table_of(CompiledFunction* self) {
  auto table = self->table->lock();
  if (table) return table;
  auto make = [self](py::handle function) {
    PyObject* made =
        new_compiled_function(Py_TYPE(self), function.ptr(), self->compile, self->report,
                              self->fullgraph, self->limit, self->break_at);
    if (made == nullptr) throw py::error_already_set();
    *reinterpret_cast<CompiledFunction*>(made)->table = *self->table;
    return py::reinterpret_steal<py::object>(made);
  };
  *self->own_table =
      std::make_shared<ResumeTable>(ResumeTable::Compiled{make, call_with, call_once});
  *self->table = *self->own_table;
  return *self->own_table;
}

// One call's captures: each begins as the others did.
struct Captures {
  CompiledFunction* self;
  std::span<const py::object> locals;
  std::map<size_t, std::string> left_alone = {};

  // Runs `tracer`, a new one for each choice or loop of torch's that it leaves alone.
  void run(std::unique_ptr<Capture>& tracer, int loop_left = -1, size_t stop_at = SIZE_MAX,
           size_t break_at = SIZE_MAX) {
    while (true) {
      tracer = std::make_unique<Capture>();
      tracer->calls.compiled_type = Py_TYPE(self);
      tracer->numbers.varying = *self->varying;
      tracer->graphs.left_alone = left_alone;
      tracer->frames.loop_left = loop_left;
      tracer->numbers.reads_numbers = self->numbers_changed < kMostNumbers;
      tracer->frames.break_at = break_at;
      try {
        return tracer->run(self->function, locals, stop_at);
      } catch (const LeftAlone& l) {
        if (!left_alone.emplace(l.step, l.why).second)
          throw InternalError("a capture does not leave alone what it was to");
      }
    }
  }
};

// Captures up to the latest place in front of a break where the frames can be left; null where
// there is none.
std::unique_ptr<Capture> capture_in_front(Captures& captures, const Break& found) {
  std::vector<size_t> steps = found.steps;
  for (size_t i = 0; i < steps.size(); i++) {
    const size_t step = steps[i];
    std::unique_ptr<Capture> tracer;
    try {
      captures.run(tracer, found.loop, step);
      if (!tracer->frames.left.empty()) return tracer;
    } catch (const Break& b) {  // a value that cannot be had there
      if (b.id != BreakId::local_class) continue;
      for (size_t other : b.steps)
        if (other < step && std::ranges::count(steps, other) == 0) steps.push_back(other);
      std::sort(steps.begin() + static_cast<ptrdiff_t>(i) + 1, steps.end(), std::greater<>());
    } catch (py::error_already_set& e) {
      if (!e.matches(PyExc_Exception)) throw;
    }
  }
  return nullptr;
}

void say_bytecode(CompiledFunction* self, const Entry& entry) {
  auto text = [](PyObject* function) {
    auto* code = reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(function));
    return to_text(disassemble(code), code);
  };
  say(self, "bytecode",
      cat("ORIGINAL BYTECODE\n", text(self->function), "\nMODIFIED BYTECODE\n",
          entry.broken ? text(entry.broken->function.ptr()) : "none: the call is one graph\n"));
}

void fill_entry(CompiledFunction* self, Entry& entry, Capture& tracer) {
  entry.rebuild = std::move(tracer.graphs.rebuild);
  entry.modes_after = tracer.graphs.modes_after;
  entry.numbers = std::move(tracer.graphs.number_inputs);
  const auto& order = tracer.graphs.ir->graph.order();
  entry.calls_graph = std::any_of(order.begin(), order.end(), [&](ir::NodeId n) {
    return tracer.graphs.ir->graph.node(n).kind != ir::NodeKind::Input;
  });
  py::tuple examples(tracer.graphs.example_inputs.size());
  for (size_t i = 0; i < tracer.graphs.example_inputs.size(); i++) examples[i] = tracer.graphs.example_inputs[i];
  py::object graph = py::none();
  if (entry.calls_graph) graph = py::handle(self->compile)(tracer.graphs.ir, examples);
  if (!tracer.frames.left.empty()) {
    auto table = table_of(self);
    entry.broken = make_broken_call(*table, tracer.frames.left, compiled_part(table->next_number()));
  }
  if (log_enabled(Artifact::bytecode)) say_bytecode(self, entry);
  entry.graph = std::move(graph);
}

// Captures the call; null where the captured code raises (`raised` says what; eager then raises
// it). What the capture has learned before a break tells calls like this one apart from others.
std::shared_ptr<Entry> make_entry(CompiledFunction* self, const BoundArguments& bound,
                                  std::string& raised) {
  const InnerFrames none(nullptr);
  auto entry = std::make_shared<Entry>();
  entry->code = py::reinterpret_borrow<py::object>(bound.code);
  std::unique_ptr<Capture> tracer;
  std::vector<py::object> locals;
  for (PyObject* o : bound.locals) locals.push_back(py::reinterpret_borrow<py::object>(o));
  bool captured = true;
  size_t break_at = SIZE_MAX;
  if (self->break_at != 0) {
    auto table = self->table->lock();
    break_at = self->break_at - 1 + (table ? table->prologue_of(self->function) : 0);
  }
  Captures captures{self, locals};
  try {
    captures.run(tracer, -1, SIZE_MAX, break_at);
  } catch (const Break& b) {
    const bool forbidden = tracer->calls.error_on_break.value_or(self->fullgraph);
    if (forbidden) say(self, "forbidden break", b.what(), b.stack);
    auto in_front = capture_in_front(captures, b);
    captured = in_front != nullptr;
    entry->left_to_eager = !captured;
    if (captured) tracer = std::move(in_front);
    if (!forbidden)
      say(self, "break",
          cat(b.what(), captured ? "" : "\nThe frame cannot be left there: it runs in eager."),
          b.stack);
  } catch (py::error_already_set& e) {
    if (e.matches(PyExc_KeyboardInterrupt)) throw;
    raised = e.what();
    return nullptr;
  }
  entry->grad = captured && entry->state.modes.grad &&
                (tracer->graphs.result_requires_grad ||
                 std::any_of(tracer->graphs.example_inputs.begin(), tracer->graphs.example_inputs.end(),
                             [](const py::object& o) {
                               return THPVariable_Unpack(o.ptr()).requires_grad();
                             }));
  if (captured && !entry->grad) fill_entry(self, *entry, *tracer);
  if (!entry->graph) tracer->graphs.fetch.resize(tracer->graphs.example_inputs.size());
  entry->guards = std::make_shared<GuardProgram>(tracer->heap.sources, tracer->heap.guards, tracer->graphs.fetch);
  entry->input_count = tracer->graphs.example_inputs.size();
  if (GuardProgram::measured) entry->guards->measure(bound.locals.data());
  if (log_enabled(Artifact::guards)) say(self, "guards", entry->guards->log_text());
  self->entries->insert(self->entries->begin(), entry);
  return entry;
}

// Functions are captured one at a time. A thread that waits for another lets go of the GIL.
class CaptureLock {
 public:
  CaptureLock() {
    if (mutex().try_lock()) return;
    waited_ = true;
    py::gil_scoped_release released;
    mutex().lock();
  }
  ~CaptureLock() { mutex().unlock(); }
  CaptureLock(const CaptureLock&) = delete;
  CaptureLock& operator=(const CaptureLock&) = delete;
  bool waited() const { return waited_; }

 private:
  // A backend of the user's may call a compiled function.
  static std::recursive_mutex& mutex() {
    static auto& m = *new std::recursive_mutex();
    return m;
  }
  bool waited_ = false;
};

// `fetched` is filled where the entry fits.
bool holds(const Entry& e, const GlobalState& state, const BoundArguments& bound,
           Fetched& fetched) {
  return e.code.ptr() == bound.code && e.state == state &&
         e.guards->check(bound.locals.data(), fetched);
}

// What a check lets go of may run Python code, and that code, or another thread, may change the
// list.
std::shared_ptr<Entry> find_entry(CompiledFunction* self, const GlobalState& state,
                                  const BoundArguments& bound, Fetched& fetched) {
  auto& entries = *self->entries;
  for (size_t i = 0; i < entries.size(); i++) {
    std::shared_ptr<Entry> e = entries[i];
    if (!holds(*e, state, bound, fetched)) continue;
    if (i > 0 && i < entries.size() && entries[i] == e)
      std::rotate(entries.begin(), entries.begin() + static_cast<ptrdiff_t>(i),
                  entries.begin() + static_cast<ptrdiff_t>(i) + 1);
    return e;
  }
  return nullptr;
}

// Why no capture serves this call: which guard of each fails, most recently used first, and who
// asked for it.
std::string why_another(const CompiledFunction* self, const GlobalState& state,
                        const BoundArguments& bound) {
  std::string out;
  for (const auto& e : std::vector(*self->entries)) {
    if (!out.empty()) out += '\n';
    std::string changed = difference(state, e->state);
    if (e->code.ptr() != bound.code) {
      out += "the function has another __code__";
    } else if (!changed.empty()) {
      out += changed;
    } else if (auto why = e->guards->why_not(bound.locals.data())) {
      cat_to(out, why->text, why->stack.empty() ? "" : "\n", why->stack);
      if (!why->stack.empty()) out.pop_back();  // the end of the last line
    } else {
      out += "nothing that can be named";
    }
  }
  return out;
}

// A new entry, or another thread's; null where there is none: `raised` says why, and is empty at
// the limit.
std::shared_ptr<Entry> capture(CompiledFunction* self, const GlobalState& state,
                               const BoundArguments& bound, Fetched& fetched, std::string& raised) {
  const CaptureLock lock;
  if (lock.waited())
    if (auto e = find_entry(self, state, bound, fetched)) return e;
  if (self->entries->size() >= self->limit) {
    if (!std::exchange(self->limit_said, true)) say(self, "limit", why_another(self, state, bound));
    return nullptr;
  }
  if (!self->entries->empty()) say(self, "recompile", why_another(self, state, bound));
  for (const auto& e : std::vector(*self->entries))
    if (e->code.ptr() == bound.code)
      for (std::string& source : e->guards->changed_numbers(bound.locals.data()))
        self->varying->insert(std::move(source));
  if (!self->entries->empty() && self->entries->front()->code.ptr() == bound.code) {
    const auto why = self->entries->front()->guards->why_not(bound.locals.data());
    self->numbers_changed += why && why->number ? 1 : 0;
  }
  std::shared_ptr<Entry> e = make_entry(self, bound, raised);
  if (e && !holds(*e, state, bound, fetched))
    throw InternalError("the guards of a new capture do not hold");
  return e;
}

PyObject* call_checked(CompiledFunction* self, PyObject* const* args, size_t nargsf,
                       PyObject* kwnames, Handed* handed) {
  auto eager = [&] { return run_eager(self, args, nargsf, kwnames, handed); };
  if (is_observed() || is_traced() || !is_recordable()) return eager();
  BoundArguments bound(reinterpret_cast<PyFunctionObject*>(self->function), args,
                       static_cast<size_t>(PyVectorcall_NARGS(nargsf)), kwnames);
  if (!bound.valid) return eager();
  Fetched fetched;
  const GlobalState state;
  const Stance stance = current_stance();
  if (stance == Stance::ForceEager) return eager();
  std::shared_ptr<Entry> entry = find_entry(self, state, bound, fetched);
  if (!entry) {
    if (is_finalizing()) return eager();
    if (stance == Stance::EagerOnRecompile) return eager();
    if (stance == Stance::FailOnRecompile) say(self, "refused", why_another(self, state, bound));
    if (stance == Stance::EagerThenCompile && !std::exchange(self->seen, true)) return eager();
    std::string raised;
    entry = capture(self, state, bound, fetched, raised);
    if (!entry) {
      auto result = py::reinterpret_steal<py::object>(eager());
      if (result && !raised.empty())
        say(self, "failed", cat("captured code raised what eager does not: ", raised));
      return result.release().ptr();
    }
  }
  if (entry->grad) say(self, "grad", "");
  return run_entry(self, *entry, fetched, bound, args, nargsf, kwnames, handed);
}

// `handed`, if not null, holds the arguments.
PyObject* call_once(PyObject* o, PyObject* const* args, size_t nargsf, PyObject* kwnames,
                    Handed* handed) {
  const size_t given = handed ? handed->size() : 0;
  auto* self = reinterpret_cast<CompiledFunction*>(o);
  std::string failure;
  try {
    return call_checked(self, args, nargsf, kwnames, handed);
  } catch (py::error_already_set& e) {
    e.restore();
    return nullptr;
  } catch (Interrupted& e) {
    e.error.restore();
    return nullptr;
  } catch (const std::exception& e) {
    failure = e.what();
  }
  if (handed != nullptr && handed->size() != given) {  // a frame has begun
    PyErr_SetString(PyExc_RuntimeError, failure.c_str());
    return nullptr;
  }
  PyObject* result = run_eager(self, args, nargsf, kwnames, handed);
  if (result == nullptr) return nullptr;
  PyObject* said = PyObject_CallFunction(self->report, "ss()", "failed", failure.c_str());
  if (said == nullptr) Py_CLEAR(result);
  Py_XDECREF(said);
  return result;
}

PyObject* call_with(PyObject* o, PyObject* const* args, size_t nargsf, PyObject* kwnames,
                    Handed* handed) {
  if (!enter_call(" in a compiled function")) return nullptr;
  PyObject* result = call_once(o, args, nargsf, kwnames, handed);
  leave_call();
  if (result == nullptr || tail_of(result) == nullptr) return result;
  // Whatever is called on the way belongs to this table.
  std::shared_ptr<ResumeTable> table = reinterpret_cast<CompiledFunction*>(o)->table->lock();
  return follow_tails(result);
}

PyObject* call(PyObject* o, PyObject* const* args, size_t nargsf, PyObject* kwnames) {
  return call_with(o, args, nargsf, kwnames, nullptr);
}

PyObject* new_compiled_function(PyTypeObject* type, PyObject* function, PyObject* compile,
                                PyObject* report, bool fullgraph, size_t limit, size_t break_at) {
  auto* self = reinterpret_cast<CompiledFunction*>(type->tp_alloc(type, 0));
  if (self == nullptr) return nullptr;
  self->vectorcall = call;
  self->function = Py_NewRef(function);
  self->compile = Py_NewRef(compile);
  self->report = Py_NewRef(report);
  self->fullgraph = fullgraph;
  self->limit = limit;
  self->break_at = break_at;
  self->entries = new std::vector<std::shared_ptr<Entry>>();
  self->varying = new std::unordered_set<std::string>();
  self->own_table = new std::shared_ptr<ResumeTable>();
  self->table = new std::weak_ptr<ResumeTable>();
  return reinterpret_cast<PyObject*>(self);
}

PyObject* make(PyTypeObject* type, PyObject* args, PyObject*) {
  PyObject *function, *compile, *report;
  int fullgraph;
  Py_ssize_t limit, break_at;
  if (!PyArg_ParseTuple(args, "O!OOpnn", &PyFunction_Type, &function, &compile, &report, &fullgraph,
                        &limit, &break_at))
    return nullptr;
  return new_compiled_function(type, function, compile, report, fullgraph != 0,
                               static_cast<size_t>(limit), static_cast<size_t>(break_at));
}

int traverse(PyObject* o, visitproc visit, void* arg) {
  auto* self = reinterpret_cast<CompiledFunction*>(o);
  Py_VISIT(Py_TYPE(o));
  Py_VISIT(self->function);
  Py_VISIT(self->compile);
  Py_VISIT(self->report);
  if (self->entries != nullptr) {
    for (const auto& e : *self->entries)
      if (int stop = e->traverse(visit, arg)) return stop;
  }
  if (self->own_table != nullptr && *self->own_table)
    return (*self->own_table)->traverse(visit, arg);
  return 0;
}

int clear(PyObject* o) {
  auto* self = reinterpret_cast<CompiledFunction*>(o);
  Py_CLEAR(self->function);
  Py_CLEAR(self->compile);
  Py_CLEAR(self->report);
  delete std::exchange(self->entries, nullptr);
  delete std::exchange(self->varying, nullptr);
  delete std::exchange(self->own_table, nullptr);
  delete std::exchange(self->table, nullptr);
  return 0;
}

void dealloc(PyObject* o) {
  PyObject_GC_UnTrack(o);
  if (reinterpret_cast<CompiledFunction*>(o)->weakrefs != nullptr) PyObject_ClearWeakRefs(o);
  clear(o);
  PyTypeObject* type = Py_TYPE(o);
  type->tp_free(o);
  Py_DECREF(type);
}

PyObject* forget(PyObject* o, PyObject*) {
  auto* self = reinterpret_cast<CompiledFunction*>(o);
  self->entries->clear();
  self->varying->clear();
  self->own_table->reset();
  self->limit_said = self->seen = false;
  self->numbers_changed = 0;
  Py_RETURN_NONE;
}

PyObject* guards(PyObject* o, PyObject*) {
  py::list out;
  for (const auto& e : *reinterpret_cast<CompiledFunction*>(o)->entries) out.append(e->guards);
  return out.release().ptr();
}

PyObject* resumed(PyObject* o, PyObject*) {
  py::list out;
  if (auto table = reinterpret_cast<CompiledFunction*>(o)->table->lock())
    for (const py::object& function : table->functions()) out.append(function);
  return out.release().ptr();
}

// As a function's: a compiled function in a class is a method.
PyObject* descriptor_get(PyObject* self, PyObject* object, PyObject*) {
  return object == nullptr || object == Py_None ? Py_NewRef(self) : PyMethod_New(self, object);
}

PyMethodDef methods[] = {
    {"reset", forget, METH_NOARGS, "Forgets every capture."},
    {"resumed", resumed, METH_NOARGS, "The functions behind graph breaks, compiled."},
    {"guards", guards, METH_NOARGS, "The GuardProgram of each capture, most recently used first."},
    {nullptr, nullptr, 0, nullptr}};
PyMemberDef members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(CompiledFunction, vectorcall), READONLY, nullptr},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(CompiledFunction, weakrefs), READONLY, nullptr},
    {"__wrapped__", T_OBJECT_EX, offsetof(CompiledFunction, function), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr}};

// What a function tells of itself: its name, documentation, signature.
PyObject* get_attribute(PyObject* o, PyObject* name) {
  PyObject* own = PyObject_GenericGetAttr(o, name);
  if (own != nullptr || !PyErr_ExceptionMatches(PyExc_AttributeError)) return own;
  PyErr_Clear();
  return PyObject_GetAttr(reinterpret_cast<CompiledFunction*>(o)->function, name);
}

}  // namespace

void compile_everything_like(PyObject* compiled) {
  compile_every_frame(table_of(reinterpret_cast<CompiledFunction*>(Py_NewRef(compiled))));
}

PyTypeObject* compiled_function_type() {
  static PyType_Slot slots[] = {{Py_tp_new, reinterpret_cast<void*>(make)},
                                {Py_tp_dealloc, reinterpret_cast<void*>(dealloc)},
                                {Py_tp_traverse, reinterpret_cast<void*>(traverse)},
                                {Py_tp_clear, reinterpret_cast<void*>(clear)},
                                {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
                                {Py_tp_descr_get, reinterpret_cast<void*>(descriptor_get)},
                                {Py_tp_getattro, reinterpret_cast<void*>(get_attribute)},
                                {Py_tp_methods, methods},
                                {Py_tp_members, members},
                                {0, nullptr}};
  static PyType_Spec spec = {"oxyfuel._C.CompiledFunction", sizeof(CompiledFunction), 0,
                             Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
                             slots};
  static auto* type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
  return type;
}

}  // namespace oxy::python
