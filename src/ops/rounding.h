// Rounding to the values of a dtype.
#pragma once

#include "ir/types.h"

namespace oxy::ops {

// The value of floating dtype `d` nearest to `v`, ties to even; fp16 and bf16 are rounded through
// f32, as eager does. `v` itself for other dtypes.
double round_to(double v, ir::DType d);
// The integer `v` cut to the width of `d`; bool keeps whether it is not 0.
int64_t wrap_to(int64_t v, ir::DType d);

}  // namespace oxy::ops
