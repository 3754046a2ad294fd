// What a pass may do with a node: the traits of its row, or a careful guess where the op has none.
#pragma once

#include "ir/graph.h"

namespace oxy::passes {

// May be dropped when nothing reads it. Not: random draws (the generator's state moves), effects,
// inputs, attributes (their number is the caller's), calls without a result, regions with one of
// these.
bool is_removable(const ir::Node& n);

// Two calls with equal arguments give equal results: not random, no effect, results defined (unlike
// empty's), and known to us (a custom op may read anything). Regions are not compared.
bool is_mergeable(const ir::Node& n);

}  // namespace oxy::passes
