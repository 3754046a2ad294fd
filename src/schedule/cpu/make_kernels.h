// Groups to kernels for the CPU: the order of their loops, and statements in them.
#pragma once

#include "schedule/pass_list.h"

namespace oxy::schedule {

void make_kernels(Draft& d);

}  // namespace oxy::schedule
