// The text of a graph, which parses back to an equal graph (print(parse(print(g))) == print(g)).
//
//   graph aten(%x: f32[s0, 64], %w: f32[64, 64]) {
//     %0: f32[s0, 64] = aten.mm.default(%x, %w)   # model.py:12 in forward: h = x @ w
//     %1: f32[s0, 64] = aten.gelu.default(%0, "none")
//     %2: f32[s0, 32], %3: f32[s0, 32] = aten.split.Tensor[2](%1, 32, 1)
//     mutate %x <- %1
//     return %1, input(0), view(0, f32[64] offset=3), view_of_output(0, f32[64]), None
//   }
// `[2]` after a target gives the lengths of returned lists (`[-1,2]`: a single value, then a list of two).
// Torch stage: `graph torch(...)`, `call torch.nn.functional.linear(%x, %w, bias=None)`, `method view(%x, -1)`,
// `attr weight`; `return` takes any nesting.
// Comments carry the innermost frame of the user's stack and are not parsed back.
#pragma once

#include <string>
#include <string_view>

#include "ir/graph.h"

namespace oxy::ir {

struct PrintOptions {
  bool stacks = true;
};
std::string print(const Graph& g, const PrintOptions& options = {});
std::string print(const Graph& g, const Node& n);
std::string print(const Graph& g, const Arg& a);
// The name of a value: %name for inputs and attributes, else %N numbered in order of definition... see print().
std::string print(const Graph& g, ValueId v);

Graph parse(std::string_view text);  // UserError with line and column

}  // namespace oxy::ir
