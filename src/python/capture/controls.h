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

// The module that a function was written in, which functools.wraps does not copy.
std::string_view written_in(PyFunctionObject* f);
// What a function is known by: where it was written and its name there. functools.wraps copies both
// names, so they are empty where the function is not the one that has them; of a wrapper of torch's
// that keeps TorchDynamo out of a function they are the function's.
struct KnownAs {
  std::string_view module, name, qualified;
  bool is(std::string_view in, std::string_view called) const {
    return module == in && name == called;
  }
};
KnownAs known_as(PyFunctionObject* f);

// torch.compiler.set_stance names them; UserError for another name.
Stance stance_named(std::string_view name);
void set_stance(Stance stance);
// Ours, or torch's where ours is the default.
Stance current_stance();

}  // namespace oxy::python
