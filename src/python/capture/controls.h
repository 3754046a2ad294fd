// What users tell a compiler about their functions: torch.compiler's marks and modes, and our own
// of the same names.
#pragma once

#include <string_view>

#include "python/cpython/handles.h"

namespace oxy::python {

enum class Control : uint8_t {
  None,
  InGraph,     // allow_in_graph: one node, not looked into
  NotInGraph,  // disallow_in_graph
  Constant,    // assume_constant_result
  Substitute,  // substitute_in_graph
};

// Marks a function, for the rest of the process; Control::None takes the mark away.
void set_control(py::handle callable, Control control, py::object substitute);

enum class Stance : uint8_t {
  Default,
  ForceEager,
  EagerOnRecompile,
  FailOnRecompile,
  EagerThenCompile,  // and aot_eager_then_compile: the first call runs in eager
};

// torch.compiler.set_stance names them; UserError for another name.
Stance stance_named(std::string_view name);
void set_stance(Stance stance);
// Ours, or torch's where ours is the default.
Stance current_stance();

}  // namespace oxy::python
