// From Torch IR and the inputs of a call to a plan, or to the reason why there is none.
#pragma once

#include "python/compiled_plan.h"
#include "python/replay.h"
#include "support/settings.h"

namespace oxy::python {

// Plans a recording. `registered`: the user's passes (user_passes.h).
std::shared_ptr<CompiledPlan> plan_recording(Recording recording, const TorchIr& torch_ir,
                                             const py::tuple& args, const Settings& settings,
                                             const py::list& registered);

// Records a call with inputs like these and plans it; the random numbers that are drawn meanwhile
// are drawn again. A CompiledPlan, or (kind, reason): "unsupported", or "failed" for a failure of
// ours. `freezing`: false where parameters are no constants any more, whatever the settings say.
py::object compile_graph(const std::shared_ptr<TorchIr>& torch_ir, const py::tuple& args,
                         const Settings& settings, const py::list& registered, bool freezing);

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
