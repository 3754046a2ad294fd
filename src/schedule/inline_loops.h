// Puts elementwise producers into the loops that read them, with the index substituted. First pass
// of the scheduler: fusion then sees fewer and larger loops, and whatever joined here needs no
// memory.
//
// A producer goes in where that repeats little work: all its readers end up in one loop, or it is
// cheap. It stays where somebody needs it in memory, or where a costly value would be computed
// again for every element of a broadcast (a value for each row is fine: it is hoisted out of the
// loop over the row).
#pragma once

#include "loops/loop_ir.h"

namespace oxy::schedule {

void inline_loops(loops::Program& p);

}  // namespace oxy::schedule
