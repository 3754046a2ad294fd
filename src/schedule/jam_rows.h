// Rows that are only reduced, several at a time: a kernel that reads one row after the other is one stream of memory,
// which a core alone does not fill the bus with; four rows are four streams. After emission, since the statements of
// neighbouring points are what is interleaved.
#pragma once

#include "loops/variables.h"
#include "schedule/kernel.h"

namespace oxy::schedule {

// Buffers of at least `large` bytes are worth it.
void jam_rows(Kernel& k, loops::Variables& variables, int64_t large);

}  // namespace oxy::schedule
