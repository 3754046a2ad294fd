// What the losses and their gradients have in common.
#pragma once

#include "ops/args.h"

namespace oxy::ops {

// What becomes of the losses of the elements.
enum LossReduction : int64_t { EachLoss = 0, MeanLoss = 1, SumLoss = 2 };

}  // namespace oxy::ops
