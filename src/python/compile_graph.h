// From Torch IR and the inputs of a call to a plan, or to the reason why there is none; the passes
// that a user has registered (python/oxyfuel/passes.py) on the way.
#pragma once

#include <c10/util/SmallVector.h>

#include "passes/match_pattern.h"
#include "pipeline/size_slots.h"
#include "python/replay.h"
#include "torch_bridge/make_executable.h"

namespace oxy::python {

using OutputObjects = c10::SmallVector<py::object, 4>;

// A plan with what Python needs around it: the form of the result that the caller expects.
struct CompiledPlan {
  CompiledPlan(bridge::ExecutableMaker::Made made, ResultTree result)
      : owned(std::move(made.executable)),
        executable(*owned),
        result(std::move(result)),
        report(made.report),
        choices(std::move(made.choices)) {
    const ResultTree& r = this->result;
    auto is_output = [](const ResultTree& item) { return item.kind == ResultTree::Kind::Output; };
    flat = (r.kind == ResultTree::Kind::Tuple || r.kind == ResultTree::Kind::List) &&
           std::ranges::all_of(r.items, is_output);
  }

  const std::unique_ptr<bridge::Executable> owned;
  bridge::Executable& executable;
  ResultTree result;
  // Of a graph with symbolic sizes: whether it is for a call's, and the numbers in its result. Null
  // where a capture's guards say that.
  std::optional<pipeline::SizeCheck> sizes;
  pipeline::Report report;
  std::string choices;  // what max-autotune tried
  bool flat = false;    // a tuple or list of outputs: the usual case, built without the tree's help

  // Whether it was made for inputs like these.
  bool accepts(std::span<const bridge::Input> inputs) const;
  // What stands at the leaves of `result` beside the outputs. Of inputs that it accepts.
  std::vector<int64_t> numbers(std::span<const bridge::Input> inputs) const;
};

// Runs a plan, without the GIL where it is `released`. Throws a Python exception where the user
// interrupts the run.
bool run_executable(bridge::Executable& executable, std::span<const bridge::Input> inputs,
                    bridge::Outputs& outputs, std::string& reason, bool released);

// Output `k` of a plan as Python sees it.
py::object wrap_output(std::span<PyObject* const> inputs, const bridge::Executable& executable,
                       size_t k, at::Tensor&& t);

// What oxyfuel.register_replacement keeps: a pattern recorded with its example inputs, and how to
// record it anew.
struct UserPattern {
  passes::Pattern pattern;
  // (tensors, numbers) -> (AtenGraph, AtenGraph) of the pattern and its replacement, or None where
  // a check refuses.
  py::object record;
};

std::shared_ptr<UserPattern> make_user_pattern(const Recording& search, const py::tuple& numbers,
                                               py::object record);

// Plans a recording. `registered`: the user's passes, as (name, in_front,
// UserPattern or function (AtenGraph, example inputs) -> AtenGraph).
std::shared_ptr<CompiledPlan> plan_recording(Recording recording, const TorchIr& torch_ir,
                                             const py::tuple& args, const Settings& settings,
                                             const py::list& registered);

// Records a call with inputs like these and plans it; the random numbers that are drawn meanwhile
// are drawn again. A CompiledPlan, or (kind, reason): "unsupported", or "failed" for a failure of
// ours. `freezing`: false where parameters are no constants any more, whatever the settings say.
py::object compile_graph(const std::shared_ptr<TorchIr>& torch_ir, const py::tuple& args,
                         const Settings& settings, const py::list& registered, bool freezing,
                         const RecordOptions& options);

// How often a graph's parameters have changed while a plan took them for constants.
class Thaws {
 public:
  // What is said of one more.
  std::string count();
  bool freezing() const { return times_ < kMost; }

 private:
  static constexpr int kMost = 8;
  int times_ = 0;
};

// The folder of this extension, where the Clang library lies too.
std::string library_folder();

// Inputs as plans take them. The tensors are held by `args`.
std::vector<bridge::Input> inputs_of(const py::tuple& args);

}  // namespace oxy::python
