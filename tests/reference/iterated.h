// Operations of the class Iterated on one number: what the vectors of kernels are compared with.
#pragma once

#include "ops/loop_builder.h"

namespace oxy::ops {

// In f32 where `dtype` is that (fp16 and bf16 are computed in it as well), else in f64.
double iterated(LoopOp op, DType dtype, double a, double b, double c);

}  // namespace oxy::ops
