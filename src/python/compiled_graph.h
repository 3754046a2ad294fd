// The callable that compile_fx returns: looks its inputs up among the plans made so far and runs one, all natively.
#pragma once

#include <Python.h>
#include <c10/util/SmallVector.h>
#include <torch/csrc/utils/pybind.h>

#include <span>

namespace oxy::python {

// The type `CompiledGraph(eager, compile, report, slots)`, a new reference; nullptr with an exception set.
//   eager(*inputs)          runs the graph in torch: for what is not compiled, and after a failure; None: such calls raise
//                           `left_to_eager`, and nothing has happened
//   compile(inputs: tuple)  -> CompiledPlan | (kind, reason): no plan for inputs like these
//   report(kind, text)      is told, after the eager call succeeded: "failed" (ours), "unsupported", "grad"; and of a
//                           plan that ran: "note"; of one that goes because a constant of its has changed: "thawed". It may raise
//   slots                   [(dict, key)]: where the graph's attributes hang; another object there needs another plan
PyObject* make_compiled_graph_type();

// A class of exceptions; their arguments: report, then kind and text for it, to be called once eager has succeeded. The kind is
// None where nothing is to be said.
PyObject* left_to_eager();

using OutputObjects = c10::SmallVector<pybind11::object, 4>;

// For a caller that knows the inputs to be such as the only plan of `graph` was made for: runs that plan, without a
// second look at them. False: nothing has happened (`graph` is no CompiledGraph, has no such plan, or the plan failed), and
// the graph is to be called. The caller holds the inputs.
bool run_only_plan(PyObject* graph, std::span<PyObject* const> inputs, OutputObjects& outputs);

}  // namespace oxy::python
