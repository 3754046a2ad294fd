// Index set splitting: a Vector loop in which the loop's variable is compared with constants (the
// pieces of a concatenation, the edges of a padding, a slice that is written) becomes one loop for
// each range between them. In a range the comparisons are known: masked loads become plain ones or
// go, and with them what they alone were for.
#pragma once

#include "schedule/kernel.h"

namespace oxy::schedule {

void split_ranges(Kernel& k, loops::Variables& variables);

}  // namespace oxy::schedule
