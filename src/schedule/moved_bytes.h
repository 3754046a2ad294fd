// How much memory a kernel reads and writes: what its time is compared with where the machine's
// bandwidth is the limit.
#pragma once

#include "schedule/kernel.h"

namespace oxy::schedule {

// Bytes of the elements that it loads and of those that it stores, each once however often it comes
// back to them: what must be moved if the cache holds the rest. Local buffers do not count. At the
// hints where sizes are symbols.
int64_t moved_bytes(const Kernel& k);

}  // namespace oxy::schedule
