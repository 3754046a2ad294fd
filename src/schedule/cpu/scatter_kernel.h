// The kernel of a scatter: a loop that folds values into places that it has loaded. Iterations that
// meet in one place must do so in order, so only axes along which no two iterations ever meet are
// parallel or lanes of a vector; the others are walked one after the other. What is scattered and
// the places may have been inlined; with its neighbours it is not fused.
#pragma once

#include "schedule/kernel.h"
#include "schedule/nest.h"

namespace oxy::schedule {

bool is_scatter(const Nest& n);
Kernel scatter_kernel(const loops::Program& p, const Nest& n, std::string name);

}  // namespace oxy::schedule
