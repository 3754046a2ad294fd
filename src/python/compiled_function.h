// The callable that oxyfuel.compile returns for a function: guards, then the captured graph, all
// natively.
#pragma once

#include <Python.h>

namespace oxy::python {

// The type `CompiledFunction(function, compile, report, fullgraph, limit, break_at)`; nullptr with
//   an exception set.
//   compile(torch_graph, example_inputs, freezing)  -> what runs the graph (artefact.h)
//   report(kind, text, stack)  "break", "bytecode", "recompile", "limit", "grad", "failed", "failed
//                              graph", "unsupported", "note", "thawed"; what it raises, the call
//                              raises
//   fullgraph                  a break is an error, raised by report
//   limit                      captures kept; more different calls than that run in eager
//   break_at                   every capture breaks in front of this instruction (the first: 1),
//                              for tests; 0 for none
PyTypeObject* compiled_function_type();

// Every Python function that is called from now on is compiled as this one (inner_frames.h).
void compile_everything_like(PyObject* compiled);

}  // namespace oxy::python
