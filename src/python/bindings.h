// The parts of the extension module, which module.cpp calls once each, and its types.
#pragma once

#include "python/cpython/handles.h"

namespace oxy::python {

void bind_recording(py::module_& m);
void bind_execution(py::module_& m);
void bind_internals(py::module_& m);

// The callable that oxyfuel.compile returns for a function: guards, then the captured graph, all
// natively.
//
// The type `CompiledFunction(function, compile, report, fullgraph, limit, break_at, dynamic)`;
//   nullptr with an exception set.
//   compile(torch_graph, example_inputs, freezing)  -> what runs the graph (artefact.h)
//   report(kind, text, stack)  "break", "bytecode", "recompile", "limit", "grad", "failed", "failed
//                              graph", "unsupported", "note", "thawed"; what it raises, the call
//                              raises
//   fullgraph                  a break is an error, raised by report
//   limit                      captures kept; more different calls than that run in eager
//   dynamic                    DynamicShapes::Mode: 0 never, 1 automatic, 2 always
//   break_at                   every capture breaks in front of this instruction (the first: 1),
//                              for tests; 0 for none
PyTypeObject* compiled_function_type();

// Every Python function that is called from now on is compiled as this one (inner_frames.h).
void compile_everything_like(PyObject* compiled);

// The callable that compile_fx returns: looks its inputs up among the plans made so far and runs
// one, all natively.
//
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
