// A plan with what Python needs around it: the form of the result that the caller expects.
#pragma once

#include <c10/util/SmallVector.h>

#include <memory>

#include "python/result_tree.h"
#include "torch_bridge/make_executable.h"

namespace oxy::python {

namespace py = pybind11;

using OutputObjects = c10::SmallVector<py::object, 4>;

struct CompiledPlan {
  CompiledPlan(bridge::ExecutableMaker::Made made, ResultTree result)
      : owned(std::move(made.executable)),
        executable(*owned),
        result(std::move(result)),
        report(made.report),
        choices(std::move(made.choices)) {
    const ResultTree& r = this->result;
    flat = r.kind == ResultTree::Kind::Tuple || r.kind == ResultTree::Kind::List;
    for (size_t i = 0; flat && i < r.items.size(); i++)
      flat = r.items[i].kind == ResultTree::Kind::Output;
  }

  const std::unique_ptr<bridge::Executable> owned;
  bridge::Executable& executable;
  ResultTree result;
  pipeline::Report report;
  std::string choices;  // what max-autotune tried
  bool flat = false;    // a tuple or list of outputs: the usual case, built without the tree's help
};

// Runs a plan, without the GIL where it is `released`. Throws a Python exception where the user
// interrupts the run.
bool run_executable(bridge::Executable& executable, std::span<const bridge::Input> inputs,
                    bridge::Outputs& outputs, std::string& reason, bool released);

// Output `k` of a plan as Python sees it, a new reference; null with an exception set.
PyObject* wrap_output(std::span<PyObject* const> inputs, const bridge::Executable& executable,
                      size_t k, at::Tensor&& t);

}  // namespace oxy::python
