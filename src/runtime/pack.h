// Packs the right side of gemms into panels: what their kernels do at each call where the weights
// may change.
#pragma once

#include "runtime/host.h"
#include "runtime/plan.h"

namespace oxy::runtime {

int64_t packed_elements(const PlanPacking& p);
// Of `from`, up to the last one that is read.
int64_t read_elements(const PlanPacking& p);

// `from`: the first element of the buffer. To `to`, for each matrix and each panel of `width`
// columns, its k rows.
void pack(const PlanPacking& p, const float* from, float* to, const Host& host = serial_host());

}  // namespace oxy::runtime
