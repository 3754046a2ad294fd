// What things cost, in the units of one simple vector operation per element. Rough on purpose: it
// only ranks choices.
#pragma once

#include "schedule/kernel.h"

namespace oxy::schedule {

int cost_of(ops::LoopOp op, ops::DType dtype);
int cost_of(const loops::Body& body);
// The number of iterations where it is constant, else the number at the hints, else a guess.
int64_t count_of(sym::Expr e);
int64_t points(const std::vector<loops::Axis>& axes);

int64_t point_cost(const Kernel& k);  // Kernel::cost of its loops as they are

}  // namespace oxy::schedule
