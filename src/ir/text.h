// The text of a graph, which parses back to an equal graph (print(parse(print(g))) == print(g)).
//
//   symbol s0 in [2, inf], hint 16
//   symbol u0 in [0, inf], hint 4, data
//   graph aten(%x: f32[s0, 64], %w: f32[64, 64]) {
//     %0: f32[s0, 64] = aten.mm.default(%x, %w)   # model.py:12 in forward: h = x @ w
//     %1: f32[s0, 64] = aten.gelu.default(%0, "none")
//     %2: f32[s0, 32], %3: f32[s0, 32] = aten.split.Tensor[2](%1, 32, 1)
//     mutate %x <- %1
//     return %1, input(0), view(0, f32[64] offset=3), view_of_output(0, f32[64]), None
//   }
// A name other than "graph" follows the stage in quotes. `[2]` after a target gives the lengths of
// returned lists (`[-1, 2]`: a single value, then a list of two). `mutate metadata %x <- %1 as
// f32[2]` changes the layout of the input too; `conj %1` and `neg view(...)` are results with
// torch's lazy marks, `piece view(...)` one of several of a view op, `detached view(...)` one that
// autograd does not know, `no_grad view(...)` one that it knows as made under no_grad (graph.h).
// Torch stage: `graph torch(...)`, `call torch.nn.functional.linear(%x, %w, bias=None)`, `method
// view(%x, -1)`; `return` takes one argument of any nesting. Attributes, in both stages: `%w:
// f32[3] = attr w`. Regions, in all stages: a block a region behind the call, its names its own.
//   %2: f32[4] = cond(%1, %x) then(%a: f32[4]) {
//     %0: f32[4] = aten.neg.default(%a)
//     return %0
//   } else(%a: f32[4]) {
//     return input(0)
//   }
// Joint stage: `graph joint(%x: f32[3], tangent %t: f32[3])`, `return %0, gradient %1`.
// Arguments: %values, None, True, 1, 2.0, inf, complex(1.0, 2.0), "text", [lists], (tuples,), {"k":
// dicts}, f32, cuda:0, layout(strided), memory_format(channels_last), slice(0, None, 1), ..., @0
// "an object of the host", and expressions of symbols (in parentheses where they begin like another
// argument: a symbol named u8). Values of calls are numbered in order of definition; inputs,
// attributes and named nodes of the Torch stage keep their names. Comments carry the innermost
// frame of the user's stack where it changes, and are not parsed back.
#pragma once

#include "ir/graph.h"

namespace oxy::ir {

struct PrintOptions {
  bool stacks = true;
};
std::string print(const Graph& g, const PrintOptions& options = {});
std::string print(const Graph& g, const Node& n);
std::string print(const Graph& g, const Arg& a);
// The name that print(g) gives the value; takes a walk over the graph.
std::string print(const Graph& g, ValueId v);

Graph parse(std::string_view text);  // UserError with line and column

}  // namespace oxy::ir
