// The callable that compile_fx returns: looks its inputs up among the plans made so far and runs
// one, all natively.
#pragma once

#include <Python.h>

namespace oxy::python {

// The type `CompiledGraph(eager, compile, report, slots)`, a new reference; nullptr with an
//   exception set.
//   eager(*inputs)          runs the graph in torch: for what is not compiled, and after a failure
//   compile(inputs: tuple, freezing)
//                           -> CompiledPlan | (kind, reason): no plan for inputs like these
//   report(kind, text)      is told, after the eager call succeeded: "failed" (ours),
//                           "unsupported", "grad"; and of a plan that ran: "note"; of one that goes
//                           because a constant of its has changed: "thawed". It may raise
//   slots                   [(dict, key)]: where the graph's attributes hang; another object there
//                           needs another plan
PyObject* make_compiled_graph_type();

}  // namespace oxy::python
