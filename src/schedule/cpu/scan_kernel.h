// The kernel of a scan. Its order along the scanned axis is fixed, so it is no part of fusion with
// its neighbours (what is scanned may have been inlined): rows that lie along the scanned axis go
// four at a time, since each waits for its own last sum only; rows across it go a block of columns
// at a time, with the sums of the block in cache.
#pragma once

#include "schedule/kernel.h"
#include "schedule/nest.h"

namespace oxy::schedule {

bool is_scan(const Nest& n);
Kernel scan_kernel(const loops::Program& p, const Nest& n, std::string name);

}  // namespace oxy::schedule
