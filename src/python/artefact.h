// What a capture has become, as calls find it by one look-up: the guards, the graph in the form in
// which it runs, and what is made of its results.
//
// The guards are the only ones who ask whether it fits: they cover what plans rely on
// (torch_bridge/input_signature.h with all its options, GlobalState), so the plan runs on the
// tensors that they have just looked at.
#pragma once

#include "python/broken_call.h"
#include "python/capture/rebuild.h"
#include "python/compile_graph.h"
#include "python/draws.h"
#include "python/guards/guard_program.h"

namespace oxy::python {

// Why eager runs in the place of a graph; said once that has succeeded, where there is anything to
// say.
struct NotRun {
  std::string kind, why;
};

// What `f` returns. It stands behind a run that may have changed something: a failure of ours is an
// exception of the call's, since eager would change it once more.
template <class F>
auto behind_run(F&& f) {
  try {
    return f();
  } catch (const py::error_already_set&) {
    throw;
  } catch (const std::exception& e) {
    PyErr_Format(PyExc_RuntimeError, "%s; the graph of the call has run before it", e.what());
    throw py::error_already_set();
  }
}

// A captured graph in the form that its backend gave it.
class RunnableGraph {
 public:
  // compile(TorchGraph, example inputs, freezing) -> what runs it:
  //   a CompiledPlan; (kind, reason) where there is none; the TorchGraph itself: its functions are
  //   called one by one; or a callable that takes the inputs and returns a tuple or list of the
  //   outputs
  // report(kind, text): "note", "thawed"; what it raises, the call raises
  RunnableGraph(std::shared_ptr<TorchIr> ir, py::handle compile, py::handle report,
                const py::tuple& examples, bool turns_grad_on = false);

  // False: nothing has happened, and eager is to run. Throws what the graph raises. The caller
  // holds the inputs.
  bool run(std::span<PyObject* const> inputs, OutputObjects& outputs, NotRun& why);

  // Why it never runs; null where it does.
  const NotRun* refusal() const { return none_.kind.empty() ? nullptr : &none_; }

  bool offsets_matter() const { return plan_ && plan_->executable.offsets_matter(); }

  int traverse(visitproc visit, void* arg) const;  // as tp_traverse

 private:
  void compile(const py::tuple& examples);
  bool run_plan(std::span<PyObject* const> inputs, OutputObjects& outputs, NotRun& why);
  void wrap_outputs(const CompiledPlan& plan, std::span<PyObject* const> inputs,
                    bridge::Outputs& tensors, OutputObjects& outputs);

  std::shared_ptr<TorchIr> ir_;
  py::object compile_, report_;
  std::shared_ptr<CompiledPlan> plan_;
  py::object callable_;  // where there is no plan: a callable, or null: the functions one by one
  NotRun none_;          // why it never runs
  Thaws thaws_;
  const bool turns_grad_on_;  // Graphs::turns_grad_on
};

struct Artefact {
  GlobalState state;
  py::object code;  // the function's
  std::shared_ptr<GuardProgram> guards;
  Draws draws;
  size_t input_count = 0;
  std::optional<RunnableGraph> graph;  // null: nothing but Python's own work, done by `rebuild`
  std::vector<NumberInput> numbers;    // the inputs of the graph that are no tensors of the call's
  Rebuild rebuild;
  std::optional<ModesAfter> modes_after;  // null: those in front
  std::optional<BrokenCall> broken;  // where the roots of `rebuild` are the values of left frames
  bool eager = true;                 // nothing was captured
  bool left_to_eager = false;        // because of a break; what it calls is compiled
  bool raises = false;               // the call ends in an exception of the captured code

  // Whether it is for a call like this; then `fetched` has what run() takes, and `before` how
  // generators were in front of what was drawn.
  bool holds(const GlobalState& now, PyObject* function_code, std::span<PyObject* const> locals,
             Fetched& fetched, GeneratorStates& before) const {
    if (code.ptr() != function_code || state != now) return false;
    return draws.empty() ? guards->check(locals.data(), fetched)
                         : holds_with_draws(locals, fetched, before);
  }
  // Calls `look` with the arguments of a call as the guards see them.
  void with_draws(std::span<PyObject* const> locals,
                  const std::function<void(PyObject* const*)>& look) const;
  // The outputs of the graph for a hit; as RunnableGraph::run.
  bool run(std::span<PyObject* const> fetched, OutputObjects& outputs, NotRun& why);
  // The roots of `rebuild`, with the effects done.
  std::vector<py::object> results(OutputObjects& outputs, std::span<PyObject* const> fetched) const;

  int traverse(visitproc visit, void* arg) const;  // as tp_traverse

 private:
  bool holds_with_draws(std::span<PyObject* const> locals, Fetched& fetched,
                        GeneratorStates& before) const;
};

// Puts frames of the user's, (file, line, function) with the outermost first, in front of an
// exception's traceback.
void add_user_lines(py::handle exception, const py::list& frames);

}  // namespace oxy::python
