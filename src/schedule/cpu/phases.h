// The order inside one parallel iteration: nests with the same private axes share a loop nest (a
// phase) where no value that one needs is complete only after the other's loop.
#pragma once

#include "schedule/cpu/arrange_loops.h"

namespace oxy::schedule {

// Phases in order; their axes are not set yet.
std::vector<Phase> make_phases(std::vector<Nest> nests, const std::vector<Axis>& parallel);

}  // namespace oxy::schedule
