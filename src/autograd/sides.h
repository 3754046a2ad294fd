// Which side of a joint graph each node belongs to, before anything is chosen.
#pragma once

#include "ir/graph.h"

namespace oxy::autograd {

enum class Side : uint8_t {
  Forward,   // a result, a mutation or an effect of the forward takes it
  Backward,  // it depends on a tangent, or is an effect of the backward, or depends on one
  Either,    // the backward alone may want it, and the primals are enough to compute it
};

struct Sides {
  std::vector<Side> side;    // by node
  std::vector<bool> needed;  // by node: a gradient or an effect of the backward takes it

  Side of(const ir::Graph& g, ir::ValueId v) const { return side[g.value(v).def.index]; }
};

// How many outputs of a joint graph are results of the forward.
size_t forward_results(const ir::Graph& joint);

// It computes something: no input, no attribute.
bool is_call(const ir::Node& n);

Sides sides_of(const ir::Graph& joint);

}  // namespace oxy::autograd
