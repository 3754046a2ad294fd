// An ATen graph as Python, in the form that readers of torch.fx know:
//
//   class GraphModule(torch.nn.Module):
//       def forward(self, arg0: "f32[10]"):
//           # File: model.py:5 in forward, code: x = a.abs() + 1
//           abs_1: "f32[10]" = torch.ops.aten.abs.default(arg0)
//           return (abs_1,)
//
// Regions are functions inside of forward; a region that returns a parameter returns a copy.
// Attributes of the graph are parameters of forward, after the inputs. A joint graph is the
// joint_helper that torch's AOTAutograd shows, with primals and tangents.
#pragma once

#include "ir/graph.h"

namespace oxy::ir {

std::string python_module(const Graph& g);

// A whole program: the module at the sizes of the example, inputs from a fixed seed, and a run that
// prints what comes out. Needs torch alone.
std::string python_program(const Graph& g);

}  // namespace oxy::ir
