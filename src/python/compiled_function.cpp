// Calls of compiled functions: which capture fits, what is captured, what runs.

#include <algorithm>
#include <chrono>
#include <unordered_set>

#include "python/artefact.h"
#include "python/bindings.h"
#include "python/bound_arguments.h"
#include "python/capture/capture.h"
#include "python/capture/controls.h"
#include "python/cpython/compile_lock.h"
#include "python/cpython/thread_state.h"
#include "python/native_object.h"
#include "python/torch_settings.h"
#include "support/check.h"
#include "support/log.h"
#include "support/text.h"

namespace oxy::python {
namespace {

// A number in a tensor that is another one so often is no constant: captures break where Python
// asks for it.
constexpr size_t kMostNumbers = 3;
// The same of random numbers.
constexpr size_t kMostDraws = 3;
// So many captures that failed for reasons of ours are the last ones.
constexpr size_t kMostFailures = 3;
// As torch has them: so many captures a function has, and so many at most, whatever is set.
constexpr size_t kRecompileLimit = 8, kAccumulatedLimit = 256;

struct CompiledFunction {
  // Owned by the function that the user compiled, and known to its resume functions.
  std::weak_ptr<ResumeTable> table;
  std::shared_ptr<ResumeTable> own_table;
  std::unordered_set<std::string> varying;  // sources of numbers that were another one at some call
  std::vector<std::shared_ptr<Artefact>> entries;  // most recently used first
  py::object report, compile, function;
  bool fullgraph = false;
  size_t limit = 0, break_at = 0;  // limit: 0 where none was given
  DynamicShapes shapes;
  bool limit_said = false, seen = false;  // seen: called before, in eager
  // At the limit: calls in a row that no capture fitted, and how many more are not looked at.
  size_t missed = 0, unlooked = 0;
  py::dict sizes_seen;         // in that call, by source
  bool has_raised = false;     // captured code, at an earlier call
  size_t numbers_changed = 0;  // how often a capture did not serve because of a number in a tensor
  size_t draws_changed = 0;    // ... or a random one
  size_t failures = 0;         // captures that ended in an error of ours
  std::shared_ptr<const std::string> failure;  // the last one
  bool suppressed = false;  // it was an error of the backend's, and torch's settings suppress them

  int traverse(visitproc visit, void* arg) const {
    Py_VISIT(function.ptr());
    Py_VISIT(compile.ptr());
    Py_VISIT(report.ptr());
    // Of what others hold as well, as a call that runs, the references are not ours alone.
    for (const auto& e : entries)
      if (int stop = e.use_count() == 1 ? e->traverse(visit, arg) : 0) return stop;
    return own_table.use_count() == 1 ? own_table->traverse(visit, arg) : 0;
  }
};
using Object = NativeObject<CompiledFunction>;

PyObject* new_compiled_function(CompiledFunction state);

void say(CompiledFunction* self, const char* kind, const std::string& text,
         const std::vector<ir::Frame>& stack = {}) {
  const InnerFrames none(nullptr);  // what reports is no code of the user's
  py::list frames;
  for (const ir::Frame& f : stack) frames.append(py::make_tuple(f.file, f.line, f.function));
  self->report(kind, text, frames);
}

// A hit whose graph has run, on the way into the frame that goes on from there. That frame has the
// arguments in its locals, and what it drops is to die then: nothing here holds it any more.
struct Pending {
  const BrokenCall& broken;
  std::vector<py::object> values;  // of the frames that were left
  Fetched& fetched;
  BoundArguments& bound;
  Handed* handed;  // null where the arguments are the caller's
};

constexpr const char* kPending = "oxyfuel.inputs";

PyObject* run_pending(PyObject*, PyObject* capsule) {
  auto* pending = static_cast<Pending*>(PyCapsule_GetPointer(capsule, kPending));
  if (pending == nullptr) return nullptr;
  auto body = [&]() -> PyObject* {
    const InnerFrames none(nullptr);
    pending->fetched.clear();
    pending->bound.held.clear();
    if (pending->handed) pending->handed->clear();
    return pending->broken.arguments(std::move(pending->values)).release().ptr();
  };
  return boundary(body, nullptr);
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
  const auto self = steal(PyCapsule_New(part.release(), nullptr, [](PyObject* c) {
    boundary([=] { delete static_cast<Part*>(PyCapsule_GetPointer(c, nullptr)); });
  }));
  return steal(PyCFunction_New(method, self.ptr()));
}

// As PyObject_Vectorcall has it.
struct Call {
  CompiledFunction* self;
  PyObject* const* args;
  size_t nargsf;
  PyObject* kwnames;
  Handed* handed;  // holds the arguments, if not null
};

PyObject* run_eager(const Call& c) {
  return call_left_alone(c.self->function.ptr(), c.args, c.nargsf, c.kwnames, c.handed);
}

// A call, and one that may return a Tail.
PyObject* call_with(PyObject* o, PyObject* const* args, size_t nargsf, PyObject* kwnames,
                    Handed* handed);
PyObject* call_once(PyObject* o, PyObject* const* args, size_t nargsf, PyObject* kwnames,
                    Handed* handed);

std::shared_ptr<ResumeTable> table_of(CompiledFunction* self) {
  if (auto table = self->table.lock()) return table;
  auto make = [self](py::handle function) {
    return steal(new_compiled_function({.table = self->table,
                                        .report = self->report,
                                        .compile = self->compile,
                                        .function = borrow(function),
                                        .fullgraph = self->fullgraph,
                                        .limit = self->limit,
                                        .break_at = self->break_at,
                                        .shapes = {.mode = self->shapes.mode}}));
  };
  self->own_table =
      std::make_shared<ResumeTable>(ResumeTable::Compiled{make, call_with, call_once});
  self->table = self->own_table;
  return self->own_table;
}

// Goes on behind the graph, in the frames that the capture has left.
PyObject* go_on(CompiledFunction* self, Pending pending) {
  const auto capsule = steal(PyCapsule_New(&pending, kPending, nullptr));
  auto locals = pending.bound.locals;
  locals.push_back(capsule.ptr());
  const InnerFrames compiled(table_of(self));
  PyObject* result =
      PyObject_Vectorcall(pending.broken.function.ptr(), locals.data(), locals.size(), nullptr);
  PyCapsule_SetName(capsule.ptr(), "oxyfuel.inputs of a call that is over");
  return result;
}

// What the guards of an artefact that fits have found.
struct Hit {
  Fetched fetched;
  GeneratorStates before;  // put back where eager runs

  bool fits(const Artefact& a, const GlobalState& state, const BoundArguments& bound) {
    return a.holds(state, bound.code, bound.locals, fetched, before);
  }
};

// A check of a graph does not hold in this call. Where sizes of data are often what they were not
// taken for (empty, one), and numbers not finite, graphs around them serve better.
void note_unmet(CompiledFunction* self, const Artefact& a) {
  constexpr size_t kMostUnmet = 4;
  if (++self->shapes.unmet < kMostUnmet) return;
  const bool sizes = self->shapes.give_up_unasked(false);
  if (!self->shapes.give_up_unasked(true) && !sizes) return;
  std::erase_if(self->entries, [&](const auto& e) { return e.get() == &a; });
}

PyObject* run_artefact(const Call& c, Artefact& a, Hit& hit, BoundArguments& bound) {
  Fetched& fetched = hit.fetched;
  auto eager = [&] {
    hit.before.restore();
    return run_eager(c);
  };
  if (a.eager) {
    std::optional<InnerFrames> compiled;
    if (a.left_to_eager) compiled.emplace(table_of(c.self));
    fetched.clear();
    return eager();
  }
  if (a.broken && recursion_left() < 1) return eager();  // its frame is one more than eager's
  OutputObjects outputs;
  NotRun why;
  bool ran = false;
  {
    const InAutocast left(a.modes_after ? std::max(0, a.modes_after->autocast_nesting) : 0);
    ran = a.run(fetched.objects(), outputs, why);
  }
  if (!ran) {
    if (why.kind == "relied") note_unmet(c.self, a);
    auto result = owned(eager());
    if (result && !why.kind.empty()) say(c.self, why.kind.c_str(), why.why);
    return result.release().ptr();
  }
  hit.before.forget();
  if (!a.broken && a.rebuild.is_one_output()) {
    if (a.modes_after) a.modes_after->set();
    return outputs[a.rebuild.steps[0].index].release().ptr();
  }
  std::vector<py::object> values =
      behind_run([&] { return a.results(outputs, fetched.objects()); });
  outputs.clear();
  if (a.modes_after) a.modes_after->set();
  if (!a.broken) return values.front().release().ptr();
  return go_on(c.self, {*a.broken, std::move(values), fetched, bound, c.handed});
}

// One call's captures: each begins as the others did.
struct Captures {
  CompiledFunction* self;
  std::span<const py::object> locals;
  std::map<size_t, std::string> left_alone = {};
  std::set<size_t> draws_looked_at = {};
  Calls::Answers answers = {};
  bool compiling = true;
  bool found_with_symbols = false;  // a break: the capture in front of it has them too
  bool hooks_late = false;          // hooks are registered with the results of the graph

  // Where a capture ends before the function does.
  struct End {
    size_t stop_at = SIZE_MAX;  // in front of this step
    int loop_left = -1;         // Break::loop
    bool weak = false;          // Break::weak
    size_t break_at = SIZE_MAX;
  };

  // Runs `capture`, a new one for each choice or loop of torch's that it leaves alone.
  void run(std::unique_ptr<Capture>& capture, const End& end) {
    while (true) {
      Attempt attempt(compiling);
      capture = std::make_unique<Capture>(&self->shapes);
      capture->calls.compiled_type = compiled_function_type();
      capture->calls.answers = &answers;
      capture->numbers.varying = self->varying;
      capture->graphs.left_alone = left_alone;
      capture->graphs.hooks_late = hooks_late;
      capture->graphs.fullgraph = self->fullgraph;
      capture->frames.loop_left = end.loop_left;
      capture->frames.meets_weak = end.weak;
      capture->numbers.reads_numbers = self->numbers_changed < kMostNumbers;
      capture->draws.looked_at = draws_looked_at;
      capture->draws.may_be_looked_at = self->draws_changed < kMostDraws;
      capture->frames.break_at = end.break_at;
      try {
        return capture->run(self->function.ptr(), locals, end.stop_at);
      } catch (const StartAgain&) {
        begin_anew();
      } catch (const DrawLookedAt& d) {
        draws_looked_at.insert(d.draw);
      } catch (const WithSymbols& w) {
        (w.of_data ? self->shapes.met_data : self->shapes.marked) = true;
      } catch (const WithoutSymbols& w) {
        give_up_symbols(w.why);
      } catch (const HooksLate&) {
        if (std::exchange(hooks_late, true))
          throw InternalError("a capture does not register its hooks late");
        if (end.stop_at != SIZE_MAX) throw;  // other code runs then: its steps are others
      } catch (const LeftAlone& l) {
        if (!left_alone.emplace(l.step, l.why).second)
          throw InternalError("a capture does not leave alone what it was to");
        answers.clear();
      } catch (py::error_already_set& e) {
        if (is_raised_by_signal(e)) throw Interrupted{std::move(e)};
        if (!e.matches(PyExc_Exception) || !stops_compiling(attempt)) throw;
      } catch (const Break& b) {
        if (b.of_torch && stops_compiling(attempt)) continue;
        if (b.leaves_call) {
          begin_anew();
          continue;
        }
        if (may_be_for_data(b.id) && give_up_unasked(b, capture->sizes.met_number)) continue;
        const bool by_data = b.id == BreakId::undecided || b.id == BreakId::data_dependent;
        if (by_data && capture->sizes.met_argument &&
            !std::exchange(self->shapes.reads_arguments, true)) {
          begin_anew();
          continue;
        }
        if (!self->shapes.wanted() || found_with_symbols || b.id == BreakId::undecided) throw;
        found_with_symbols = !runs_without_symbols(capture, end);
        if (found_with_symbols) throw;
        say(self, "static", b.what(), b.stack);
        return;
      }
    }
  }

  // Whether a capture that breaks where sizes are symbols does not where they are numbers. Then
  // they stay so. Either way the same steps call the same functions: what was called for good is
  // not called again.
  bool runs_without_symbols(std::unique_ptr<Capture>& capture, const End& end) {
    self->shapes.refused = true;
    try {
      run(capture, end);
      return true;
    } catch (const Break&) {
    } catch (...) {
      self->shapes.refused = false;
      throw;
    }
    self->shapes.refused = false;
    return false;
  }

  // Whether a size or number that depends on data may be why.
  static bool may_be_for_data(BreakId id) {
    return id == BreakId::undecided || id == BreakId::data_dependent ||
           id == BreakId::data_dependent_size || id == BreakId::torch_call;
  }

  bool give_up_unasked(const Break& b, bool numbers) {
    if (!self->shapes.give_up_unasked(numbers)) return false;
    say(self, "static", b.what(), b.stack);
    return true;
  }

  void begin_anew() {
    left_alone.clear();
    answers.clear();
  }

  void give_up_symbols(const std::string& why) {
    if (!self->shapes.wanted())
      throw InternalError("a capture without symbols has none to give up");
    say(self, "static", why);
    self->shapes.give_up();
  }

  // Code that does something else where it is compiled may be wrong there alone.
  bool stops_compiling(const Attempt& attempt) {
    if (!compiling || !attempt.was_asked) return false;
    compiling = false;
    begin_anew();
    return true;
  }
};

// Captures up to the latest of these places where the frames can be left; null where there is none.
// `loop`, `weak`: those of the Break.
std::unique_ptr<Capture> capture_in_front(Captures& captures, std::vector<size_t> steps,
                                          int loop = -1, bool weak = false) {
  for (size_t i = 0; i < steps.size(); i++) {
    const size_t step = steps[i];
    std::unique_ptr<Capture> capture;
    try {
      captures.run(capture, {.stop_at = step, .loop_left = loop, .weak = weak});
      if (!capture->frames.left.empty()) return capture;
    } catch (const Break& b) {  // a value that cannot be had there
      if (b.id != BreakId::local_class && b.id != BreakId::functional_transform &&
          b.id != BreakId::made_leaf && b.id != BreakId::autograd_function &&
          b.id != BreakId::torch_call)
        continue;
      for (size_t other : b.steps)
        if (other < step && std::ranges::count(steps, other) == 0) steps.push_back(other);
      std::sort(steps.begin() + static_cast<ptrdiff_t>(i) + 1, steps.end(), std::greater<>());
    } catch (py::error_already_set& e) {
      if (!e.matches(PyExc_Exception)) throw;
    }
  }
  return nullptr;
}

void say_bytecode(CompiledFunction* self, const Artefact& entry) {
  auto text = [](PyObject* function) {
    auto* code = reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(function));
    return to_text(disassemble(code), code);
  };
  say(self, "bytecode",
      cat("ORIGINAL BYTECODE\n", text(self->function.ptr()), "\nMODIFIED BYTECODE\n",
          entry.broken ? text(entry.broken->function.ptr()) : "none: the call is one graph\n"));
}

void fill(CompiledFunction* self, Artefact& entry, Capture& capture) {
  entry.rebuild = std::move(capture.graphs.rebuild);
  entry.modes_after = capture.graphs.modes_after;
  entry.numbers = std::move(capture.graphs.number_inputs);
  const auto& order = capture.graphs.ir->graph.order();
  const bool calls = std::ranges::any_of(order, [&](ir::NodeId n) {
    return capture.graphs.ir->graph.node(n).kind != ir::NodeKind::Input;
  });
  if (calls)
    entry.graph.emplace(capture.graphs.ir, self->compile, self->report,
                        py::tuple(py::cast(capture.graphs.example_inputs)),
                        capture.graphs.turns_grad_on);
  if (!capture.frames.left.empty()) {
    auto table = table_of(self);
    entry.broken =
        make_broken_call(*table, capture.frames.left, compiled_part(table->next_number()));
  }
  if (log_enabled(Artifact::bytecode)) say_bytecode(self, entry);
  entry.eager = false;
}

// What is said where eager does not raise what captured code has raised.
struct Raised {
  const char* kind = "failed";
  std::string what;
  std::vector<ir::Frame> stack = {};
};

// How many captures the function may have.
size_t limit_of(const CompiledFunction* self) {
  const size_t own =
      self->limit != 0 ? self->limit : dynamo_number("recompile_limit", kRecompileLimit);
  return std::min(own, dynamo_number("accumulated_recompile_limit", kAccumulatedLimit));
}

// Whether a call that ends in an exception is worth a capture up to there. One that is an error of
// the program's does not come again; and calls that return are to find room for theirs.
bool keeps_raising_call(CompiledFunction* self) {
  if (!std::exchange(self->has_raised, true)) return false;
  const auto kept = std::ranges::count_if(self->entries, [](const auto& e) { return e->raises; });
  return static_cast<size_t>(kept) < limit_of(self) / 2;
}

// Captures the call; null where the captured code raises what eager is to raise. What the capture
// has learned before a break tells calls like this one apart from others.
std::shared_ptr<Artefact> make_artefact(CompiledFunction* self, const BoundArguments& bound,
                                        Raised& raised, bool hooks_late = false) try {
  const InnerFrames none(nullptr);
  auto entry = std::make_shared<Artefact>();
  entry->code = borrow(bound.code);
  std::unique_ptr<Capture> capture;
  std::vector<py::object> locals;
  for (PyObject* o : bound.locals) locals.push_back(borrow(o));
  bool captured = true;
  size_t break_at = SIZE_MAX;
  if (self->break_at != 0) {
    auto table = self->table.lock();
    break_at = self->break_at - 1 + (table ? table->prologue_of(self->function) : 0);
  }
  Captures captures{.self = self, .locals = locals, .hooks_late = hooks_late};
  try {
    captures.run(capture, {.break_at = break_at});
  } catch (const Break& b) {
    const bool forbidden = self->fullgraph || capture->calls.error_on_break.value_or(false);
    if (forbidden && b.of_torch) {
      raised = {"forbidden break", b.what(), b.stack};
      return nullptr;
    }
    if (forbidden) say(self, "forbidden break", b.what(), b.stack);
    auto in_front = capture_in_front(captures, b.steps, b.loop, b.weak);
    captured = in_front != nullptr;
    entry->left_to_eager = !captured;
    if (captured) capture = std::move(in_front);
    if (!forbidden)
      say(self, "break",
          cat(b.what(), captured ? "" : "\nThe frame cannot be left there: it runs in eager."),
          b.stack);
  } catch (py::error_already_set& e) {
    if (e.matches(PyExc_KeyboardInterrupt)) throw;
    // Without a capture it could not begin: Python's stack is spent.
    if (!capture || !keeps_raising_call(self)) {
      raised.what = cat("captured code raised what eager does not: ", e.what());
      return nullptr;
    }
    auto in_front = capture_in_front(captures, capture->frames.steps_in_front_of_exception());
    captured = in_front != nullptr;
    entry->raises = true;
    if (captured) capture = std::move(in_front);
  }
  if (captured) fill(self, *entry, *capture);
  if (const NotRun* why = entry->graph ? entry->graph->refusal() : nullptr;
      why && self->shapes.wanted()) {
    say(self, why->kind == "unsupported" ? "static" : "static failed", why->why);
    self->shapes.give_up();
    return make_artefact(self, bound, raised, hooks_late);
  }
  if (const std::string violated = capture->sizes.violations();
      captured && !violated.empty() && !dynamo_setting("allow_ignore_mark_dynamic", false))
    say(self, "violation", violated);
  if (entry->eager) {
    capture->numbers.read_asked();
    capture->sizes.read_computed();
    capture->graphs.fetch.resize(capture->graphs.example_inputs.size());
  }
  const bool offsets =
      capture->graphs.offsets_matter || (entry->graph && entry->graph->offsets_matter());
  const GuardedPlaces places{offsets, capture->graphs.written_storages};
  entry->guards =
      std::make_shared<GuardProgram>(capture->heap.sources, capture->heap.guards,
                                     capture->graphs.fetch, capture->sizes.guards(offsets), places);
  entry->draws = capture->draws.taken();
  entry->input_count = capture->graphs.example_inputs.size();
  if (GuardProgram::measured)
    entry->with_draws(bound.locals, [&](PyObject* const* all) { entry->guards->measure(all); });
  if (log_enabled(Artifact::dynamic)) {
    for (const std::string& text : entry->guards->dimensions()) say(self, "dimension", text);
    for (const std::string& text : capture->sizes.checks()) say(self, "dimension", text);
  }
  if (log_enabled(Artifact::guards)) say(self, "guards", entry->guards->log_text());
  self->entries.insert(self->entries.begin(), entry);
  return entry;
} catch (const HooksLate&) {
  return make_artefact(self, bound, raised, true);
}

// What a check lets go of may run Python code, and that code, or another thread, may change the
// list.
std::shared_ptr<Artefact> find(CompiledFunction* self, const GlobalState& state,
                               const BoundArguments& bound, Hit& hit) {
  auto& entries = self->entries;
  for (size_t i = 0; i < entries.size(); i++) {
    std::shared_ptr<Artefact> e = entries[i];
    if (!hit.fits(*e, state, bound)) continue;
    if (i > 0 && i < entries.size() && entries[i] == e)
      std::rotate(entries.begin(), entries.begin() + static_cast<ptrdiff_t>(i),
                  entries.begin() + static_cast<ptrdiff_t>(i) + 1);
    return e;
  }
  return nullptr;
}

std::optional<GuardProgram::Failure> failure(const Artefact& e, const BoundArguments& bound) {
  std::optional<GuardProgram::Failure> why;
  e.with_draws(bound.locals, [&](PyObject* const* all) { why = e.guards->why_not(all); });
  return why;
}

// Which guard of a capture fails, and who asked for it.
std::string why_not(const Artefact& e, const GlobalState& state, const BoundArguments& bound) {
  if (e.code.ptr() != bound.code) return "the function has another __code__";
  if (std::string changed = difference(state, e.state); !changed.empty()) return changed;
  const auto why = failure(e, bound);
  if (!why) return "nothing that can be named";
  if (why->stack.empty()) return why->text;
  return cat(why->text, "\n", std::string_view(why->stack).substr(0, why->stack.size() - 1));
}

// Why no capture serves this call, most recently used first.
std::string why_another(const CompiledFunction* self, const GlobalState& state,
                        const BoundArguments& bound) {
  std::string out;
  for (const auto& e : std::vector(self->entries))
    cat_to(out, out.empty() ? "" : "\n", why_not(*e, state, bound));
  return out;
}

// The same of the last one, with what would make one capture serve the sizes that differ.
std::string at_limit(const CompiledFunction* self, const GlobalState& state,
                     const BoundArguments& bound) {
  const std::shared_ptr<Artefact> e = self->entries.front();
  std::string out = why_not(*e, state, bound);
  if (e->code.ptr() != bound.code || self->shapes.mode == DynamicShapes::Mode::Barred) return out;
  std::vector<GuardProgram::ChangedSizes> changed;
  e->with_draws(bound.locals,
                [&](PyObject* const* all) { changed = e->guards->changed_sizes(all); });
  for (const auto& [source, dims, before, strides, ranks] : changed) {
    const bool never = self->shapes.mode == DynamicShapes::Mode::Never;
    for (const int64_t d : dims)
      cat_to(out, "\nOne capture may serve all sizes of dimension ", d, " of ", source,
             never                  ? ": compile with dynamic=None"
             : self->shapes.refused ? ", but these are numbers: set the log dynamic"
                                    : cat(": oxyfuel.mark_dynamic(tensor, ", d, ")"));
  }
  return out;
}

void add_varying(CompiledFunction* self, const std::string& source, bool is_int) {
  if (!is_int && dynamo_setting("specialize_float", false)) return;
  if (is_int && !dynamo_setting("specialize_int", false)) self->shapes.numbers.insert(source);
  self->varying.insert(source);
}

// A tensor that had other dimensions may have any sizes.
void note_ranks(CompiledFunction* self, const std::string& source, int64_t ranks) {
  for (int64_t d = 0; d < ranks; d++) self->shapes.changed[source].insert(d);
}

// What was another number or size before is a symbol from now on, or an input of the graph.
void note_changes(CompiledFunction* self, const GuardProgram& guards, PyObject* const* locals) {
  for (const auto& [source, is_int] : guards.changed_numbers(locals))
    add_varying(self, source, is_int);
  if (!dynamo_setting("automatic_dynamic_shapes", true)) return;
  for (auto& [source, dims, before, strides, ranks] : guards.changed_sizes(locals)) {
    note_ranks(self, source, ranks);
    if (!dims.empty()) self->shapes.changed[source].insert(dims.begin(), dims.end());
    if (!strides.empty())
      self->shapes.changed_strides[source].insert(strides.begin(), strides.end());
    self->shapes.sizes_before.insert(before.begin(), before.end());
  }
  for (std::string& source : guards.tensor_sources()) self->shapes.known.insert(std::move(source));
}

// The sizes and numbers in the arguments, by source.
py::dict sizes_in(const BoundArguments& bound) {
  const InnerFrames none(nullptr);
  py::list values;
  for (PyObject* o : bound.locals) values.append(borrow(o));
  return member_of<"oxyfuel.shapes", "sizes_by_source">()(
      py::handle(bound.code).attr("co_varnames"), values);
}

// Those that a program has named to torch's compiler are symbols at once.
void note_named(CompiledFunction* self, const BoundArguments& bound) {
  const std::string sources = compiler_text("dynamic_sources");
  const std::string values = compiler_text("dynamic_values");
  if (sources.empty() && values.empty()) return;
  const py::dict found = sizes_in(bound);
  const InnerFrames none(nullptr);
  for (auto [source, dims] :
       py::dict(member_of<"oxyfuel.shapes", "named_sizes">()(found, sources, values))) {
    const auto name = source.cast<std::string>();
    if (dims.is_none())
      add_varying(self, name, true);
    else
      for (py::handle d : dims) self->shapes.changed[name].insert(d.cast<int64_t>());
  }
}

// What another call had otherwise: one that ran in eager, the first (`eager_then_compile`).
void note_changes_since(CompiledFunction* self, const py::dict& before,
                        const BoundArguments& bound) {
  const bool sizes = dynamo_setting("automatic_dynamic_shapes", true);
  for (auto [key, now] : sizes_in(bound)) {
    const auto source = key.cast<std::string>();
    if (!before.contains(key) || !py::type::of(now).is(py::type::of(before[key]))) continue;
    const py::object was = before[key];
    if (!PyTuple_Check(now.ptr())) {
      if (!now.equal(was)) add_varying(self, source, PyLong_Check(now.ptr()) != 0);
      continue;
    }
    self->shapes.known.insert(source);
    const auto dims = now.cast<std::vector<int64_t>>(), others = was.cast<std::vector<int64_t>>();
    if (sizes && dims.size() != others.size())
      note_ranks(self, source, static_cast<int64_t>(std::max(dims.size(), others.size())));
    for (size_t d = 0; sizes && dims.size() == others.size() && d < dims.size(); d++)
      if (dims[d] != others[d]) {
        self->shapes.changed[source].insert(static_cast<int64_t>(d));
        self->shapes.sizes_before.insert(others[d]);
      }
  }
}

// A new entry, or another thread's; null where there is none: `raised` says why, and is empty at
// the limit and where another thread captures for long.
std::shared_ptr<Artefact> capture(CompiledFunction* self, const GlobalState& state,
                                  const BoundArguments& bound, Hit& hit, Raised& raised) {
  const CompileLock lock;
  if (lock.waited())
    if (auto e = find(self, state, bound, hit)) return e;
  if (!lock.held()) return nullptr;
  if (const size_t limit = limit_of(self); self->entries.size() >= limit) {
    const bool forbidden = self->fullgraph || dynamo_setting("fail_on_recompile_limit_hit", false);
    if (forbidden || !std::exchange(self->limit_said, true))
      say(self, forbidden ? "forbidden limit" : "limit",
          cat(limit, " captures; other calls run in eager. The last guard that failed: ",
              self->entries.empty() ? "none" : at_limit(self, state, bound)));
    constexpr size_t kMissesInARow = 32, kMostUnlooked = 64;
    if (!forbidden && ++self->missed > kMissesInARow)
      self->unlooked = std::min(self->missed - kMissesInARow, kMostUnlooked);
    return nullptr;
  }
  if (!self->entries.empty())
    say(self, dynamo_setting("error_on_recompile", false) ? "forbidden recompile" : "recompile",
        why_another(self, state, bound));
  if (const py::dict before = std::exchange(self->sizes_seen, {}); !before.empty())
    note_changes_since(self, before, bound);
  note_named(self, bound);
  for (const auto& e : std::vector(self->entries))
    if (e->code.ptr() == bound.code)
      e->with_draws(bound.locals,
                    [&](PyObject* const* all) { note_changes(self, *e->guards, all); });
  if (!self->entries.empty() && self->entries.front()->code.ptr() == bound.code) {
    const auto why = failure(*self->entries.front(), bound);
    self->numbers_changed += why && why->number ? 1 : 0;
    // Facts about sizes and numbers do not tell of whom they are.
    const bool drew = why && !self->entries.front()->draws.empty() &&
                      (why->local < 0 || why->local >= static_cast<int64_t>(bound.locals.size()));
    self->draws_changed += drew ? 1 : 0;
  }
  self->shapes.assumed = !dynamo_setting("assume_static_by_default", true);
  self->shapes.static_state = chosen_setting("force_parameter_static_shapes");
  self->shapes.static_module_ints = chosen_setting("allow_unspec_int_on_nn_module") == false;
  self->shapes.duck = setting_of("torch.fx.experimental._config", "use_duck_shape", true);
  const auto chosen_numbers = chosen_setting("capture_scalar_outputs");
  const auto chosen_sizes = chosen_setting("capture_dynamic_output_shape_ops");
  const bridge::OfData& of_no_use = self->shapes.of_no_use;
  self->shapes.unasked = {!self->fullgraph && !chosen_numbers && !of_no_use.numbers,
                          !self->fullgraph && !chosen_sizes && !of_no_use.sizes};
  self->shapes.of_data = {self->fullgraph || chosen_numbers.value_or(!of_no_use.numbers),
                          self->fullgraph || chosen_sizes.value_or(!of_no_use.sizes), true};
  auto failed = [&] {
    raised = {self->suppressed ? "suppressed" : "failed", *self->failure};
    return nullptr;
  };
  if (self->failures >= kMostFailures) return failed();
  const WithoutDefaultDevice none;
  // Torch imports it for some ops, and it replaces functions of torch that the capture has read.
  const auto has_dynamo = [] {
    return PyDict_GetItemString(PyImport_GetModuleDict(), "torch._dynamo") != nullptr;
  };
  const bool before = has_dynamo();
  std::shared_ptr<Artefact> e;
  try {
    e = make_artefact(self, bound, raised);
    if (e && !before && has_dynamo() && !hit.fits(*e, state, bound)) {
      std::erase(self->entries, e);
      e = make_artefact(self, bound, raised);
    }
  } catch (const py::error_already_set& error) {
    if (self->fullgraph || !error.matches(PyExc_Exception) ||
        !dynamo_setting("suppress_errors", false))
      throw;
    self->suppressed = true;
    self->failures = kMostFailures;
    self->failure = std::make_shared<const std::string>(error.what());
    return failed();
  } catch (const std::exception& failure) {
    self->failures++;
    self->failure = std::make_shared<const std::string>(failure.what());
    throw;
  }
  if (e && !hit.fits(*e, state, bound))
    throw InternalError(
        cat("the guards of a new capture do not hold: ", why_another(self, state, bound)));
  return e;
}

// torch.fx.symbolic_trace runs the call on proxies, whose methods write down what happens.
bool is_symbolic() {
  return member_of<"torch.fx._symbolic_trace", "is_fx_symbolic_tracing">()().cast<bool>();
}

PyObject* call_checked(const Call& c) {
  CompiledFunction* self = c.self;
  auto eager = [&] { return run_eager(c); };
  if (is_observed() || is_traced()) return eager();
  BoundArguments bound(as_function(self->function), c.args,
                       static_cast<size_t>(PyVectorcall_NARGS(c.nargsf)), c.kwnames);
  if (!bound.valid) return eager();
  Hit hit;
  const GlobalState state;
  const Stance stance = current_stance();
  if (stance == Stance::ForceEager) return eager();
  if (self->unlooked > 0 && stance == Stance::Default) {
    self->unlooked--;
    return eager();
  }
  std::shared_ptr<Artefact> entry = find(self, state, bound, hit);
  if (entry) self->missed = 0;
  if (!entry) {
    if (is_finalizing() || is_symbolic()) return eager();
    if (stance == Stance::EagerOnRecompile || dynamo_setting("disable", false)) return eager();
    if (stance == Stance::FailOnRecompile) say(self, "refused", why_another(self, state, bound));
    if (stance == Stance::EagerThenCompile && !std::exchange(self->seen, true)) {
      self->sizes_seen = sizes_in(bound);
      return eager();
    }
    Raised raised;
    entry = capture(self, state, bound, hit, raised);
    if (!entry) {
      auto result = owned(eager());
      if (result && !raised.what.empty()) say(self, raised.kind, raised.what, raised.stack);
      return result.release().ptr();
    }
  }
  return run_artefact(c, *entry, hit, bound);
}

// `handed`, if not null, holds the arguments.
PyObject* call_once(PyObject* o, PyObject* const* args, size_t nargsf, PyObject* kwnames,
                    Handed* handed) {
  const size_t given = handed ? handed->size() : 0;
  const Call c{&Object::of(o), args, nargsf, kwnames, handed};
  std::string failure;
  try {
    return call_checked(c);
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
  PyObject* result = run_eager(c);
  if (result == nullptr) return nullptr;
  PyObject* said = PyObject_CallFunction(c.self->report.ptr(), "ss()", "failed", failure.c_str());
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
  std::shared_ptr<ResumeTable> table = Object::of(o).table.lock();
  return follow_tails(result);
}

PyObject* call(PyObject* o, PyObject* const* args, size_t nargsf, PyObject* kwnames) {
  return boundary([=] { return call_with(o, args, nargsf, kwnames, nullptr); }, nullptr);
}

PyObject* new_compiled_function(CompiledFunction state) {
  return Object::make(compiled_function_type(), call, std::move(state));
}

PyObject* new_object(PyTypeObject*, PyObject* args, PyObject*) {
  PyObject *function, *compile, *report;
  int fullgraph, dynamic;
  Py_ssize_t limit, break_at;
  if (!PyArg_ParseTuple(args, "O!OOpnni", &PyFunction_Type, &function, &compile, &report,
                        &fullgraph, &limit, &break_at, &dynamic))
    return nullptr;
  auto body = [=] {
    return new_compiled_function({.report = borrow(report),
                                  .compile = borrow(compile),
                                  .function = borrow(function),
                                  .fullgraph = fullgraph != 0,
                                  .limit = static_cast<size_t>(limit),
                                  .break_at = static_cast<size_t>(break_at),
                                  .shapes = {.mode = static_cast<DynamicShapes::Mode>(dynamic)}});
  };
  return boundary(body, nullptr);
}

PyObject* forget(PyObject* o, PyObject*) {
  auto body = [&] {
    CompiledFunction& self = Object::of(o);
    // What they let go of may come here again.
    const auto gone = std::exchange(self.entries, {});
    const auto gone_table = std::exchange(self.own_table, nullptr);
    self.varying.clear();
    self.shapes = {.mode = self.shapes.mode};
    self.failures = 0;
    self.sizes_seen = {};
    self.limit_said = self.seen = self.has_raised = self.suppressed = false;
    self.missed = self.unlooked = 0;
    self.numbers_changed = self.draws_changed = 0;
    return Py_NewRef(Py_None);
  };
  return boundary(body, nullptr);
}

// Of a tensor the dimensions, none for an int, None for a float.
PyObject* vary(PyObject* o, PyObject* args) {
  auto body = [=] {
    auto [source, dims] =
        borrow(args).cast<std::pair<std::string, std::optional<std::vector<int64_t>>>>();
    CompiledFunction& self = Object::of(o);
    if (dims && !dims->empty()) {
      self.shapes.changed[source] = {dims->begin(), dims->end()};
    } else {
      if (dims) self.shapes.numbers.insert(source);
      self.varying.insert(source);
    }
    return Py_NewRef(Py_None);
  };
  return boundary(body, nullptr);
}

PyObject* guards(PyObject* o, PyObject*) {
  auto body = [=] {
    py::list out;
    for (const auto& e : Object::of(o).entries) out.append(e->guards);
    return out.release().ptr();
  };
  return boundary(body, nullptr);
}

PyObject* guard_nanoseconds(PyObject* o, PyObject* const* args, Py_ssize_t n, PyObject* names) {
  auto body = [=]() -> PyObject* {
    const CompiledFunction& self = Object::of(o);
    BoundArguments bound(as_function(self.function), args, static_cast<size_t>(n), names);
    if (!bound.valid || self.entries.empty()) return Py_NewRef(Py_None);
    const std::shared_ptr<Artefact> e = self.entries.front();
    if (e->code.ptr() != bound.code) return Py_NewRef(Py_None);
    constexpr int kRounds = 100;
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < kRounds; ++i) {
      Hit hit;
      if (!e->holds(e->state, e->code.ptr(), bound.locals, hit.fetched, hit.before))
        return Py_NewRef(Py_None);
    }
    const std::chrono::duration<double, std::nano> spent = std::chrono::steady_clock::now() - start;
    return PyFloat_FromDouble(spent.count() / kRounds);
  };
  return boundary(body, nullptr);
}

PyObject* resumed(PyObject* o, PyObject*) {
  auto body = [=] {
    py::list out;
    if (auto table = Object::of(o).table.lock())
      for (const py::object& function : table->functions()) out.append(function);
    return out.release().ptr();
  };
  return boundary(body, nullptr);
}

// As a function's: a compiled function in a class is a method.
PyObject* descriptor_get(PyObject* self, PyObject* object, PyObject*) {
  auto body = [=] {
    return object == nullptr || object == Py_None ? Py_NewRef(self) : PyMethod_New(self, object);
  };
  return boundary(body, nullptr);
}

// As a function's: pickles and copies know it by its name.
PyObject* reduce(PyObject* o, PyObject*) {
  auto body = [=] { return PyObject_GetAttrString(Object::of(o).function.ptr(), "__qualname__"); };
  return boundary(body, nullptr);
}

PyMethodDef methods[] = {
    {"__reduce__", reduce, METH_NOARGS, nullptr},
    {"reset", forget, METH_NOARGS, "Forgets every capture."},
    {"vary", vary, METH_VARARGS,
     "Says of an argument, by its source, which dimensions vary: none of an int, None of a float."},
    {"resumed", resumed, METH_NOARGS, "The functions behind graph breaks, compiled."},
    {"guards", guards, METH_NOARGS, "The GuardProgram of each capture, most recently used first."},
    {"guard_nanoseconds",
     reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(guard_nanoseconds)),
     METH_FASTCALL | METH_KEYWORDS,
     "What one check of the most recently used capture's guards takes for these arguments; None "
     "where they do not hold."},
    {nullptr, nullptr, 0, nullptr}};
PyMemberDef members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(NativeHead, vectorcall), READONLY, nullptr},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(NativeHead, weakrefs), READONLY, nullptr},
    {"__wrapped__", T_OBJECT_EX, offsetof(Object, state.function), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr}};

// What a function tells of itself: its name, module, documentation, signature.
PyObject* get_attribute(PyObject* o, PyObject* name) {
  static PyObject* const module = PyUnicode_InternFromString("__module__");
  static PyObject* const documentation = PyUnicode_InternFromString("__doc__");
  auto body = [=] {
    if (name != module && name != documentation) {  // which the type has, too
      PyObject* own = PyObject_GenericGetAttr(o, name);
      if (own != nullptr || !PyErr_ExceptionMatches(PyExc_AttributeError)) return own;
      PyErr_Clear();
    }
    return PyObject_GetAttr(Object::of(o).function.ptr(), name);
  };
  return boundary(body, nullptr);
}

}  // namespace

void compile_everything_like(PyObject* compiled) {
  compile_every_frame(table_of(&Object::of(Py_NewRef(compiled))));
}

PyTypeObject* compiled_function_type() {
  static PyTypeObject* const type = Object::type(
      "oxyfuel._C.CompiledFunction", {{Py_tp_new, reinterpret_cast<void*>(new_object)},
                                      {Py_tp_descr_get, reinterpret_cast<void*>(descriptor_get)},
                                      {Py_tp_getattro, reinterpret_cast<void*>(get_attribute)},
                                      {Py_tp_methods, methods},
                                      {Py_tp_members, members}});
  return type;
}

}  // namespace oxy::python
