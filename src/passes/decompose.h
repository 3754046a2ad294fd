// Writes ops in terms of simpler ones, by the decompositions of the op table, until none applies.
//
// Stands after canonicalize and remove_noops, so that nothing is taken apart that goes away, and
// before the passes that find what the parts have in common. Results keep their layouts: where a
// decomposition's last op would lay out its result differently, that op is asked for the recorded
// layout if it writes a tensor of its own by a loop; otherwise the call stays whole.
#pragma once

#include "ir/graph.h"

namespace oxy::passes {
bool decompose(ir::Graph& g);
}
