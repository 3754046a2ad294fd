// What may be computed a second time, by the op table, and what that costs.
#pragma once

#include <optional>
#include <string_view>

#include "ir/graph.h"

namespace oxy::autograd {

enum class Recompute : uint8_t {
  Free,     // views, constants, numbers: nothing is computed that a kernel would notice
  Fusible,  // element by element: goes into the loop of its reader
  Costly,   // reductions, products, other calls: right to repeat, but it takes time
  Never,    // random, an effect, unknown to us, or undefined
};

struct RecomputeRule {
  Recompute may = Recompute::Never;
  std::string_view kind;  // "gemm", "reduction" ..., for people
  double cost = 0;        // of once more: as so many bytes from memory
};
RecomputeRule recompute_rule(const ir::Graph& g, const ir::Node& n);

// It becomes loops, which may be fused with the loops around them; else it is a call that reads and
// writes memory.
bool is_loop(const ir::Graph& g, const ir::Node& n);

// At the hints of its sizes; a size without one counts as some small number.
int64_t elements(const ir::TensorType& t);
int64_t bytes(const ir::TensorType& t);

}  // namespace oxy::autograd
