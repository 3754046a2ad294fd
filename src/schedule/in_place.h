// Mutated inputs written where they lie, instead of into a temporary that is copied at the commit
// point.
//
// Right where the old value is dead (nobody but the writing kernel reads it from there on, and that
// one reads each element before it writes it), and where nothing after the write can raise: extern
// calls and kernels that check indices can, so the writing kernel moves behind them where
// dependences allow. Other inputs in the same memory do not occur: recording refuses them and a
// plan's signature guards that. Where only a part of the input changes, the kernel writes no more
// than that part.
#pragma once

#include "schedule/schedule.h"

namespace oxy::schedule {

// Fills Schedule::in_place. Steps may be reordered and kernels divided; the memory plan is made
// afterwards.
void write_in_place(Schedule& s);

}  // namespace oxy::schedule
