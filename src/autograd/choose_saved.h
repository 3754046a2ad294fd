// Which values of a joint graph the forward keeps for the backward: a minimal cut. The idea is that
// of AOTAutograd's min-cut partitioner: each value is an edge that costs what keeping it costs,
// reading it leads on to what is computed of it, and the cheapest set of edges that separates what
// the forward has from what the backward reads is what to save; what lies behind the cut is
// computed again. Here a node is a vertex too, and an edge from the source to it costs what
// computing it again costs, without end where that must not be: so the cut weighs memory traffic
// against work, and a long chain costs as much as all of its links.
//
// A value costs its bytes twice, written and read; once, where the forward has it in memory anyway.
// Primals, results and whatever computes nothing (views, constants) cost nothing. Of a view its
// base is saved, unless the view is much smaller (compact.h): then it may be a copy of the view.
//
// A checkpoint without draws and effects runs again: what the backward alone reads of it is never
// saved, what the forward goes on with is what the next one begins with, and is.
//
// What may be recomputed is not, as long as the memory budget allows:
//   - reductions and calls;
//   - what a call of the backward reads: it would be written to memory once more;
//   - what the forward reads both before and after a call (a residual stream). In the forward it is
//     in memory, and chains of sums that reach through the whole model would be computed from the
//     results of all layers.
#pragma once

#include "autograd/partition.h"
#include "autograd/sides.h"

namespace oxy::autograd {

struct Choice {
  ir::ValueId value;
  Saved saved;          // has no name yet, and a Value no index
  bool copied = false;  // the forward gives a copy, of saved.type
};

// In the order of their definition: primals first.
std::vector<Choice> choose_saved(const ir::Graph& joint, const Sides& sides,
                                 const PartitionOptions& options);

}  // namespace oxy::autograd
